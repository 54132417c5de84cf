"""The chain of a request whose client was written for one tool. Its fields mean what they mean to that tool.

SillyTavern's ``api_type`` names the tool. Other clients show it by the route, or by fields that only this tool
has. If the tool is unknown, the fields mean what they mean to llama-server, see `read_chain_changes`.
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

# The fields that set the range of a dynamic temperature. Each tool has other ones, and clients send several.
_RANGE_FIELDS = frozenset(("dynatemp_range", *LOW_FIELDS, *HIGH_FIELDS))


def find_tool(fields: SamplerFields) -> RequestTool | None:
    """Return the tool for whose API a request was written; None if it is unknown."""
    if isinstance(fields.api_type, str):
        return next((tool for tool in REQUEST_TOOLS.values() if tool.api_type == fields.api_type), None)
    if fields.tool_of_route:
        return REQUEST_TOOLS.get(fields.tool_of_route)
    possible_tools = [tool for tool in REQUEST_TOOLS.values() if _may_be_for(tool, fields)]
    return possible_tools[0] if len(possible_tools) == 1 else None


def _may_be_for(tool: RequestTool, fields: SamplerFields) -> bool:
    """Return whether a request has fields that only clients of the tool send, and no field that it lacks."""
    given_names = _given_fields(fields)
    has_telltale = not given_names.isdisjoint(tool.telltales)
    return has_telltale and given_names <= _names_in_api(tool) and _may_have_order(tool, fields)


def _given_fields(fields: SamplerFields) -> set[str]:
    """Return the names of the fields for the chain that a request has."""
    return {name for name in CHAIN_FIELDS & fields.model_fields_set if getattr(fields, name) is not None}


def _names_in_api(tool: RequestTool) -> set[str]:
    """Return the names that fields have in a tool's own API."""
    names = set(tool.parameters_by_key)
    for key in tool.parameters_by_key:
        names.update(tool.spellings.get(key, ()))
    return names


def _may_have_order(tool: RequestTool, fields: SamplerFields) -> bool:
    """Return whether the order of the samplers may have been written for a tool, if the request has an order."""
    # Aphrodite has the field ``sampler_priority``, too, with other names of samplers.
    if tool is WEBUI and isinstance(fields.sampler_priority, list):
        return set(fields.sampler_priority) <= set(WEBUI.step_names)
    # KoboldCpp's own client lists all samplers. A shorter list was written by hand.
    if tool is KOBOLDCPP and fields.sampler_order:
        return len(fields.sampler_order) == len(KOBOLDCPP_ORDER)
    return True


def read_tool_chain(
    tool: RequestTool, fields: SamplerFields, steps: Sequence[StepSpec], *, keeps_order: bool
) -> tuple[tuple[StepSpec, ...], list[str]]:
    """Return the chain that a request to a tool asks for, and the names of the fields without effect."""
    # ``steps``: the chain of a request without fields, which ends in a plain draw.
    # ``keeps_order``: whether the order of the steps was chosen by somebody, and stays.
    # Raises ``PresetError``, which begins with the name of the field, for a wrong value.
    check_parameters(fields)
    unused: list[str] = []
    values: dict[str, Any] = {}  # the value of each key of the tool
    name_of_key: dict[str, str] = {}  # the field that set the key
    known_names: set[str] = set()
    for key in tool.parameters_by_key:
        names = _names_of_key(tool, key)
        known_names.update(names)
        name, value = first_given(fields, names, unused)
        if value is None:
            continue
        if isinstance(value, bool) and key in MIROSTAT_FIELDS:
            value = int(value)  # true is version 1
        values[key] = value
        name_of_key[key] = name
    if not values:
        return tuple(steps), _effective(fields, _given_fields(fields))
    try:
        chain = chain_of_request(tool, values, steps, keeps_order=keeps_order)
    except PresetError as error:
        raise error.at(name_of_key.get(error.origin, error.origin), error.place) from None
    inactive_keys = set(chain.inactive_keys)
    inactive_keys.update(tool.order_keys if chain.selects_by_mirostat else MIROSTAT_FIELDS)
    names_without_effect = _given_fields(fields) - known_names
    names_without_effect |= {name for key, name in name_of_key.items() if key in inactive_keys}
    has_range = any(name_of_key.get(key) in _RANGE_FIELDS for key in chain.used_keys)
    if has_range:  # the client has sent the range in the form of other tools, too
        names_without_effect -= {*_RANGE_FIELDS, "dynamic_temperature"}
    return chain.steps, [*unused, *_effective(fields, names_without_effect)]


# fields that have a second name in requests
_SYNONYMS = (MIROSTAT_FIELDS, LOW_FIELDS, HIGH_FIELDS)


def _names_of_key(tool: RequestTool, key: str) -> list[str]:
    """Return the fields that set a key, the tool's own names first."""
    names = [key, *tool.spellings.get(key, ()), *field_names(tool.parameters_by_key[key])]
    for synonyms in _SYNONYMS:
        if key in synonyms:
            names += synonyms
    distinct_names = dict.fromkeys(names)
    return [name for name in distinct_names if name in SamplerFields.model_fields]


def _effective(fields: SamplerFields, names: set[str]) -> list[str]:
    """Return those of the fields whose values would change the chain of some tool."""
    return [name for name in SamplerFields.model_fields if name in names and is_effective(fields, name)]
