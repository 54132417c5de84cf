"""From a preset to a file of another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...common.text import nearest_name
from ...samplers.building import parse_chain
from ...samplers.errors import SamplingError
from ..errors import PresetError
from ..foreign_formats import EXPORT_FORMATS
from ..preset import Preset
from .outgoing import Exported, Outgoing
from .to_huggingface import to_config
from .to_kobold import to_presets, to_request
from .to_llama_cpp import to_body, to_command
from .to_lmstudio import to_preset
from .to_ollama import to_modelfile
from .to_sillytavern import to_json
from .to_tabbyapi import to_overrides
from .to_webui import to_yaml

_EXPORTERS: Mapping[str, tuple[str, Callable[[Outgoing], Exported]]] = {
    "llama.cpp": ("llama.cpp", to_command),
    "llama-server": ("llama-server", to_body),
    "webui": ("text-generation-webui", to_yaml),
    "sillytavern": ("SillyTavern", to_json),
    "koboldai": ("KoboldAI", to_presets),
    "koboldcpp": ("KoboldCpp", to_request),
    "ollama": ("Ollama", to_modelfile),
    "huggingface": ("transformers", to_config),
    "tabbyapi": ("TabbyAPI", to_overrides),
    "lmstudio": ("LM Studio", to_preset),
}
_WITH_SLOPE = ("koboldai", "koboldcpp")
"""Formats whose repetition penalty can have a slope."""
_EXTRAS = ("seed", "max_tokens", "stop", "system", "grammar")


def export_preset(preset: Preset | str | Sequence[Any], format: str) -> Exported:  # noqa: A002
    """Return a preset in another tool's format.

    Args:
        preset: a preset, or a chain: its steps as in a preset, as ``[name, {parameter: value}]``, or as one
            text.
        format: one of `EXPORT_FORMATS`.

    An import of the text gives the same chain, except for what is reported. Raises ``PresetError`` for an unknown
    format and for a chain that is wrong.
    """
    name = format.strip().lower().replace("_", "-")
    if name not in _EXPORTERS:
        near = nearest_name(name, EXPORT_FORMATS)
        hint = f"; did you mean {near}?" if near else ""
        raise PresetError(f"unknown format {format!r}{hint}; known: {', '.join(EXPORT_FORMATS)}")
    extras: dict[str, Any] = {}
    labels: tuple[str, ...] = ()
    if isinstance(preset, Preset):
        samplers = preset.samplers()
        labels = (preset.name, preset.description)
        extras = {key: getattr(preset, key) for key in _EXTRAS if getattr(preset, key) not in (None, [], "")}
    else:
        try:
            samplers = parse_chain(preset if isinstance(preset, str) else [_as_step(step) for step in preset])
        except SamplingError as error:
            raise PresetError(str(error)) from None
    tool, write = _EXPORTERS[name]
    out = Outgoing(tool, samplers, extras, *labels)
    if name not in _WITH_SLOPE:
        out.flatten_repetition_penalty()
    return write(out)


def _as_step(step: Any) -> Any:
    """``[name, {parameter: value}]`` as a preset writes it."""
    is_pair = isinstance(step, (list, tuple)) and len(step) == 2 and isinstance(step[0], str)
    return {step[0]: step[1]} if is_pair else step
