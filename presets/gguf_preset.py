"""The settings that a model's author recommends, out of the GGUF's ``general.sampling.*`` keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..samplers import Sampler, find_sampler
from .errors import PresetError
from .messages import make_step, shown
from .preset import Preset

PREFIX = "general.sampling."

# Key: the sampler and the parameter that it sets.
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
_MIROSTAT = {"mirostat_tau": "tau", "mirostat_eta": "eta"}
_WHOLE = ("top_k", "penalty_last_n", "mirostat")

# llama.cpp's letter and name for each sampler that a sequence may hold, and our name, in the order of its help.
_SEQUENCE = (
    ("e", "penalties", "penalties"),
    ("d", "dry", "dry"),
    ("s", "top_n_sigma", "top_n_sigma"),
    ("k", "top_k", "top_k"),
    ("y", "typ_p", "typical"),
    ("p", "top_p", "top_p"),
    ("m", "min_p", "min_p"),
    ("x", "xtc", "xtc"),
    ("t", "temperature", "temperature"),
    ("i", "infill", "infill"),
    ("a", "adaptive_p", "adaptive_p"),
)
_LETTERS = {letter: ours for letter, _, ours in _SEQUENCE}
# llama.cpp also takes top-k and topk for top_k, and so on.
_NAMES = {
    **{theirs.replace("_", between): ours for _, theirs, ours in _SEQUENCE for between in ("_", "-", "")},
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typical",
}


def preset_from_metadata(metadata: Mapping[str, str]) -> Preset | None:
    """Return the preset that a model's author put in the GGUF, or None if there is none.

    ``general.sampling.sequence`` gives the samplers and their order, by llama.cpp's names joined by ``;`` or
    by its letters; each gets its own keys and llama.cpp's defaults for the rest. Without it, the samplers
    whose keys are there stand in llama.cpp's default order. mirostat 1 or 2 leaves of them the temperature
    only, as in llama.cpp. Raises ``PresetError`` that names the key, for a value that is not a number or not
    within its range, and for a sampler that llama.cpp has not.
    """
    texts = {key[len(PREFIX) :]: str(value) for key, value in metadata.items() if key.startswith(PREFIX)}
    numbers = {key: _number(key, texts[key]) for key in (*_PARAMETERS, *_MIROSTAT, "mirostat") if key in texts}
    if not numbers and not texts.get("sequence", "").strip(" ;"):
        return None
    version = numbers.get("mirostat", 0)
    if version not in (0, 1, 2):
        raise PresetError(f"{PREFIX}mirostat: {version} is not 0, 1 or 2")
    # Which key asked for a sampler, for complaints.
    if version:
        steps = [_step("temperature", f"{PREFIX}temp", numbers)] if "temp" in numbers else []
        steps.append(_mirostat("mirostat" if version == 1 else "mirostat_v2", numbers))
    else:
        asked = _asked(texts.get("sequence", ""), numbers)
        steps = [_step(name, key, numbers) for name, key in asked]
        steps.sort(key=lambda step: step.about.selects)  # adaptive_p goes last, wherever it is named
    return Preset.from_table(
        {"description": _description(steps, numbers), "chain": [_written(step) for step in steps]},
        place="general.sampling",
        name="model",
        source="model",
    )


def _number(key: str, text: str) -> int | float:
    try:
        value = float(text)
    except ValueError:
        raise PresetError(f"{PREFIX}{key}: {shown(text)} is not a number") from None
    if key not in _WHOLE:
        # llama.cpp reads a temperature below 0 as 0.
        return max(value, 0.0) if key == "temp" else value
    if not value.is_integer():
        raise PresetError(f"{PREFIX}{key}: {shown(text)} is not a whole number")
    # llama.cpp reads a top_k below 0 as off.
    return max(int(value), 0) if key == "top_k" else int(value)


def _asked(sequence: str, numbers: Mapping[str, int | float]) -> list[tuple[str, str]]:
    """The samplers in their order, each with the key that asks for it."""
    if sequence.strip(" ;"):
        return [(name, f"{PREFIX}sequence") for name in read_sequence(sequence, f"{PREFIX}sequence")]
    keys: dict[str, str] = {}
    for key, (name, _) in _PARAMETERS.items():
        if key in numbers:
            keys.setdefault(name, f"{PREFIX}{key}")
    return [(name, keys[name]) for name in sorted(keys, key=_stage)]


def _stage(name: str) -> int:
    return find_sampler(name).about.stage or 0


def read_sequence(sequence: str, origin: str) -> list[str]:
    """Return our names of the samplers in llama.cpp's notation: its names joined by ``;``, or its letters.

    Raises ``PresetError``, with the origin in front, for what is no sampler of llama.cpp's.
    """
    parts = [part.strip().lower() for part in sequence.split(";") if part.strip()]
    if len(parts) == 1 and parts[0] not in _NAMES and all(letter in _LETTERS for letter in parts[0]):
        return [_LETTERS[letter] for letter in parts[0]]
    for part in parts:
        if part not in _NAMES:
            known = ", ".join(theirs for _, theirs, _ in _SEQUENCE)
            raise PresetError(f"{origin}: {shown(part)} is not a sampler of llama.cpp; known: {known}")
    return [_NAMES[part] for part in parts]


def _step(name: str, asked_by: str, numbers: Mapping[str, int | float]) -> Sampler:
    params: dict[str, Any] = {}
    step = make_step(name, params, asked_by)
    for key, (sampler, parameter) in _PARAMETERS.items():
        if sampler == name and key in numbers:
            # One by one, so that a complaint names the key that it is about.
            params[parameter] = numbers[key]
            step = make_step(name, params, f"{PREFIX}{key}", parameter)
    return step


def _mirostat(name: str, numbers: Mapping[str, int | float]) -> Sampler:
    params: dict[str, Any] = {}
    step = make_step(name, params, f"{PREFIX}mirostat")
    for key, parameter in _MIROSTAT.items():
        if key in numbers:
            params[parameter] = numbers[key]
            step = make_step(name, params, f"{PREFIX}{key}", parameter)
    return step


def _written(step: Sampler) -> dict[str, Any]:
    return {step.about.name: step.model_dump(exclude_unset=True)}


def _description(steps: Iterable[Sampler], numbers: Mapping[str, int | float]) -> str:
    """Say it, if keys have no effect in llama.cpp and so none here."""
    about = [step.about for step in steps]
    names, families = {each.name for each in about}, {each.family for each in about}
    idle = [key for key, (name, _) in _PARAMETERS.items() if key in numbers and name not in names]
    idle += [key for key in _MIROSTAT if key in numbers and "mirostat" not in families]
    ignored = f"; without effect there, as in llama.cpp: {', '.join(idle)}" if idle else ""
    return f"what the model's author recommends{ignored}"
