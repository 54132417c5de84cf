"""A preset on its way into another tool's format: its steps, and what that format cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...common.text import shorten
from ...samplers.base import Sampler
from ...samplers.building import make_sampler
from ..messages import make_step

ALL_TOKENS = 1_000_000
"""A window that stands for all tokens, for tools that have no number for it: longer than any context."""

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
    default. ``name`` and ``description`` are those of the preset.
    """

    def __init__(
        self,
        tool: str,
        samplers: Sequence[Sampler],
        extras: Mapping[str, Any],
        name: str = "",
        description: str = "",
    ) -> None:
        self.tool = tool
        self.name = name or "logitsmith"
        self.description = description
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

    def flatten_repetition_penalty(self, keeps_halves: bool = False) -> None:
        """Replace KoboldAI's repetition penalty by the flat one that all tools have, and report a slope.

        It joins ``penalties`` that follow it, with the same window and no repeat penalty of their own: that step
        applies its repeat penalty first. ``keeps_halves``: KoboldCpp's slope stays a step of its own.
        """
        steps: list[Sampler] = []
        for step in self.steps:
            last = steps[-1] if steps else None
            if step.about.name == "repetition_penalty" and not (keeps_halves and has_halves(step)):
                steps.append(self._flattened(step))
            elif step.about.name == "penalties" and _joins(last, step):
                joined = {**step.model_dump(exclude_unset=True), "repeat": getattr(last, "repeat", 1.0)}
                steps[-1] = make_step("penalties", joined, "penalties")
            else:
                steps.append(step)
        self.steps = steps

    def _flattened(self, step: Sampler) -> Sampler:
        """Return the flat penalty of a repetition penalty."""
        penalty, window, slope = (getattr(step, name) for name in ("penalty", "range", "slope"))
        if has_halves(step) or (slope and window > 1 and getattr(step, "shape", "") == "sigmoid"):
            reason = f"{self.tool} has no such slope; the whole range gets {penalty:g}"
            self.report(f"repetition_penalty.slope {slope:g}", reason)
        return make_step("penalties", {"repeat": penalty, "last_n": window or -1}, "repetition_penalty")

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

    def take_extras(self, keys: Mapping[str, str], unlimited: Any = None) -> None:
        """Put the settings beside the chain into `values`, by the keys that the format has for them.

        What has no key is reported. ``unlimited``: what the format says in place of a number of tokens if there is
        no limit; None: nothing.
        """
        for name, value in self.extras.items():
            if name not in keys:
                self.report(name, f"{self.tool}'s presets do not hold it")
            elif name != "max_tokens" or value != -1:
                self.values[keys[name]] = value
            elif unlimited is None:
                self.report("max_tokens -1", f"{self.tool} has no number for no limit")
            else:
                self.values[keys[name]] = unlimited

    def widen_window(self, key: str, subject: str) -> None:
        """Write a window of all tokens as a number, and report it: the tool has none for it."""
        if self.values.get(key) == -1:
            self.values[key] = ALL_TOKENS
            self.report(f"{subject} -1", f"{self.tool} has no number for all tokens; {ALL_TOKENS} was written")

    def finite_biases(self, bias: Mapping[int | str, float]) -> dict[int, float]:
        """Return the biases of token ids; those of texts, and bans, are reported."""
        taken: dict[int, float] = {}
        for token, number in bias.items():
            if isinstance(token, str) or number == float("-inf"):
                self.report(f"logit_bias.bias {token!r}", f"{self.tool} takes finite numbers by token id only")
            else:
                taken[token] = number
        return taken

    def grammar_text(self, grammar: Any) -> str | None:
        """Return the GBNF of a grammar; None if it is given otherwise, such as by the name of a file."""
        if isinstance(grammar, Mapping) and set(grammar) == {"gbnf"}:
            grammar = grammar["gbnf"]
        return grammar if isinstance(grammar, str) and "::=" in grammar else None

    def exported(self, text: str) -> Exported:
        """Return the text with what was reported."""
        return Exported(text, list(dict.fromkeys(self.reported)))


def has_halves(step: Sampler) -> bool:
    """True for a repetition penalty with KoboldCpp's slope, if the slope has an effect."""
    penalty, window, slope = (getattr(step, name, 0) for name in ("penalty", "range", "slope"))
    return getattr(step, "shape", "") == "halves" and penalty > 1 and window > 1 and 0 < slope < 1


def _joins(last: Sampler | None, step: Sampler) -> bool:
    """True if one step can apply both penalties: the repeat penalty of the first, and the others of the second."""
    if last is None or last.about.name != "penalties":
        return False
    is_repeat_alone = last.model_fields_set <= {"repeat", "last_n"}
    is_rest = getattr(step, "repeat", 0) == 1 and getattr(step, "penalize_newline", False)
    return is_repeat_alone and is_rest and getattr(step, "last_n", 0) == getattr(last, "last_n", 1)
