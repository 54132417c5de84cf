"""A chain on its way in from another tool, or out to one.

`Draft` is a chain while it is made from a foreign file: its steps, what could not be carried over, and the
reasons. `Imported` is what an import gives: a chain, a preset, and all of it as a YAML preset. `Outgoing` is a
preset on its way into another tool's format: its steps, and what that format cannot say.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ...common.machine import SEED_MAX
from ...common.text import short_repr
from ...samplers.base import Sampler
from ...samplers.building import make_sampler
from ...samplers.errors import SamplingError
from ...samplers.registry import find_sampler
from ..errors import PresetError
from ..overrides import SETTINGS
from ..preset import Preset, make_step
from .rows import StepRow, ToolKey
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
        return find_sampler(self.name).about.is_selector


class Draft:
    """What the rules of a format make of a file.

    A step is put into a slot, named as the tool names the step in its orders; `take_chain` then takes the slots in
    the order in which the tool applies them.
    """

    def __init__(self, tool: str, table: ForeignTable, defaults: Mapping[str, Any] | None = None) -> None:
        self.tool = tool
        self.defaults = defaults or {}
        """The tool's defaults that differ from `ToolKey.off`, by key."""
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
        self.reported.append(f"{spelled} {short_repr(self.table.values.get(spelled))}: {effect}")

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
            neutral = sampler.about.off_values
            params = {key: value for key, value in params.items() if neutral.get(key) != value}
        defaults = [f"{key} {table.default_of(key)}" for key in keys if table.default_of(key) is not None]
        if defaults:
            comment = f"{comment + '; ' if comment else ''}{self.defaults_of}'s default: {', '.join(defaults)}"
        spelled = tuple(table.spelled(key) for key in keys if table.is_given(key))
        self.slots[slot] = ForeignStep(name, dict(params), spelled, comment, bool(spelled))

    def read(self, key: ToolKey) -> Any:
        """Return the value of a key, or the tool's default; raises ``PresetError`` for another kind of value."""
        return key.read(self.table, self.defaults.get(key.name, key.off))

    def put_row(self, row: StepRow, comment: str = "") -> None:
        """Put the step of a row into its slot, if the tool applies it; ``comment``: in place of the row's.

        Raises ``PresetError`` for a value of another kind, or one that the sampler refuses.
        """
        if row.acts is not None and not row.acts(self.read(next(iter(row.keys.values())))):
            return
        params = {parameter: self.read(key) for parameter, key in row.keys.items()}
        self.put(row.slot, row.sampler, {**params, **row.fixed}, row.key_names, comment or row.comment)

    def put_rows(self, rows: Mapping[str, StepRow], *samplers: str) -> None:
        """Put the steps of these samplers; raises ``PresetError`` as `put_row`."""
        for sampler in samplers:
            self.put_row(rows[sampler])

    def put_temperature(self, row: StepRow, comment: str = "temperature 0 takes the most likely token") -> None:
        """Put the temperature, or greedy with a comment where the temperature is 0."""
        if self.read(row.keys["t"]) == 0:
            self.put(row.slot, "greedy", {}, row.key_names, comment)
        else:
            self.put_row(row)

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

    def take_mirostat_chain(self, acting: Iterable[str]) -> None:
        """Take the slots that act under mirostat, and mirostat, as the chain; the steps of others are reported."""
        order = (*acting, "mirostat")
        self.report_idle([step for slot, step in self.slots.items() if slot not in order], "mirostat is on")
        self.take_chain(self.arranged(order))

    def report_idle(self, steps: Iterable[ForeignStep], reason: str) -> None:
        """Report the steps that have no effect in the tool; those of its defaults are left out quietly."""
        for step in steps:
            if step.is_given:
                values = ", ".join(f"{key} {short_repr(self.table.values.get(key))}" for key in step.keys)
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
            value = short_repr(self.table.values[key])
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


_BEAM_KEYS = ("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping")
SEARCH_KEYS = (*_BEAM_KEYS, "penalty_alpha", "guidance_scale", "cfg_scale", "rep_pen_decay")
"""What `report_searches` looks at."""
# What each value would have to be to change nothing, and what it does otherwise.
_BEAM_NEUTRAL = {"num_beam_groups": 1.0, "diversity_penalty": 0.0, "length_penalty": 1.0}


def report_searches(draft: Draft) -> None:
    """Report beam search, contrastive search, guidance and a decay of the penalty if they are on."""
    table = draft.table
    if table.number("num_beams", 1) > 1:
        draft.report("num_beams", "beam search would have kept the best of several texts; there is none here")
        for key, neutral in _BEAM_NEUTRAL.items():
            if table.number(key, neutral) != neutral:
                draft.report(key, "it would have weighed the texts of the beam search")
        if table.raw("early_stopping") not in (None, False, 0, "false"):
            draft.report("early_stopping", "it would have ended the beam search early")
    if table.number("penalty_alpha", 0) != 0:
        draft.report(
            "penalty_alpha", "contrastive search would have avoided tokens like those before; there is none here"
        )
    for key in ("guidance_scale", "cfg_scale"):
        if table.number(key, 1) != 1:
            draft.report(key, "guidance would have run the model twice, with a negative prompt")
    if table.number("rep_pen_decay", 0) != 0:
        draft.report("rep_pen_decay", "the repetition penalty would have faded with distance")


@dataclass(frozen=True)
class Imported:
    """A foreign file as a preset."""

    format: str
    """The format, as `import_preset` names it."""
    chain: list[list[Any]]
    """``[name, {parameter: value}]`` for each step that acts, in the tool's order.

    The last one selects: ``dist``, a plain draw, unless a step of the file does.
    """
    extras: dict[str, Any]
    """What the file sets of ``max_tokens``, ``stop``, ``system``, ``seed`` and ``grammar``."""
    reported: list[str]
    """A sentence for each thing that could not be carried over as it is, which names its key."""
    preset: Preset
    """The preset, ready to use."""
    sections: list[str]
    """The names of the file's presets, where it holds several; else empty."""
    steps: tuple[ForeignStep, ...]
    """The steps of the chain with the keys and the reasons that they come from."""
    notes: tuple[str, ...]
    """Decisions about the chain as a whole: which order, whose defaults."""
    changed: tuple[str, ...] = ()
    """Those of ``reported`` whose setting is carried over with a change; all others are left out."""
    other_format: str | None = None
    """What the content looks like, if another format was asked for, which does not know some of its keys."""

    def yaml_text(self, folder: Path | None = None) -> str:
        """Return a preset file: the chain, a comment on each decision, and what was changed and left out.

        ``folder``: that of the imported file, if the preset goes elsewhere: a relative path of a grammar in it is
        then written as an absolute one. None: paths stay as they are.
        """
        extras = self.extras if folder is None else _with_absolute_paths(self.extras, folder)
        lines = [f"description: {_flow(self.preset.description)}"]
        lines += [f"# {_comment(note)}" for note in self.notes]
        lines.append("chain:")
        lines += [_step_line(step) for step in self.steps]
        lines += [f"{key}: {_flow(extras[key])}" for key in SETTINGS if key in extras]
        left_out = [sentence for sentence in self.reported if sentence not in self.changed]
        for heading, sentences in (("Carried over with a change", self.changed), ("Left out", left_out)):
            if sentences:
                lines += [f"# {heading}:", *(f"# - {_comment(sentence)}" for sentence in sentences)]
        return "\n".join(lines) + "\n"


class MissingSectionError(PresetError):
    """A file holds several presets, and none of them is chosen. ``names``: theirs; ``origin``: the file."""

    def __init__(self, origin: str, names: Sequence[str]) -> None:
        listed = ", ".join(names)
        super().__init__(f"{origin}: the file holds {len(names)} presets; choose a section: {listed}")
        self.origin, self.names = origin, tuple(names)


def import_draft(
    draft: Draft, format_name: str, source: str, description: str, sections: Sequence[str]
) -> Imported:
    """Return the import that a draft makes.

    Args:
        draft: the finished draft.
        format_name: the format, one of `FORMATS`.
        source: the path of the file, as `Preset.source` holds it, from which the preset has its name.
        description: the description of a preset that has none of its own.
        sections: the names of the file's presets; empty if it holds one.

    Raises ``PresetError`` if the preset would not work.
    """
    chain = [[step.name, step.params] for step in draft.steps]
    table = {
        "description": draft.description or description,
        "chain": [{step.name: step.params} if step.params else step.name for step in draft.steps],
        **draft.extras,
    }
    preset = Preset.from_table(table, origin=draft.table.origin, name=Path(source).stem, source=source)
    return Imported(
        format=format_name,
        chain=chain,
        extras=dict(draft.extras),
        reported=list(dict.fromkeys(draft.reported)),
        preset=preset,
        sections=list(sections),
        steps=tuple(draft.steps),
        notes=tuple(draft.notes),
        changed=tuple(dict.fromkeys(draft.changed)),
    )


def _with_absolute_paths(extras: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The extras; a path of a grammar's file, which is relative to a folder, is made absolute."""
    grammar = extras.get("grammar")
    if not isinstance(grammar, Mapping):
        return dict(extras)
    paths = {
        key: str((folder / value).absolute()) if key.endswith("file") and isinstance(value, str) else value
        for key, value in grammar.items()
    }
    return {**extras, "grammar": paths}


def _step_line(step: ForeignStep) -> str:
    entry = f"{step.name}: {_flow(step.params)}" if step.params else step.name
    reasons = [", ".join(step.keys), step.comment]
    comment = "; ".join(reason for reason in reasons if reason)
    return f"  - {entry}" + (f"  # {_comment(comment)}" if comment else "")


# Plain words that YAML does not read as texts.
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan")


def _flow(value: Any) -> str:
    """A value in YAML's flow style, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    if value is None or isinstance(value, (bool, int, float)):
        return "-inf" if value == float("-inf") else json.dumps(value)
    if isinstance(value, str) and value.isidentifier() and value.isascii() and value.lower() not in _WORDS:
        return value
    text: str = yaml.safe_dump(str(value), default_style='"', allow_unicode=True, width=float("inf"))
    return text.rstrip("\n")


def _comment(text: str) -> str:
    """The text as a comment can hold it: on one line, with nothing that YAML refuses."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))


_ALL_TOKENS = 1_000_000
"""A window that stands for all tokens, for tools that have no number for it: longer than any context."""


@dataclass(frozen=True)
class Exported:
    """A preset in another tool's format."""

    text: str
    """The file, the command line or the JSON body."""
    reported: list[str]
    """A sentence for each thing that the format cannot say, which names it as our presets do."""


_TEMPERATURE_ZERO = make_sampler({"temperature": {"t": 0.0}}, origin="")


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
        acting = [sampler for sampler in samplers if sampler.about.is_selector or not sampler.is_neutral]
        self.steps = [sampler for sampler in acting if not sampler.about.is_selector]
        selectors = [sampler for sampler in acting if sampler.about.is_selector]
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

    def report_plain_draw(self) -> None:
        """Report that the tool lacks the chain's way to select a token."""
        self.report(self.selector_name, f"{self.tool} does not draw so; a plain draw was written")

    def leave_out(self, samplers: Container[str], reason: str) -> None:
        """Remove the steps of these samplers, and report each."""
        for step in self.steps:
            if step.about.name in samplers:
                self.report(step.about.name, reason)
        self.steps = [step for step in self.steps if step.about.name not in samplers]

    def say_steps(self, rows: Mapping[str, StepRow]) -> None:
        """Put each step into `values` and its slot into `order`; report those that the format cannot say."""
        for sampler in self.steps:
            row = rows.get(sampler.about.name)
            if row is None:
                self.report(sampler.about.name, f"{self.tool} has no such step")
            elif row.slot in self.order:
                self.report(sampler.about.name, f"{self.tool} has such a step once only; the first was kept")
            else:
                self.say(sampler, row)
                self.order.append(row.slot)

    def say_selector(self, rows: Mapping[str, StepRow]) -> StepRow | None:
        """Put the step that selects into `values`, and return its row; None if none of the rows is for it."""
        row = rows.get(self.selector_name)
        if row is not None and self.selector is not None:
            self.say(self.selector, row)
        return row

    def say(self, sampler: Sampler, row: StepRow) -> None:
        """Put the parameters of one step into `values`; report those that have another value there."""
        for name, declared in type(sampler).model_fields.items():
            value = getattr(sampler, name)
            there = row.fixed.get(name, declared.get_default(call_default_factory=True))
            if name in row.keys:
                self.values[row.keys[name].name] = value
            elif value != there:
                subject = f"{sampler.about.name}.{name} {short_repr(value)}"
                self.report(subject, f"{self.tool} always has {short_repr(there)} there")

    def report_order(self, order: Sequence[str]) -> None:
        """Report steps that stand in another order than the one that the tool always has."""
        there = sorted(self.order, key=order.index)
        if there != self.order:
            self.report("order", f"{self.tool} applies {', '.join(there)}, not {', '.join(self.order)}")

    def drop(self, slot: str, rows: Mapping[str, StepRow], reason: str) -> None:
        """Remove the step in a slot from `order` and `values`, and report it."""
        self.order.remove(slot)
        for row in rows.values():
            for key in row.keys.values() if row.slot == slot else ():
                self.values.pop(key.name, None)
        self.report(slot, reason)

    def take_extras(self, keys: Mapping[str, str], unlimited: Any = None) -> dict[str, Any]:
        """Return the settings beside the chain, by the keys that the format has for them.

        What has no key is reported. ``unlimited``: what the format says in place of a number of tokens if there is
        no limit; None: nothing.
        """
        taken: dict[str, Any] = {}
        for name, value in self.extras.items():
            if name not in keys:
                self.report(name, f"{self.tool}'s presets do not hold it")
            elif name != "max_tokens" or value != -1:
                taken[keys[name]] = value
            elif unlimited is None:
                self.report("max_tokens -1", f"{self.tool} has no number for no limit")
            else:
                taken[keys[name]] = unlimited
        return taken

    def widen_window(self, key: str, subject: str) -> None:
        """Write a window of all tokens as a number, and report it: the tool has none for it."""
        if self.values.get(key) == -1:
            self.values[key] = _ALL_TOKENS
            self.report(f"{subject} -1", f"{self.tool} has no number for all tokens; {_ALL_TOKENS} was written")

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

    def grammar_schema(self, grammar: Any) -> dict[str, Any] | None:
        """Return the JSON Schema of a grammar; None if it is given otherwise."""
        schema = grammar.get("json_schema") if isinstance(grammar, dict) and len(grammar) == 1 else None
        return schema if isinstance(schema, dict) else None

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
