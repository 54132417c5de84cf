"""The chain that another tool would run for the body of a request.

Keys that the request lacks have the values of a given chain. The order of the steps, the windows of the penalties
and the values that turn a step off are read as an import of the tool's presets reads them. A request to llama.cpp
needs none of this, because the server's own meaning is that of llama.cpp.
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
        """For each key, the parameters that have its name, as ``sampler.parameter``."""
        parameters: dict[str, set[str]] = {name: set() for name in self.other_keys}
        for entry in self.sampler_keys.values():
            if find_sampler(entry.sampler).about.is_bias:
                continue
            if entry.switch_key:
                parameters.setdefault(entry.switch_key, set())
            for parameter, key in entry.key_by_parameter.items():
                parameters_of_key = parameters.setdefault(key.name, set())
                row = find_parameter(f"{entry.sampler}.{parameter}")
                if row is not None and key.name in row.names:
                    parameters_of_key.add(row.target)
        return parameters


WEBUI = RequestTool(
    name="webui",
    api_type="ooba",
    sampler_keys=webui.SAMPLER_KEYS,
    other_keys=webui.CHAIN_KEYS,
    order_keys=webui.ORDER_KEYS,
    spellings={},
    telltales=(
        *("sampler_priority", "repetition_penalty_range", "dynamic_temperature", "epsilon_cutoff"),
        *("eta_cutoff", "encoder_repetition_penalty"),
    ),
    convert=webui.convert,
    values_of_chain=webui.request_values,
    step_names=webui.UNSORTED_SLOTS,
)
KOBOLDCPP = RequestTool(
    name="koboldcpp",
    api_type="koboldcpp",
    sampler_keys=kobold.KOBOLDCPP_SAMPLER_KEYS,
    other_keys=("sampler_order",),
    order_keys=("sampler_order",),
    spellings=kobold.KEY_SPELLINGS,
    telltales=("rep_pen", "rep_pen_range", "rep_pen_slope", "sampler_order"),
    convert=kobold.convert_koboldcpp,
    values_of_chain=kobold.koboldcpp_values,
)
TABBYAPI = RequestTool(
    name="tabbyapi",
    api_type="tabby",
    sampler_keys={**tabbyapi.SAMPLER_KEYS, "top_n_sigma": tabbyapi.YALS_SIGMA_KEYS},
    other_keys=("temperature_last",),
    order_keys=("temperature_last",),
    spellings=tabbyapi.KEY_SPELLINGS,
    telltales=("penalty_range", "dry_range", "repetition_decay", "allowed_tokens"),
    convert=tabbyapi.convert,
    values_of_chain=tabbyapi.chain_values,
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
    # ends in a plain draw. ``keeps_order``: whether the steps keep the order of this chain, because somebody chose
    # it. If not, or if the request has an order of its own, the tool arranges the steps.
    known, others = _steps_of_tool(tool, steps)
    exporter = PresetExporter(tool.name, [step.sampler for step in known if not step.is_off], {})
    values_of_chain = tool.values_of_chain(exporter)
    default_keys = tool.parameters_by_key.keys() - set(tool.order_keys)
    defaults = {key: value for key, value in values_of_chain.items() if key in default_keys}
    builder = tool.convert({**defaults, **values}, "")
    new_steps = [_step(step, values, known) for step in builder.steps]
    used_keys = frozenset(key for step in builder.steps for key in step.keys)
    has_order = any(key in values for key in tool.order_keys)
    if keeps_order and not has_order:
        new_steps = _in_former_order(new_steps, known)
    all_keys = frozenset(key for step in builder.step_by_slot.values() for key in step.keys)
    return RequestedChain(tuple(_merge(new_steps, others, steps)), used_keys, all_keys - used_keys)


def _steps_of_tool(tool: RequestTool, steps: Sequence[StepSpec]) -> tuple[list[StepSpec], list[StepSpec]]:
    """Return the steps that the tool has keys for, and the others. A tool has each step once."""
    known: list[StepSpec] = []
    others: list[StepSpec] = []
    for step in steps:
        about = step.sampler.about
        has_temperature_range = step.name == "dynatemp" and "dynatemp_low" in tool.parameters_by_key
        has_keys = step.name in tool.sampler_keys or has_temperature_range
        is_first = all(step.name != earlier.name for earlier in known)
        if has_keys and is_first and not about.is_bias and not about.is_selector:
            known.append(step)
        else:
            others.append(step)
    return known, others


def _step(step: ForeignStep, values: Mapping[str, Any], known: Sequence[StepSpec]) -> StepSpec:
    """Return a step of the tool's chain; the one of the former chain if the request does not set it."""
    given_keys = [key for key in step.keys if key in values]
    former = next((earlier for earlier in known if earlier.name == step.name), None)
    if former is not None and not given_keys:
        return former
    params = dict(step.params)
    if former is not None:  # its other parameters are kept, because the tool has no keys for them
        former_params = {name: getattr(former.sampler, name) for name in former.sampler.model_fields_set}
        params = former_params | params
    origin = given_keys[0] if given_keys else "default"
    return StepSpec.from_origin(make_step(step.name, params, origin), origin)


def _in_former_order(steps: Sequence[StepSpec], former_steps: Sequence[StepSpec]) -> list[StepSpec]:
    """Return the steps with those of the former chain in its order. The others keep their places."""
    former_order = [_family_or_name(step) for step in former_steps]
    places = [place for place, step in enumerate(steps) if _family_or_name(step) in former_order]
    sorted_steps = sorted(
        (steps[place] for place in places), key=lambda step: former_order.index(_family_or_name(step))
    )
    ordered_steps = list(steps)
    for place, step in zip(places, sorted_steps, strict=True):
        ordered_steps[place] = step
    return ordered_steps


def _family_or_name(step: StepSpec) -> str:
    """Return the family of a step's sampler, such as that of both temperatures, or else its name."""
    return step.sampler.about.family or step.name


def _merge(
    new_steps: Sequence[StepSpec], others: Sequence[StepSpec], former_steps: Sequence[StepSpec]
) -> list[StepSpec]:
    """Return the new steps, and the steps that the tool does not have, each after its former predecessors."""
    biases = [step for step in others if step.sampler.about.is_bias]
    watermarks = [step for step in others if step.name == WATERMARK]
    *steps_before_selector, selector = new_steps
    merged = [*biases, *steps_before_selector]
    for step in others:
        if step in biases or step in watermarks or step.sampler.about.is_selector:
            continue
        former_index = former_steps.index(step)
        names_before = {former.name for former in former_steps[:former_index]}
        last_place = len(biases) - 1
        for place, candidate in enumerate(merged):
            if candidate.name in names_before:
                last_place = max(last_place, place)
        merged.insert(last_place + 1, step)
    is_plain_draw = selector.name == former_steps[-1].name
    if is_plain_draw:  # only then a watermark stays
        return [*merged, *watermarks, former_steps[-1]]
    return [*merged, selector]
