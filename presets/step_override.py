"""The steps of a chain with the origin of each parameter, and how an override changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..samplers import Sampler, Stage
from .errors import PresetError
from .messages import make_step, shown
from .override import Override, StepTarget, step_target


@dataclass(frozen=True)
class ResolvedStep:
    """A step of the chain: its sampler, and where each parameter and the step itself came from."""

    sampler: Sampler
    origins: Mapping[str, str] = field(default_factory=dict)
    origin: str = "default"
    place: str = ""
    """Where the step was written, as ``mine.yaml: chain[2].top_p``; empty if a flag put it in."""

    @property
    def off(self) -> bool:
        """True if its parameters switch it off; the chain then drops it."""
        return self.sampler.is_neutral

    @property
    def name(self) -> str:
        """The sampler's name."""
        return self.sampler.about.name

    def placed(self) -> Sampler:
        """The sampler, so that a complaint of the chain it becomes part of says where its parameters came from."""
        own = ("default", self.origin) if self.place else ("default",)
        given = {parameter: origin for parameter, origin in self.origins.items() if origin not in own}
        return self.sampler.written_at({"": self.place or f"{self.origin}: {self.name}", **given})


def resolved(sampler: Sampler, origin: str, place: str = "") -> ResolvedStep:
    """Return a step whose given parameters came from ``origin``, and the others from the defaults."""
    given = sampler.model_fields_set
    origins = {name: origin if name in given else "default" for name in type(sampler).model_fields}
    return ResolvedStep(sampler, origins, origin, place)


def override_step(steps: Sequence[ResolvedStep], override: Override) -> list[ResolvedStep]:
    """Return the steps with one parameter changed; a sampler that is missing is put in at its place.

    The last step selects. Raises ``PresetError``, with the override's origin in front, for an unknown sampler
    or parameter, a value that is not allowed, a sampler that stands several times, and one that a greedy
    chain would ignore.
    """
    origin = override.origin
    steps, target = _one_temperature(steps, _one_mirostat(steps, step_target(override.target, origin)))
    position = _position(steps, target, origin)
    if target.parameter is None:
        return _switch(steps, target, position, override)
    if position is None:
        sampler = make_step(target.name, {target.parameter: override.value}, origin, target.parameter)
        _check_used(steps, sampler, origin)
        return _insert(steps, resolved(sampler, origin), origin)
    old = steps[position]
    value, came_from = _merged(old, target.parameter, override)
    given = {name: getattr(old.sampler, name) for name in old.sampler.model_fields_set}
    sampler = make_step(target.name, {**given, target.parameter: value}, origin, target.parameter)
    _check_used(steps, sampler, origin)
    new = replace(old, sampler=sampler, origins={**old.origins, target.parameter: came_from})
    return [*steps[:position], new, *steps[position + 1 :]]


def _one_temperature(
    steps: Sequence[ResolvedStep], target: StepTarget
) -> tuple[Sequence[ResolvedStep], StepTarget]:
    """As in llama.cpp, temperature and dynatemp are one step: what is set for one finds the other."""
    there = [number for number, step in enumerate(steps) if step.sampler.about.family == "temperature"]
    if len(there) != 1 or steps[there[0]].name == target.name:
        return steps, target
    (position,) = there
    if target.name == "temperature":
        return steps, replace(target, name="dynatemp", parameter="temperature")
    if target.name == "dynatemp":
        fixed = steps[position]
        sampler = make_step("dynatemp", {"temperature": getattr(fixed.sampler, "t", None)}, fixed.origin)
        origins = {**dict.fromkeys(type(sampler).model_fields, "default"), "temperature": fixed.origins["t"]}
        return [
            *steps[:position],
            replace(fixed, sampler=sampler, origins=origins),
            *steps[position + 1 :],
        ], target
    return steps, target


def _one_mirostat(steps: Sequence[ResolvedStep], target: StepTarget) -> StepTarget:
    """What is set for mirostat, as llama.cpp's flags do, finds the second version too."""
    second = steps[-1].name == "mirostat_v2" and target.name == "mirostat"
    return replace(target, name="mirostat_v2") if second else target


def _position(steps: Sequence[ResolvedStep], target: StepTarget, origin: str) -> int | None:
    """Where the step that is meant stands; None if the chain has none of that name."""
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


def _switch(
    steps: Sequence[ResolvedStep], target: StepTarget, position: int | None, override: Override
) -> list[ResolvedStep]:
    """Put a step without parameters in, or take it out; None puts it in, as ``name:`` in a preset does."""
    wanted = True if override.value is None else override.value
    if not isinstance(wanted, bool):
        raise PresetError(f"{override.origin}: {shown(override.value)} is not true or false")
    if wanted == (position is not None):
        return list(steps)
    if position is None:
        step = ResolvedStep(make_step(target.name, {}, override.origin), {}, override.origin)
        return _insert(steps, step, override.origin)
    if steps[position].sampler.about.selects:
        raise PresetError(
            f"{override.origin}: {target.name} selects the token; choose another preset or give a --chain"
        )
    return [*steps[:position], *steps[position + 1 :]]


def _insert(steps: Sequence[ResolvedStep], new: ResolvedStep, origin: str) -> list[ResolvedStep]:
    """Put a step before the first one of a later stage, or else before the one that selects."""
    about = new.sampler.about
    if about.selects:
        raise PresetError(another_chain(origin, new.name, steps))
    position = len(steps) - 1
    if about.stage is not None:
        is_first = about.stage <= Stage.IGNORE_EOS  # in front of steps without a stage, too
        later = (number for number, step in enumerate(steps) if _is_later(step, about.stage))
        position = 0 if is_first else next(later, position)
    return [*steps[:position], new, *steps[position:]]


def _is_later(step: ResolvedStep, stage: int) -> bool:
    """True if the step belongs behind this stage."""
    return step.sampler.about.stage is not None and step.sampler.about.stage > stage


def another_chain(origin: str, name: str, steps: Sequence[ResolvedStep]) -> str:
    """The complaint about a selecting step that is not the one in which the chain ends."""
    return (
        f"{origin}: the chain selects by {steps[-1].name}, not by {name}; "
        f"choose another preset or give a --chain that ends in {name}"
    )


def _check_used(steps: Sequence[ResolvedStep], sampler: Sampler, origin: str) -> None:
    """Refuse what a greedy chain would ignore, unless it is off or asks for the most likely token itself."""
    name = sampler.about.name
    if steps[-1].name != "greedy" or not sampler.about.keeps_likeliest or sampler.is_neutral:
        return
    if name == "temperature" and getattr(sampler, "t", None) == 0:
        return
    raise PresetError(
        f"{origin}: the chain ends in greedy, which ignores {name}; choose another preset or give a --chain"
    )


def _merged(old: ResolvedStep, parameter: str, override: Override) -> tuple[Any, str]:
    """The value and its origin; a table of biases adds to the one that is there."""
    before = getattr(old.sampler, parameter, None)
    if (old.name, parameter) != ("logit_bias", "bias") or not before or not isinstance(override.value, Mapping):
        return override.value, override.origin
    origins = dict.fromkeys([*old.origins[parameter].split(", "), override.origin])
    return {**before, **override.value}, ", ".join(origins)
