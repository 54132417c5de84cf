"""The settings that a model's author recommends, from the GGUF's ``general.sampling.*`` keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..samplers import Sampler, find_sampler
from .errors import PresetError
from .llama_cpp_names import read_sequence
from .messages import make_step, shorten
from .preset import Preset

PREFIX = "general.sampling."

_PARAMETERS = {
    "penalty_last_n": ("penalties", "last_n"),
    "penalty_repeat": ("penalties", "repeat"),
    "top_k": ("top_k", "k"),
    "top_p": ("top_p", "p"),
    "min_p": ("min_p", "p"),
    "xtc_probability": ("xtc", "probability"),
    "xtc_threshold": ("xtc", "threshold"),
    "temp": ("temperature", "t"),
}
"""By key: the sampler and the parameter that it sets."""
_MIROSTAT_PARAMETERS = {"mirostat_tau": "tau", "mirostat_eta": "eta"}
_INTEGER_KEYS = ("top_k", "penalty_last_n", "mirostat")

Number = int | float


class _NamedSampler(NamedTuple):
    """A sampler of the chain, and the key that asks for it."""

    name: str
    key: str


def preset_from_metadata(metadata: Mapping[str, str]) -> Preset | None:
    """Return the preset that a model's author put into the GGUF, or None if there is none.

    ``general.sampling.sequence`` gives the samplers and their order, by llama.cpp's names joined by ``;`` or by
    its letters. Each takes its own keys, and llama.cpp's defaults for the rest. Without a sequence, the samplers
    that have keys stand in llama.cpp's default order. mirostat 1 or 2 leaves of them only the temperature, as in
    llama.cpp. Raises ``PresetError`` that names the key, for a value that is not a number or not within its range,
    and for a sampler that llama.cpp does not have.
    """
    texts = {key[len(PREFIX) :]: str(value) for key, value in metadata.items() if key.startswith(PREFIX)}
    number_keys = (*_PARAMETERS, *_MIROSTAT_PARAMETERS, "mirostat")
    numbers = {key: _number(key, texts[key]) for key in number_keys if key in texts}
    if not numbers and not texts.get("sequence", "").strip(" ;"):
        return None
    steps = _steps(texts.get("sequence", ""), numbers)
    return Preset.from_table(
        {
            "description": _description(steps, numbers),
            "chain": [{step.about.name: step.model_dump(exclude_unset=True)} for step in steps],
        },
        place="general.sampling",
        name="model",
        source="model",
    )


def _number(key: str, text: str) -> Number:
    try:
        value = float(text)
    except ValueError:
        raise PresetError(f"{PREFIX}{key}: {shorten(text)} is not a number") from None
    if key not in _INTEGER_KEYS:
        # llama.cpp reads a temperature below 0 as 0.
        return max(value, 0.0) if key == "temp" else value
    if not value.is_integer():
        raise PresetError(f"{PREFIX}{key}: {shorten(text)} is not a whole number")
    # llama.cpp reads a top_k below 0 as off.
    return max(int(value), 0) if key == "top_k" else int(value)


def _steps(sequence: str, numbers: Mapping[str, Number]) -> list[Sampler]:
    version = numbers.get("mirostat", 0)
    if version not in (0, 1, 2):
        raise PresetError(f"{PREFIX}mirostat: {version} is not 0, 1 or 2")
    if version:
        steps = [_step("temperature", f"{PREFIX}temp", numbers)] if "temp" in numbers else []
        name = "mirostat" if version == 1 else "mirostat_v2"
        return [*steps, _make_by_key(name, f"{PREFIX}mirostat", _MIROSTAT_PARAMETERS, numbers)]
    steps = [_step(name, key, numbers) for name, key in _named_samplers(sequence, numbers)]
    return sorted(steps, key=lambda step: step.about.selects)  # adaptive_p goes last, wherever it is named


def _named_samplers(sequence: str, numbers: Mapping[str, Number]) -> list[_NamedSampler]:
    """Return the samplers in their order: that of the sequence, else of llama.cpp's default chain."""
    if sequence.strip(" ;"):
        key = f"{PREFIX}sequence"
        return [_NamedSampler(name, key) for name in read_sequence(sequence, key)]
    keys: dict[str, str] = {}
    for key, (name, _) in _PARAMETERS.items():
        if key in numbers:
            keys.setdefault(name, f"{PREFIX}{key}")
    return [_NamedSampler(name, keys[name]) for name in sorted(keys, key=_stage)]


def _stage(name: str) -> int:
    return find_sampler(name).about.stage or 0


def _step(name: str, asked_by: str, numbers: Mapping[str, Number]) -> Sampler:
    own = {key: parameter for key, (sampler, parameter) in _PARAMETERS.items() if sampler == name}
    return _make_by_key(name, asked_by, own, numbers)


def _make_by_key(
    name: str, asked_by: str, parameters: Mapping[str, str], numbers: Mapping[str, Number]
) -> Sampler:
    """Return a sampler with the parameters that have a key.

    Args:
        name: the sampler.
        asked_by: the key that asks for the sampler; begins a message about it.
        parameters: by key, the parameter that it sets.
        numbers: the values, by key.
    """
    params: dict[str, Any] = {}
    step = make_step(name, params, asked_by)
    for key, parameter in parameters.items():
        if key in numbers:
            # One by one, so that a message names the key that it is about.
            params[parameter] = numbers[key]
            step = make_step(name, params, f"{PREFIX}{key}", parameter)
    return step


def _description(steps: Iterable[Sampler], numbers: Mapping[str, Number]) -> str:
    """Describe the preset, and name keys that have no effect in llama.cpp and so none here."""
    about = [step.about for step in steps]
    names, families = {each.name for each in about}, {each.family for each in about}
    idle = [key for key, (name, _) in _PARAMETERS.items() if key in numbers and name not in names]
    idle += [key for key in _MIROSTAT_PARAMETERS if key in numbers and "mirostat" not in families]
    ignored = f"; without effect there, as in llama.cpp: {', '.join(idle)}" if idle else ""
    return f"what the model's author recommends{ignored}"
