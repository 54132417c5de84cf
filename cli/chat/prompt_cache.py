"""What the model of a chat has read, in a file for the next time. A file that cannot be used is reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .failover_store import Report

if TYPE_CHECKING:
    from ...engine.model import Model


def keep_prompt_cache(model: Model, path: Path, report: Report) -> None:
    """Write what a model has read, for `take_up_prompt_cache`. Reports it if that is not possible."""
    from ...engine.prompt_cache import PromptCacheError, save_prompt_cache

    try:
        save_prompt_cache(model, path)
    except PromptCacheError as error:
        report(f"the prompt cache is not written: {error}")


def take_up_prompt_cache(model: Model, path: Path, report: Report) -> None:
    """Take up what a model has read in an earlier session. Reports a file that does not fit.

    A file that does not exist yet is none.
    """
    from ...engine.prompt_cache import PromptCacheError, load_prompt_cache

    try:
        load_prompt_cache(model, path)
    except PromptCacheError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        report(f"the prompt cache is not used: {error}")
