"""Chains that are named by a preset, or written in the compact notation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.errors import UsageError
from .preset import open_preset, preset_of_model

if TYPE_CHECKING:
    from ...samplers.chain import StepSpec


@dataclass(frozen=True)
class NamedChain:
    """A chain, under the name or the text that the user gave."""

    name: str
    steps: tuple[StepSpec, ...]


def named_chain(text: str, metadata: Mapping[str, str] | None) -> NamedChain:
    """Return the chain of a preset, else the one that is written there. A preset's name goes first.

    ``metadata``: the GGUF's, needed for the preset ``model`` only. Raises ``PresetError``, or
    ``UsageError`` for a text that is neither.
    """
    from ...presets.errors import PresetError
    from ...presets.search import list_presets, names_file
    from ...presets.settings import resolve_settings

    if text == "model":
        preset = preset_of_model(metadata or {})
        if preset is None:
            raise UsageError("--against: this model names no sampling settings (general.sampling.*)")
        return NamedChain(text, resolve_settings(preset).steps)
    if names_file(text) or text in {entry.name for entry in list_presets()}:
        return NamedChain(text, resolve_settings(open_preset(text)).steps)
    try:
        return NamedChain(text, resolve_settings(None, chain=text).steps)
    except PresetError as error:
        message = str(error).removeprefix("--chain: ")
        raise UsageError(f"--against {text!r}: no preset, and no chain: {message}") from None


def chat_template_source(text: str, *, is_name_meant: bool = True) -> str:
    """Return a template for `open_chat_template`: a name, or Jinja, which is read if the text names a file.

    ``is_name_meant``: whether the error for a missing file says that llama.cpp has no such template, either.
    Raises ``ModelError`` for a text that is none of these.
    """
    from ...common.files import TextFileError, read_text_file
    from ...common.text import nearest_name
    from ...engine.templates import builtin_chat_templates, is_chat_template
    from ...models.errors import ModelError

    if is_chat_template(text):
        return text
    try:
        source = read_text_file(Path(text), _MAX_BYTES)
    except TextFileError as error:
        hint = ""
        if is_name_meant and not os.path.lexists(text):
            near = nearest_name(text, builtin_chat_templates())
            hint = f"; did you mean {near}?" if near else "; llama.cpp has no template of that name"
        raise ModelError(f"{text}: {error}{hint}") from None
    if not is_chat_template(source):
        raise ModelError(f"{text}: this is no chat template: there is no Jinja in it")
    return source


_MAX_BYTES = 1_000_000
"""More than the engine compiles: its message names the length that is allowed."""
