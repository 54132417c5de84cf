"""The keys of a preset for bans, the loop guard, phases and guidance: validation, and the values of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.errors import wrong_value
from ..common.llama_cpp_limits import MAX_GUIDANCE_SCALE
from ..common.text import unknown_name
from ..grammars.bans import parse_bans
from ..grammars.errors import GrammarError
from ..samplers.building import parse_chain
from ..samplers.errors import SamplingError
from ..samplers.loop_guard import parse_loop_guard
from .errors import PresetError

# the keys of a phase, with their allowed values
_PHASE_VALUES = {
    "until": "a string of at least one character",
    "max_tokens": "an integer ≥ 0",
    "then": "a string",
    "adds_end": "true or false",
    "chain": "a list of steps, or a string such as 'temp0.8'",
}


def check_bans(value: object) -> list[Any]:
    """Return bans as a list, as a preset writes them. Raises ``PresetError`` that names the ban."""
    entries = [value] if isinstance(value, (str, Mapping)) else value
    try:
        parse_bans(value)
    except GrammarError as error:  # pydantic would not catch it, because it is no ``ValueError``
        raise PresetError.of(error) from None
    return entries if isinstance(entries, list) else []


def check_loop_guard(value: object) -> Any:
    """Return the loop guard as a preset writes it. Raises ``SamplingError`` that names the key."""
    if value is None or value is False:
        return None
    parse_loop_guard({} if value is True else value)
    return "stop" if value is True else value


# the keys of guidance, with their allowed values
_GUIDANCE_VALUES = {
    "scale": f"a number within ±{MAX_GUIDANCE_SCALE:g}",
    "negative_prompt": "a string",
    "model": "the path or name of a model",
}


def check_guidance(value: object) -> dict[str, Any] | None:
    """Return guidance as a preset writes it; None without any key. Raises ``PresetError`` that names the key."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        problem = wrong_value(value, f"a table with {', '.join(_GUIDANCE_VALUES)}")
        raise PresetError(problem, place=("guidance",))
    for key, item in value.items():
        if key not in _GUIDANCE_VALUES:
            raise PresetError(unknown_name("key", key, _GUIDANCE_VALUES), place=("guidance",))
        is_allowed = _is_guidance_scale(item) if key == "scale" else isinstance(item, str)
        if item is not None and not is_allowed:
            raise PresetError(wrong_value(item, _GUIDANCE_VALUES[key]), place=("guidance", key))
    given_items = {key: item for key, item in value.items() if item is not None}
    return given_items or None


def _is_guidance_scale(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= MAX_GUIDANCE_SCALE


def check_phases(value: object) -> list[dict[str, Any]] | None:
    """Return phases as a preset writes them; None if there are none."""
    # Raises ``PresetError`` or ``SamplingError`` that names the phase.
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise PresetError(wrong_value(value, "a list of tables"), place=("phases",))
    for number, phase in enumerate(value):
        try:
            _check_phase(phase, is_last=number == len(value) - 1)
        except (PresetError, SamplingError) as error:
            raise error.under("phases", number) from None
    return [dict(phase) for phase in value]


def _check_phase(phase: object, *, is_last: bool) -> None:
    if not isinstance(phase, Mapping):
        raise PresetError(wrong_value(phase, "a table"))
    for key, value in phase.items():
        if key not in _PHASE_VALUES:
            raise PresetError(unknown_name("key", key, _PHASE_VALUES))
        if is_last and key != "chain":
            problem = f"the last phase ends with the text; only earlier phases have {key}"
            raise PresetError(problem, place=(key,))
        if not _is_allowed_in_phase(key, value):
            raise PresetError(wrong_value(value, _PHASE_VALUES[key]), place=(key,))
    if "chain" in phase:
        parse_chain(phase["chain"])


def _is_allowed_in_phase(key: str, value: object) -> bool:
    match key:
        case "until":
            return isinstance(value, str) and value != ""
        case "max_tokens":
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case "then":
            return isinstance(value, str)
        case "adds_end":
            return isinstance(value, bool)
        case _:
            return isinstance(value, (list, str))


def last_chain(phases: Sequence[Mapping[str, Any]] | None) -> Any:
    """Return the chain of the last phase as a preset writes it; None if it has none."""
    return phases[-1].get("chain") if phases else None


def ends_thinking(loop_guard: object) -> bool:
    """Return whether a checked loop guard ends the phase of the reasoning."""
    action = loop_guard.get("action") if isinstance(loop_guard, Mapping) else loop_guard
    return action == "end-thinking"
