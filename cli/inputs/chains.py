"""Chains that are named by a preset, or written in the compact notation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...common.errors import UsageError
from .preset import open_preset, preset_of_model

if TYPE_CHECKING:
    from ...samplers import StepSpec


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
    from ... import presets

    if text == "model":
        preset = preset_of_model(metadata or {})
        if preset is None:
            raise UsageError("--against: this model names no sampling settings (general.sampling.*)")
        return NamedChain(text, presets.resolve_settings(preset).steps)
    if presets.names_file(text) or text in {entry.name for entry in presets.list_presets()}:
        return NamedChain(text, presets.resolve_settings(open_preset(text)).steps)
    try:
        return NamedChain(text, presets.resolve_settings(None, chain=text).steps)
    except presets.PresetError as error:
        message = str(error).removeprefix("--chain: ")
        raise UsageError(f"--against {text!r}: no preset, and no chain: {message}") from None
