"""A chain while it is made from a foreign file: steps, what could not be carried over, and the reasons."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...common.text import shorten
from ...samplers.building import make_sampler
from ...samplers.errors import SamplingError
from ...samplers.mersenne_twister import SEED_MAX
from ...samplers.registry import find_sampler
from ..errors import PresetError
from .table import ForeignTable


@dataclass(frozen=True)
class ForeignStep:
    """A step of an imported chain; ``keys`` are the foreign keys that made it, as the file spells them."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    comment: str = ""
    is_given: bool = True
    """False if the step comes from the tool's defaults only."""

    @property
    def selects(self) -> bool:
        """True if the step picks the token."""
        return find_sampler(self.name).about.selects


class Draft:
    """What the rules of a format make of a file.

    A step is put into a slot, named as the tool names the step in its orders; `take_chain` then takes the slots in
    the order in which the tool applies them.
    """

    def __init__(self, tool: str, table: ForeignTable) -> None:
        self.tool = tool
        self.defaults_of = tool
        """Whose defaults stand in for what the file does not say."""
        self.table = table
        self.slots: dict[str, ForeignStep] = {}
        self.steps: list[ForeignStep] = []
        self.extras: dict[str, Any] = {}
        self.reported: list[str] = []
        self.changed: list[str] = []
        """Those of ``reported`` whose setting is carried over with a change."""
        self.notes: list[str] = []
        self.description = ""

    def report(self, key: str, effect: str) -> None:
        """Note that a key of the file could not be carried over: ``KEY VALUE: EFFECT``."""
        spelled = self.table.spelled(key)
        self.reported.append(f"{spelled} {shorten(self.table.values.get(spelled))}: {effect}")

    def report_changed(self, key: str, change: str) -> None:
        """Note that a key of the file is carried over with a change: ``KEY VALUE: CHANGE``."""
        self.report(key, change)
        self.changed.append(self.reported[-1])

    def put(self, slot: str, name: str, params: Mapping[str, Any], keys: Sequence[str], comment: str = "") -> None:
        """Put a step into a slot; one that its parameters switch off makes no step.

        Args:
            slot: the slot, by the tool's name for the step.
            name: the sampler.
            params: its parameters.
            keys: the table's keys that the step was made from, the main one first.
            comment: a comment for the YAML preset.

        Raises ``PresetError`` that names the main key, for parameters that the sampler refuses.
        """
        table = self.table
        try:
            sampler = make_sampler({name: dict(params)}, origin="")
        except SamplingError as error:
            raise PresetError(f"{table.origin_of(keys[0])}: {str(error).lstrip('.')}") from None
        if sampler.is_neutral:
            return
        if name == "penalties":  # one step for three penalties; those that are off need not be said
            neutral = sampler.about.neutral
            params = {key: value for key, value in params.items() if neutral.get(key) != value}
        defaults = [f"{key} {table.default_of(key)}" for key in keys if table.default_of(key) is not None]
        if defaults:
            comment = f"{comment + '; ' if comment else ''}{self.defaults_of}'s default: {', '.join(defaults)}"
        spelled = tuple(table.spelled(key) for key in keys if table.is_given(key))
        self.slots[slot] = ForeignStep(name, dict(params), spelled, comment, bool(spelled))

    def put_greedy(self, slot: str, key: str, comment: str) -> None:
        """Put a step that takes the most likely token into a slot."""
        self.put(slot, "greedy", {}, [key], comment)

    def put_logit_bias(self) -> None:
        """Put the biases of ``logit_bias``, a table of token ids and numbers, into the slot of that name."""
        bias = self.table.raw("logit_bias") or {}
        if not isinstance(bias, dict) or not all(str(key).isdecimal() for key in bias):
            raise self.table.fault("logit_bias", "a table of token ids and numbers")
        inner = ForeignTable(bias, f"{self.table.origin}: logit_bias")
        params = {"bias": {int(key): inner.number(key, 0.0) for key in inner.values}}
        self.put("logit_bias", "logit_bias", params, ["logit_bias"])

    def arranged(self, order: Iterable[str]) -> list[ForeignStep]:
        """The steps of these slots, in this order."""
        return [self.slots[slot] for slot in order if slot in self.slots]

    def take_chain(self, steps: Sequence[ForeignStep]) -> None:
        """Take the steps as the chain: up to the one that selects, or else with a plain draw at the end.

        Given steps behind the one that selects have no effect in the tool, and are reported.
        """
        end = next((number for number, step in enumerate(steps) if step.selects), None)
        if end is None:
            self.steps = [*steps, ForeignStep("dist")]
            return
        self.steps = list(steps[: end + 1])
        reason = f"{steps[end].name} selects the token before it"
        self.report_idle(steps[end + 1 :], reason)

    def report_idle(self, steps: Iterable[ForeignStep], reason: str) -> None:
        """Report the steps that have no effect in the tool; those of its defaults are left out quietly."""
        for step in steps:
            if step.is_given:
                values = ", ".join(f"{key} {shorten(self.table.values.get(key))}" for key in step.keys)
                self.reported.append(f"{values}: no effect in {self.tool}, since {reason}")

    def take_max_tokens(self, key: str, unlimited: Container[int] = ()) -> None:
        """Carry over a number of tokens; those of ``unlimited`` as -1, no limit. Others below 1 are left out."""
        limit = self.table.whole_number(key)
        if limit is not None and (limit > 0 or limit in unlimited):
            self.extras["max_tokens"] = limit if limit > 0 else -1

    def take_seed(self, key: str, least: int = 0) -> None:
        """Carry over a seed; one below ``least``, and llama.cpp's 2^32 - 1, means a random one."""
        seed = self.table.whole_number(key)
        if seed is None or seed < least or seed == SEED_MAX:
            return
        if seed > SEED_MAX:
            self.report(key, f"a seed is a whole number within 0..{SEED_MAX} here")
        else:
            self.extras["seed"] = seed

    def take_texts(self, key: str, extra: str) -> None:
        """Carry over a list of texts; empty ones are left out."""
        texts = self.table.texts(key)
        if texts:
            self.extras[extra] = [*self.extras.get(extra, []), *texts]

    def take_text(self, key: str, extra: str) -> None:
        """Carry over a text that is not empty."""
        text = self.table.text(key)
        if text:
            self.extras[extra] = text

    def report_unknown(self, known: Iterable[str], hint: str = "") -> None:
        """Report each key that the tool does not know."""
        for key in self.table.unknown(known):
            value = shorten(self.table.values[key])
            self.reported.append(f"{key} {value}: {self.tool} does not know this key{hint}; it was left out")


def merged_penalties(steps: Sequence[ForeignStep]) -> list[ForeignStep]:
    """Join neighbouring ``penalties`` of one window into one step where that changes nothing.

    Our step applies ``repeat`` first, so a repeat penalty behind the other two stays a step of its own.
    """
    merged: list[ForeignStep] = []
    for step in steps:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.name == step.name == "penalties"
            and "repeat" not in step.params
            and last.params.get("last_n") == step.params.get("last_n")
        ):
            keys = tuple(dict.fromkeys([*last.keys, *step.keys]))
            comment = last.comment or step.comment
            merged[-1] = replace(last, params={**last.params, **step.params}, keys=keys, comment=comment)
        else:
            merged.append(step)
    return merged
