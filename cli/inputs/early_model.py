"""Lets llama.cpp load the model while Python imports the rest and reads presets, grammars and the prompt.

What is wrong with any of these is told as if nothing had been loaded, and what is wrong with the model after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ...common.errors import LogitsmithError
from ..options.model import LogOptions, ModelOptions
from .model import ModelSpec, load_arguments

if TYPE_CHECKING:
    from ...engine.native.model import EarlyLoad
    from ...engine.native.options import LoadPlan

_MAX_BYTES = 500_000_000
"""A larger file gets its bar, and Ctrl-C stops it also while it is mapped: `EarlyLoad` has neither."""


class EarlyModel(NamedTuple):
    """A model that is being loaded, and what named it."""

    spec: ModelSpec
    load: EarlyLoad


@contextmanager
def load_early(
    options: ModelOptions, log: LogOptions, tokens: int | None = None, *, is_needed: bool = True
) -> Iterator[EarlyModel | None]:
    """Load the model in the background while inside; yields what `load_model` takes, None if it is not done.

    It is done for a small local file, if there is nothing to say, to ask or to download before. Failures are left
    to `load_model`.

    Args:
        options: name the model, and say how it is loaded.
        log: a log that is shown is not lost: with it, nothing is done.
        tokens: how many are made at most, as for `load_model`.
        is_needed: False: nothing is done.
    """
    spec = _plain_spec(options, tokens) if is_needed and not log.verbose else None
    plan = None if spec is None else _plan(spec)
    if spec is None or plan is None:
        yield None
        return
    from ...engine.native.model import EarlyLoad

    load = EarlyLoad(plan)
    try:
        yield EarlyModel(spec, load)
    finally:
        load.drop()


def _plain_spec(options: ModelOptions, tokens: int | None) -> ModelSpec | None:
    """The model, if no flag asks for more than a plain load of a file."""
    from ...models.folders import locate
    from ...presets.user_config import user_config

    if options.lora or options.override_kv or options.numa is not None or options.gpu_layers:
        return None
    if options.mlock or options.mmap is False:
        return None
    try:
        path, origin = locate(options.model_text or None, user_config().model)
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
    except (LogitsmithError, OSError, ValueError):
        return None
    sentences: list[str] = []
    spec = ModelSpec(path, origin, load_arguments(options, {}, sentences.append, tokens))
    return None if sentences else spec


def _plan(spec: ModelSpec) -> LoadPlan | None:
    """How the model is loaded; None if it cannot be, or has several files."""
    from ...engine.native.options import plan_load
    from ...models.errors import ModelError

    try:
        return plan_load(spec.path, **spec.arguments) if len(spec.files) == 1 else None
    except ModelError:
        return None
