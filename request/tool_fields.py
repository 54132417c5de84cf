"""The chain of a request whose client was written for one tool: the fields mean what they mean to that tool.

The tool shows in SillyTavern's ``api_type``, in the route, or in fields that only its clients send. Other requests
are read as `read_chain_changes` does, which is llama-server's meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..presets.errors import PresetError
from ..presets.foreign.kobold import KOBOLDCPP_ORDER
from ..presets.foreign.requests import KOBOLDCPP, REQUEST_TOOLS, WEBUI, RequestTool, chain_of_request
from ..samplers.chain import StepSpec
from .sampler_fields import (
    CHAIN_FIELDS,
    HIGH_FIELDS,
    LOW_FIELDS,
    MIROSTAT_FIELDS,
    SamplerFields,
    check_parameters,
    field_names,
    first_given,
    is_effective,
)

# The fields that say the range of a dynamic temperature, each tool in its own way. Clients send several.
_RANGE_FIELDS = frozenset(("dynatemp_range", *LOW_FIELDS, *HIGH_FIELDS))


def find_tool(fields: SamplerFields) -> RequestTool | None:
    """Return the tool for whose API a request was written; None: the usual meaning counts."""
    if isinstance(fields.api_type, str):
        return next((tool for tool in REQUEST_TOOLS.values() if tool.api_type == fields.api_type), None)
    if fields.tool_of_route:
        return REQUEST_TOOLS.get(fields.tool_of_route)
    given = _given_fields(fields)
    found = [
        tool
        for tool in REQUEST_TOOLS.values()
        if given & {*tool.telltales} and given <= _vocabulary(tool) and _has_own_order(tool, fields)
    ]
    return found[0] if len(found) == 1 else None


def _given_fields(fields: SamplerFields) -> set[str]:
    return {name for name in CHAIN_FIELDS & fields.model_fields_set if getattr(fields, name) is not None}


def _vocabulary(tool: RequestTool) -> set[str]:
    """Return the names of a tool's own API."""
    return {name for key in tool.parameters_by_key for name in (key, *tool.spellings.get(key, ()))}


def _has_own_order(tool: RequestTool, fields: SamplerFields) -> bool:
    """Return whether the order, if there is one, is one of the tool's: names that it has, or all its numbers."""
    # Aphrodite has the field ``sampler_priority``, too, and people write a few numbers by hand.
    if tool is WEBUI and isinstance(fields.sampler_priority, list):
        return set(fields.sampler_priority) <= set(WEBUI.step_names)
    if tool is KOBOLDCPP and fields.sampler_order:
        return len(fields.sampler_order) == len(KOBOLDCPP_ORDER)
    return True


def read_tool_chain(
    tool: RequestTool, fields: SamplerFields, steps: Sequence[StepSpec], *, keeps_order: bool
) -> tuple[tuple[StepSpec, ...], list[str]]:
    """Return the chain that a request to a tool asks for, and the names of the fields without effect."""
    # ``steps``: the chain of a request without fields, which ends in a plain draw; ``keeps_order``: whether
    # somebody chose its order. Raises ``PresetError`` that begins with the name of the field, for a wrong value.
    check_parameters(fields)
    unused: list[str] = []
    values: dict[str, Any] = {}
    name_of_key: dict[str, str] = {}
    known_names: set[str] = set()
    for key in tool.parameters_by_key:
        names = _names_of_key(tool, key)
        known_names |= set(names)
        name, value = first_given(fields, names, unused)
        if value is not None:
            is_switch = isinstance(value, bool) and key in MIROSTAT_FIELDS  # true is version 1
            values[key], name_of_key[key] = int(value) if is_switch else value, name
    if not values:
        return tuple(steps), _effective(fields, _given_fields(fields))
    try:
        chain = chain_of_request(tool, values, steps, keeps_order=keeps_order)
    except PresetError as error:
        raise error.at(name_of_key.get(error.origin, error.origin), error.place) from None
    inactive = set(chain.inactive_keys)
    inactive |= set(tool.order_keys if chain.selects_by_mirostat else MIROSTAT_FIELDS)
    names_without_effect = {name for key, name in name_of_key.items() if key in inactive}
    names_without_effect |= _given_fields(fields) - known_names
    if any(name_of_key.get(key) in _RANGE_FIELDS for key in chain.used_keys):
        names_without_effect -= {*_RANGE_FIELDS, "dynamic_temperature"}  # which only some tools need beside it
    return chain.steps, [*unused, *_effective(fields, names_without_effect)]


def _names_of_key(tool: RequestTool, key: str) -> list[str]:
    """Return the fields that set a key, the tool's own names first."""
    same = next((names for names in (MIROSTAT_FIELDS, LOW_FIELDS, HIGH_FIELDS) if key in names), ())
    names = (key, *tool.spellings.get(key, ()), *field_names(tool.parameters_by_key[key]), *same)
    return list(dict.fromkeys(name for name in names if name in SamplerFields.model_fields))


def _effective(fields: SamplerFields, names: set[str]) -> list[str]:
    """Return those of the fields whose values would change a chain."""
    return [name for name in SamplerFields.model_fields if name in names and is_effective(fields, name)]
