"""How one override changes the steps of a chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..common.text import shorten
from ..samplers.base import Sampler, Stage
from ..samplers.chain import StepSpec
from ..samplers.registry import find_sampler
from .errors import PresetError
from .messages import make_step
from .override import Override, StepTarget, step_target

Steps = Sequence[StepSpec]

_SELECTING_FLAGS = {
    "--mirostat-lr": "--mirostat 2",
    "--mirostat-ent": "--mirostat 2",
    "--adaptive-decay": "--adaptive-target N",
}
"""By the flag of a selector's parameter, the flag that lets the selector select."""


def override_step(steps: Steps, override: Override) -> list[StepSpec]:
    """Return the steps with one parameter changed; a missing sampler is put in at its stage.

    The last step selects. Raises ``PresetError``, prefixed with the origin, if

    - the sampler or the parameter is unknown,
    - the value is not allowed,
    - the sampler occurs several times,
    - the chain ends in a step such as greedy, which would ignore the sampler.
    """
    origin = override.origin
    target = _redirect(steps, step_target(override.target, origin))
    steps = _convert(steps, target)
    position = _find_position(steps, target, origin)
    if target.parameter is None:
        return _switch(steps, target, position, override)
    if position is None:
        sampler = make_step(target.name, {target.parameter: override.value}, origin, target.parameter)
        _check_used(steps, sampler, origin)
        return _insert(steps, StepSpec.from_origin(sampler, origin), origin)
    changed = _change(steps[position], target.parameter, override)
    _check_used(steps, changed.sampler, origin)
    return [*steps[:position], changed, *steps[position + 1 :]]


def _redirect(steps: Steps, target: StepTarget) -> StepTarget:
    """Return the target in the chain's step that stands for the target's sampler, or else the target itself.

    As in llama.cpp, temperature and dynatemp are one step, and its mirostat flags set either version.
    """
    family = _of_family(steps, target)
    if len(family) != 1:
        return target
    about = family[0].sampler.about
    if target.name not in about.stands_for:
        return target
    parameter = target.parameter and about.stands_for[target.name].get(target.parameter, target.parameter)
    return replace(target, name=about.name, parameter=parameter)


def _convert(steps: Steps, target: StepTarget) -> Steps:
    """Turn the chain's only step of the target's family into the target, if the target stands for it."""
    family = _of_family(steps, target)
    about = find_sampler(target.name).about
    if about.selects or len(family) != 1 or family[0].name not in about.stands_for:
        return steps
    (former,) = family
    names = about.stands_for[former.name]
    parameters = {name: names.get(name, name) for name in type(former.sampler).model_fields}
    values = {new: getattr(former.sampler, old) for old, new in parameters.items()}
    sampler = make_step(target.name, values, former.origin)
    origins = dict.fromkeys(type(sampler).model_fields, "default")
    origins.update({new: former.origins[old] for old, new in parameters.items()})
    converted = replace(former, sampler=sampler, origins=origins)
    return [converted if step is former else step for step in steps]


def _of_family(steps: Steps, target: StepTarget) -> list[StepSpec]:
    """Return the steps of the target's family; none if it has no family."""
    family = find_sampler(target.name).about.family
    return [step for step in steps if family and step.sampler.about.family == family]


def _find_position(steps: Steps, target: StepTarget, origin: str) -> int | None:
    """Return the position of the target's step; None if the chain has none of that name."""
    positions = [number for number, step in enumerate(steps) if step.name == target.name]
    if target.occurrence is not None:
        if target.occurrence > len(positions):
            raise PresetError(
                f"{origin}: there is no {target.name}#{target.occurrence}; "
                f"{target.name} stands {_times(len(positions))} in the chain"
            )
        return positions[target.occurrence - 1]
    if len(positions) > 1:
        first = replace(target, occurrence=1)
        raise PresetError(
            f"{origin}: {target.name} stands {_times(len(positions))} in the chain; "
            f"say which one, as in --set {first}=VALUE"
        )
    return positions[0] if positions else None


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _switch(steps: Steps, target: StepTarget, position: int | None, override: Override) -> list[StepSpec]:
    """Put in a step without parameters, or take it out.

    Args:
        steps: the chain.
        target: the sampler.
        position: where the chain has it; None: it has not.
        override: true or false; None means true, as ``name:`` in a preset does.
    """
    is_on = True if override.value is None else override.value
    if not isinstance(is_on, bool):
        raise PresetError(f"{override.origin}: {shorten(override.value)} is not true or false")
    if is_on == (position is not None):
        return list(steps)
    if position is None:
        step = StepSpec(make_step(target.name, {}, override.origin), {}, override.origin)
        return _insert(steps, step, override.origin)
    if steps[position].sampler.about.selects:
        raise PresetError(
            f"{override.origin}: {target.name} selects the token; choose another preset or give a --chain"
        )
    return [*steps[:position], *steps[position + 1 :]]


def _insert(steps: Steps, new: StepSpec, origin: str) -> list[StepSpec]:
    """Put a step before the first one of a later stage, or else before the one that selects."""
    about = new.sampler.about
    if about.selects:
        raise PresetError(other_selector_message(origin, new.name, steps))
    position = len(steps) - 1
    if about.stage is not None:
        is_first = about.stage <= Stage.IGNORE_EOS  # in front of steps without a stage, too
        later = (number for number, step in enumerate(steps) if _is_later(step, about.stage))
        position = 0 if is_first else next(later, position)
    return [*steps[:position], new, *steps[position:]]


def _is_later(step: StepSpec, stage: int) -> bool:
    """True if the step belongs behind this stage."""
    return step.sampler.about.stage is not None and step.sampler.about.stage > stage


def other_selector_message(origin: str, name: str, steps: Steps) -> str:
    """Return the message about a selecting step that is not the one at the end of the chain."""
    flag = _SELECTING_FLAGS.get(origin)
    advice = f"add {flag}" if flag else f"choose another preset or give a --chain that ends in {name}"
    return f"{origin}: the chain selects by {steps[-1].name}, not by {name}; {advice}"


def _check_used(steps: Steps, sampler: Sampler, origin: str) -> None:
    """Refuse a step that greedy would ignore, unless it is off or asks for the most likely token itself."""
    name, last = sampler.about.name, steps[-1]
    if not last.sampler.about.takes_likeliest or not sampler.about.keeps_likeliest or sampler.is_neutral:
        return
    if name == "temperature" and getattr(sampler, "t", None) == 0:
        return
    raise PresetError(
        f"{origin}: the chain ends in {last.name}, which ignores {name}; choose another preset or give a --chain"
    )


def _change(step: StepSpec, parameter: str, override: Override) -> StepSpec:
    """Return the step with another value of one parameter; a table of biases is added to the present one."""
    value, origin = override.value, override.origin
    present = getattr(step.sampler, parameter, None)
    if parameter in step.sampler.about.merged and present and isinstance(value, Mapping):
        value = {**present, **value}
        origin = ", ".join(dict.fromkeys([*step.origins[parameter].split(", "), origin]))
    given: dict[str, Any] = {name: getattr(step.sampler, name) for name in step.sampler.model_fields_set}
    sampler = make_step(step.name, {**given, parameter: value}, override.origin, parameter)
    return replace(step, sampler=sampler, origins={**step.origins, parameter: origin})
