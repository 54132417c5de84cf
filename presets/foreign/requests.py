"""The chain that another tool would run for the body of a request, with the settings of a chain for absent keys.

The order of the steps, the windows of the penalties and the values that turn a step off are those of the imports
of the tool's presets. llama.cpp's meaning is the usual one here, and needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...samplers.chain import StepSpec
from ...samplers.registry import find_sampler
from ..overrides import WATERMARK
from ..parameter_names import find_parameter
from ..preset import make_step
from . import kobold, tabbyapi, webui
from .conversion import ForeignStep, ImportedChainBuilder
from .exporter import PresetExporter
from .sampler_keys import SamplerKeys


@dataclass(frozen=True)
class RequestTool:
    """A tool whose clients send requests."""

    name: str  # name of the tool, one of `FORMATS`
    api_type: str  # SillyTavern's name of the tool
    sampler_keys: Mapping[str, SamplerKeys]
    other_keys: tuple[str, ...]  # the keys of the chain that belong to no sampler
    order_keys: tuple[str, ...]  # those keys that say the order of the steps
    spellings: Mapping[str, tuple[str, ...]]  # other names that the tool has for a key
    telltales: tuple[str, ...]  # the keys that no other tool has
    # returns the builder of the chain for values by key
    convert: Callable[[Mapping[Any, Any], str], ImportedChainBuilder]
    values_of_chain: Callable[[PresetExporter], dict[str, Any]]  # returns the values by key of a chain
    step_names: tuple[str, ...] = ()  # the names of steps in a list of the order; empty if it has numbers

    @cached_property
    def parameters_by_key(self) -> Mapping[str, set[str]]:
        """The parameters that each key has the name of, as ``sampler.parameter``."""
        found: dict[str, set[str]] = {name: set() for name in self.other_keys}
        for entry in self.sampler_keys.values():
            if find_sampler(entry.sampler).about.is_bias:
                continue
            if entry.switch_key:
                found.setdefault(entry.switch_key, set())
            for parameter, key in entry.key_by_parameter.items():
                row = find_parameter(f"{entry.sampler}.{parameter}")
                found.setdefault(key.name, set()).update({row.target} if row and key.name in row.names else ())
        return found


WEBUI = RequestTool(
    "webui",
    "ooba",
    webui.SAMPLER_KEYS,
    webui.CHAIN_KEYS,
    webui.ORDER_KEYS,
    {},
    (
        *("sampler_priority", "repetition_penalty_range", "dynamic_temperature", "epsilon_cutoff"),
        *("eta_cutoff", "encoder_repetition_penalty"),
    ),
    webui.convert,
    webui.request_values,
    step_names=webui.UNSORTED_SLOTS,
)
KOBOLDCPP = RequestTool(
    "koboldcpp",
    "koboldcpp",
    kobold.KOBOLDCPP_SAMPLER_KEYS,
    ("sampler_order",),
    ("sampler_order",),
    kobold.KEY_SPELLINGS,
    ("rep_pen", "rep_pen_range", "rep_pen_slope", "sampler_order"),
    kobold.convert_koboldcpp,
    kobold.koboldcpp_values,
)
TABBYAPI = RequestTool(
    "tabbyapi",
    "tabby",
    {**tabbyapi.SAMPLER_KEYS, "top_n_sigma": tabbyapi.YALS_SIGMA_KEYS},
    ("temperature_last",),
    ("temperature_last",),
    tabbyapi.KEY_SPELLINGS,
    ("penalty_range", "dry_range", "repetition_decay", "allowed_tokens"),
    tabbyapi.convert,
    tabbyapi.chain_values,
)
REQUEST_TOOLS = {tool.name: tool for tool in (WEBUI, KOBOLDCPP, TABBYAPI)}


@dataclass(frozen=True)
class RequestedChain:
    """The chain of a request."""

    steps: tuple[StepSpec, ...]
    used_keys: frozenset[str]  # the keys that the steps were read from
    inactive_keys: frozenset[str]  # the keys of steps that the tool would not apply, such as those before mirostat

    @property
    def selects_by_mirostat(self) -> bool:
        """True if mirostat selects the token, which has its own order."""
        return self.steps[-1].sampler.about.family == "mirostat"


def chain_of_request(
    tool: RequestTool, values: Mapping[str, Any], steps: Sequence[StepSpec], *, keeps_order: bool
) -> RequestedChain:
    """Return the chain that a tool would run."""
    # ``values``: those of the request, by the tool's keys. ``steps``: the chain of a request without values, which
    # ends in a plain draw. ``keeps_order``: whether somebody chose its order, which the steps then keep unless the
    # request gives an order; otherwise the order is the tool's.
    known, others = _steps_of_tool(tool, steps)
    exporter = PresetExporter(tool.name, [step.sampler for step in known if not step.is_off], {})
    defaults = {
        key: value
        for key, value in tool.values_of_chain(exporter).items()
        if key in tool.parameters_by_key and key not in tool.order_keys
    }
    builder = tool.convert({**defaults, **values}, "")
    new_steps = [_step(step, values, known) for step in builder.steps]
    used_keys = frozenset(key for step in builder.steps for key in step.keys)
    if keeps_order and not any(key in values for key in tool.order_keys):
        new_steps = _in_former_order(new_steps, known)
    all_keys = frozenset(key for step in builder.step_by_slot.values() for key in step.keys)
    return RequestedChain(tuple(_merge(new_steps, others, steps)), used_keys, all_keys - used_keys)


def _steps_of_tool(tool: RequestTool, steps: Sequence[StepSpec]) -> tuple[list[StepSpec], list[StepSpec]]:
    """Return the steps that the tool has keys for, and the others. A tool has each step once."""
    known: list[StepSpec] = []
    others: list[StepSpec] = []
    for step in steps:
        about = step.sampler.about
        has_keys = step.name in tool.sampler_keys or (
            step.name == "dynatemp" and "dynatemp_low" in tool.parameters_by_key
        )
        is_first = all(step.name != earlier.name for earlier in known)
        is_known = has_keys and is_first and not about.is_bias and not about.is_selector
        (known if is_known else others).append(step)
    return known, others


def _step(step: ForeignStep, values: Mapping[str, Any], known: Sequence[StepSpec]) -> StepSpec:
    """Return a step of the tool's chain; the one of the former chain if the request does not set it."""
    given = [key for key in step.keys if key in values]
    former = next((earlier for earlier in known if earlier.name == step.name), None)
    if former is not None and not given:
        return former
    params = dict(step.params)
    if former is not None:  # parameters that the tool has no keys for
        kept = {name: getattr(former.sampler, name) for name in former.sampler.model_fields_set}
        params = kept | params
    origin = given[0] if given else "default"
    return StepSpec.from_origin(make_step(step.name, params, origin), origin)


def _in_former_order(steps: Sequence[StepSpec], former_steps: Sequence[StepSpec]) -> list[StepSpec]:
    """Return the steps with those of the former chain in its order. The others keep their places."""
    order = [_kind(step) for step in former_steps]
    places = [place for place, step in enumerate(steps) if _kind(step) in order]
    in_order = iter(sorted((steps[place] for place in places), key=lambda step: order.index(_kind(step))))
    return [next(in_order) if place in places else step for place, step in enumerate(steps)]


def _kind(step: StepSpec) -> str:
    """Return the family of a step's sampler, such as that of both temperatures, or else its name."""
    return step.sampler.about.family or step.name


def _merge(
    new_steps: Sequence[StepSpec], others: Sequence[StepSpec], former_steps: Sequence[StepSpec]
) -> list[StepSpec]:
    """Return the new steps with those that the tool does not have: each after the step that preceded it."""
    biases = [step for step in others if step.sampler.about.is_bias]
    merged, selector = [*biases, *new_steps[:-1]], new_steps[-1]
    for step in others:
        if step in biases or step.sampler.about.is_selector or step.name == WATERMARK:
            continue
        earlier_names = {former.name for former in former_steps[: former_steps.index(step)]}
        places = [place for place, candidate in enumerate(merged) if candidate.name in earlier_names]
        merged.insert(max([*places, len(biases) - 1]) + 1, step)
    if selector.name == former_steps[-1].name:  # a plain draw, the place of a watermark
        return [*merged, *(step for step in others if step.name == WATERMARK), former_steps[-1]]
    return [*merged, selector]
