"""A preset on its way into another tool's format: its steps, and what that format cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...common import shorten
from ...samplers import Sampler, make_sampler

_TEMPERATURE_ZERO = make_sampler({"temperature": {"t": 0.0}}, origin="")


@dataclass(frozen=True)
class Exported:
    """A preset in another tool's format."""

    text: str
    """The file, the command line or the JSON body."""
    reported: list[str]
    """A sentence for each thing that the format cannot say, which names it as our presets do."""


@dataclass(frozen=True)
class StepKeys:
    """How a format says a sampler: the key of each parameter, and the values of those that it has no key for.

    A parameter that is in neither has our default in that tool.
    """

    slot: str
    keys: Mapping[str, str]
    fixed: Mapping[str, Any] | None = None


class Outgoing:
    """What an export has to say, and what could not be said.

    ``steps`` are the steps that act, without the one that selects; ``selector`` is that one, a plain draw by
    default.
    """

    def __init__(self, tool: str, samplers: Sequence[Sampler], extras: Mapping[str, Any]) -> None:
        self.tool = tool
        acting = [sampler for sampler in samplers if sampler.about.selects or not sampler.is_neutral]
        self.steps = [sampler for sampler in acting if not sampler.about.selects]
        selectors = [sampler for sampler in acting if sampler.about.selects]
        self.selector = selectors[0] if selectors else None
        self.extras = dict(extras)
        self.reported: list[str] = []
        self.order: list[str] = []
        self.values: dict[str, Any] = {}
        self._end_at_temperature_zero()

    @property
    def selector_name(self) -> str:
        """The name of the step that selects."""
        if self.selector is None:
            return "dist"
        about = self.selector.about
        is_plain = about.name == "adaptive_p" and getattr(self.selector, "target", 0) < 0
        return "dist" if is_plain else about.name

    def _end_at_temperature_zero(self) -> None:
        """Say a temperature of 0 as a greedy end, which it is; not every tool takes a 0."""
        zero = next((n for n, step in enumerate(self.steps) if step == _TEMPERATURE_ZERO), None)
        if zero is not None and self.selector_name == "dist":
            self.steps, self.selector = self.steps[:zero], make_sampler({"greedy": {}}, origin="")

    def report(self, subject: str, reason: str) -> None:
        """Note what could not be said: a step or a parameter, and why."""
        self.reported.append(f"{subject}: {reason}")

    def say_steps(self, keys_by_sampler: Mapping[str, StepKeys]) -> None:
        """Put each step into `values` and its slot into `order`; report those that the format cannot say."""
        for sampler in self.steps:
            keys = keys_by_sampler.get(sampler.about.name)
            if keys is None:
                self.report(sampler.about.name, f"{self.tool} has no such step")
            elif keys.slot in self.order:
                self.report(sampler.about.name, f"{self.tool} has such a step once only; the first was kept")
            else:
                self.say(sampler, keys)
                self.order.append(keys.slot)

    def say(self, sampler: Sampler, keys: StepKeys) -> None:
        """Put the parameters of one step into `values`; report those that have another value there."""
        fixed = keys.fixed or {}
        for name, field in type(sampler).model_fields.items():
            value = getattr(sampler, name)
            there = fixed.get(name, field.get_default(call_default_factory=True))
            if name in keys.keys:
                self.values[keys.keys[name]] = value
            elif value != there:
                subject = f"{sampler.about.name}.{name} {shorten(value)}"
                self.report(subject, f"{self.tool} always has {shorten(there)} there")

    def report_order(self, order: Sequence[str]) -> None:
        """Report steps that stand in another order than the one that the tool always has."""
        there = sorted(self.order, key=order.index)
        if there != self.order:
            self.report("order", f"{self.tool} applies {', '.join(there)}, not {', '.join(self.order)}")

    def drop(self, slot: str, keys: Sequence[str], reason: str) -> None:
        """Take a step out again, and report it."""
        self.order.remove(slot)
        for key in keys:
            self.values.pop(key, None)
        self.report(slot, reason)

    def take_extras(self, keys: Mapping[str, str]) -> None:
        """Put the settings beside the chain into `values`, by the keys that the format has for them.

        A limit of no tokens is left out; what has no key is reported.
        """
        for name, value in self.extras.items():
            if name == "max_tokens" and value == -1:
                continue
            if name in keys:
                self.values[keys[name]] = value
            else:
                self.report(name, f"{self.tool}'s presets do not hold it")

    def exported(self, text: str) -> Exported:
        """Return the text with what was reported."""
        return Exported(text, list(dict.fromkeys(self.reported)))
