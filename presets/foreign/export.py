"""From a preset to a file of another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...common import nearest_name
from ...samplers import SamplingError, parse_chain
from ..errors import PresetError
from ..foreign_formats import EXPORT_FORMATS
from ..preset import Preset
from .outgoing import Exported, Outgoing
from .to_huggingface import to_config
from .to_llama_cpp import to_body, to_command
from .to_ollama import to_modelfile
from .to_webui import to_json, to_yaml

_EXPORTERS: Mapping[str, tuple[str, Callable[[Outgoing], Exported]]] = {
    "llama.cpp": ("llama.cpp", to_command),
    "llama-server": ("llama-server", to_body),
    "webui": ("text-generation-webui", to_yaml),
    "sillytavern": ("SillyTavern", to_json),
    "ollama": ("Ollama", to_modelfile),
    "huggingface": ("transformers", to_config),
}
_EXTRAS = ("seed", "max_tokens", "stop", "system", "grammar")


def export_preset(preset: Preset | str | Sequence[Any], format: str) -> Exported:  # noqa: A002
    """Return a preset in another tool's format.

    Args:
        preset: a preset, or a chain: its steps as in a preset, as ``[name, {parameter: value}]``, or as one
            text.
        format: one of `EXPORT_FORMATS`.

    An import of the text gives the same chain, save for what is reported. Raises ``PresetError`` for an unknown
    format and for a chain that is wrong.
    """
    name = format.strip().lower().replace("_", "-")
    if name not in _EXPORTERS:
        near = nearest_name(name, EXPORT_FORMATS)
        hint = f"; did you mean {near}?" if near else ""
        raise PresetError(f"unknown format {format!r}{hint}; known: {', '.join(EXPORT_FORMATS)}")
    extras: dict[str, Any] = {}
    if isinstance(preset, Preset):
        samplers = preset.samplers()
        extras = {key: getattr(preset, key) for key in _EXTRAS if getattr(preset, key) not in (None, [], "")}
    else:
        try:
            samplers = parse_chain(preset if isinstance(preset, str) else [_as_step(step) for step in preset])
        except SamplingError as error:
            raise PresetError(str(error)) from None
    tool, write = _EXPORTERS[name]
    return write(Outgoing(tool, samplers, extras))


def _as_step(step: Any) -> Any:
    """``[name, {parameter: value}]`` as a preset writes it."""
    is_pair = isinstance(step, (list, tuple)) and len(step) == 2 and isinstance(step[0], str)
    return {step[0]: step[1]} if is_pair else step
