"""The keys of a preset for bans, the loop guard, phases and guidance: validation, and the values of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.llama_cpp_limits import MAX_GUIDANCE_SCALE
from ..common.text import short_repr, unknown_name
from ..grammars.bans import parse_bans
from ..grammars.errors import GrammarError
from ..samplers.building import parse_chain
from ..samplers.errors import SamplingError
from ..samplers.loop_guard import parse_loop_guard

_PHASE_KEYS = ("until", "max_tokens", "then", "adds_end", "chain")


def check_bans(value: object) -> list[Any]:
    """Return bans as a list, as a preset writes them. Raises ``ValueError`` that names the ban."""
    entries = [value] if isinstance(value, (str, Mapping)) else value
    try:
        parse_bans(entries)
    except GrammarError as error:
        raise ValueError(error.message) from None
    return entries if isinstance(entries, list) else []


def check_loop_guard(value: object) -> Any:
    """Return the loop guard as a preset writes it. Raises ``ValueError`` that names the key."""
    if value is None or value is False:
        return None
    try:
        parse_loop_guard({} if value is True else value)
    except SamplingError as error:
        raise ValueError(str(error)) from None
    return "stop" if value is True else value


# the keys of guidance, with their allowed values
_GUIDANCE_VALUES = {
    "scale": f"a number within ±{MAX_GUIDANCE_SCALE:g}",
    "negative_prompt": "a string",
    "model": "the path or name of a model",
}


def check_guidance(value: object) -> dict[str, Any] | None:
    """Return guidance as a preset writes it; None without any key. Raises ``ValueError`` that names the key."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(f"guidance: {short_repr(value)} is not a table with {', '.join(_GUIDANCE_VALUES)}")
    for key, item in value.items():
        if key not in _GUIDANCE_VALUES:
            raise ValueError(f"guidance: {unknown_name('key', key, _GUIDANCE_VALUES)}")
        is_number = (
            isinstance(item, (int, float)) and not isinstance(item, bool) and abs(item) <= MAX_GUIDANCE_SCALE
        )
        if item is not None and not (is_number if key == "scale" else isinstance(item, str)):
            raise ValueError(f"guidance.{key}: {short_repr(item)} is not {_GUIDANCE_VALUES[key]}")
    return {key: item for key, item in value.items() if item is not None} or None


def check_phases(value: object) -> list[dict[str, Any]] | None:
    """Return phases as a preset writes them; None if there are none."""
    # Raises ``ValueError`` that names the phase.
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise ValueError(f"phases: {short_repr(value)} is not a list of tables")
    for number, phase in enumerate(value):
        place = f"phases[{number}]"
        if not isinstance(phase, Mapping):
            raise ValueError(f"{place}: {short_repr(phase)} is not a table")
        _check_phase(phase, place, is_last=number == len(value) - 1)
    return [dict(phase) for phase in value]


def _check_phase(phase: Mapping[Any, Any], place: str, *, is_last: bool) -> None:
    for key, value in phase.items():
        if key not in _PHASE_KEYS:
            raise ValueError(f"{place}: {unknown_name('key', key, _PHASE_KEYS)}")
        if is_last and key != "chain":
            raise ValueError(f"{place}.{key}: the last phase ends with the text; only earlier phases have {key}")
        problem = _phase_problem(key, value)
        if problem:
            raise ValueError(f"{place}.{key}: {short_repr(value)} is not {problem}")
    if "chain" in phase:
        try:
            parse_chain(phase["chain"])
        except SamplingError as error:
            raise ValueError(f"{place}.{error}") from None


def _phase_problem(key: str, value: object) -> str:
    """Return the allowed values of a key that has another value; empty if the value is allowed."""
    match key:
        case "until":
            return "" if isinstance(value, str) and value else "a string of at least one character"
        case "max_tokens":
            is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            return "" if is_count else "an integer ≥ 0"
        case "then":
            return "" if isinstance(value, str) else "a string"
        case "adds_end":
            return "" if isinstance(value, bool) else "true or false"
        case _:
            return "" if isinstance(value, (list, str)) else "a list of steps, or a string such as 'temp0.8'"


def last_chain(phases: Sequence[Mapping[str, Any]] | None) -> Any:
    """Return the chain of the last phase as a preset writes it; None if it has none."""
    return phases[-1].get("chain") if phases else None


def ends_thinking(loop_guard: object) -> bool:
    """Return whether a checked loop guard ends the phase of the reasoning."""
    action = loop_guard.get("action") if isinstance(loop_guard, Mapping) else loop_guard
    return action == "end-thinking"
