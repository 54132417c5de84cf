"""Conversion of a chain into another tool's format.

`PresetExporter` collects what is written, and the settings that the format does not support. `ExportedPreset` is
the result.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...common.strict_json import parse_strict_json
from ...common.text import short_repr
from ...samplers.base import Sampler
from ...samplers.building import make_sampler
from ..overrides import MIROSTAT_VERSIONS
from ..preset import make_step
from .sampler_keys import SamplerKeys
from .table import UNLIMITED_WINDOW_TOKENS


@dataclass(frozen=True)
class ExportedPreset:
    """A preset in another tool's format.

    Attributes:
        text: the file, the command line or the JSON body.
        unsupported_settings: a sentence for each setting that the format cannot express, with logitsmith's name
            of the setting.
    """

    text: str
    unsupported_settings: list[str]


_Entry = TypeVar("_Entry")
_TEMPERATURE_ZERO = make_sampler({"temperature": {"t": 0.0}}, origin="")


class PresetExporter:
    """A collector of the keys and values of a preset in another tool's format.

    Attributes:
        tool: name of the tool, for messages.
        name: name of the preset.
        description: description of the preset.
        steps: the steps that are on, in their order, without the one that selects the token.
        selector: the step that selects the token; None stands for a plain draw.
        other_settings: values of ``max_tokens``, ``stop``, ``system``, ``seed`` and ``grammar``, if the preset
            sets them.
        unsupported_settings: a sentence for each setting that the format cannot express.
        written_slots: slots of the steps that have been written, in their order.
        values: values of the keys that have been written.
    """

    def __init__(
        self,
        tool: str,
        samplers: Sequence[Sampler],
        other_settings: Mapping[str, Any],
        name: str = "",
        description: str = "",
    ) -> None:
        self.tool = tool
        self.name = name or "logitsmith"
        self.description = description
        active_samplers = [sampler for sampler in samplers if sampler.about.is_selector or not sampler.is_neutral]
        self.steps = [sampler for sampler in active_samplers if not sampler.about.is_selector]
        selectors = [sampler for sampler in active_samplers if sampler.about.is_selector]
        self.selector = selectors[0] if selectors else None
        self.other_settings = dict(other_settings)
        self.unsupported_settings: list[str] = []
        self.written_slots: list[str] = []
        self.values: dict[str, Any] = {}
        self._replace_temperature_zero()

    @property
    def selector_name(self) -> str:
        """The name of the step that selects the token; ``dist``, a plain draw, for an adaptive_p that is off."""
        if self.selector is None:
            return "dist"
        about = self.selector.about
        is_plain_draw = about.name == "adaptive_p" and getattr(self.selector, "target", 0) < 0
        return "dist" if is_plain_draw else about.name

    def _replace_temperature_zero(self) -> None:
        """Replace a temperature of 0 by a greedy step that ends the chain, because some tools reject 0."""
        if _TEMPERATURE_ZERO in self.steps and self.selector_name == "dist":
            self.steps = self.steps[: self.steps.index(_TEMPERATURE_ZERO)]
            self.selector = make_sampler({"greedy": {}}, origin="")

    def flatten_repetition_penalty(self, keeps_halves_slope: bool = False) -> None:
        """Replace KoboldAI's repetition penalty with the flat one that all tools have, and report its slope.

        The flat penalty is merged with ``penalties`` that follow in the same penalty window, unless these have a
        repeat penalty as well.

        Args:
            keeps_halves_slope: True to keep steps with the slope of KoboldCpp, see `has_halves_slope`.
        """
        steps: list[Sampler] = []
        for step in self.steps:
            last_step = steps[-1] if steps else None
            keeps_step = keeps_halves_slope and has_halves_slope(step)
            if step.about.name == "repetition_penalty" and not keeps_step:
                steps.append(self._flat_penalty(step))
            elif step.about.name == "penalties" and _can_merge_penalties(last_step, step):
                params = {**step.model_dump(exclude_unset=True), "repeat": getattr(last_step, "repeat", 1.0)}
                steps[-1] = make_step("penalties", params, "penalties")
            else:
                steps.append(step)
        self.steps = steps

    def _flat_penalty(self, step: Sampler) -> Sampler:
        """Return the flat penalty of a repetition penalty, and report a slope that had an effect."""
        penalty: float = getattr(step, "penalty", 1.0)
        window: int = getattr(step, "range", 0)
        slope: float = getattr(step, "slope", 0.0)
        has_sigmoid_slope = slope and window > 1 and getattr(step, "shape", "") == "sigmoid"
        if has_halves_slope(step) or has_sigmoid_slope:
            reason = f"{self.tool} has no such slope; the whole range gets {penalty:g}"
            self.report_unsupported(f"repetition_penalty.slope {slope:g}", reason)
        return make_step("penalties", {"repeat": penalty, "last_n": window or -1}, "repetition_penalty")

    def report_unsupported(self, subject: str, reason: str) -> None:
        """Report a step, a parameter or a setting that the format cannot express, and the reason."""
        self.unsupported_settings.append(f"{subject}: {reason}")

    def report_replaced_selector(self) -> None:
        """Report that a plain draw is written in place of the step that selects the token."""
        reason = f"{self.tool} does not support it; a plain draw was written instead"
        self.report_unsupported(self.selector_name, reason)

    def remove_steps(self, samplers: Container[str], reason: str) -> None:
        """Remove the steps of these samplers before they are written, and report each."""
        for step in self.steps:
            if step.about.name in samplers:
                self.report_unsupported(step.about.name, reason)
        self.steps = [step for step in self.steps if step.about.name not in samplers]

    def write_steps(self, sampler_keys: Mapping[str, SamplerKeys]) -> None:
        """Write each step into `values` and `written_slots`. Steps that the format cannot express are reported."""
        for sampler in self.steps:
            self.write_step(sampler, sampler_keys)

    def write_step(self, sampler: Sampler, sampler_keys: Mapping[str, SamplerKeys]) -> None:
        """Write one step, as `write_steps` does."""
        keys = sampler_keys.get(sampler.about.name)
        if keys is None:
            self.report_unsupported(sampler.about.name, f"{self.tool} has no such step")
        elif keys.slot in self.written_slots:
            self.report_unsupported(
                sampler.about.name, f"{self.tool} has such a step once only; the first was kept"
            )
        else:
            self.write_parameters(sampler, keys)
            self.written_slots.append(keys.slot)

    def write_selector(self, sampler_keys: Mapping[str, SamplerKeys]) -> SamplerKeys | None:
        """Write the step that selects the token into `values`; return its keys, or None if the tool has none."""
        keys = sampler_keys.get(self.selector_name)
        if keys is not None and self.selector is not None:
            self.write_parameters(self.selector, keys)
        return keys

    def write_parameters(self, sampler: Sampler, keys: SamplerKeys) -> None:
        """Write the parameters of a step into `values`. Report those with another, fixed value in the tool."""
        for name, field_info in type(sampler).model_fields.items():
            value = getattr(sampler, name)
            tool_value = keys.fixed_parameters.get(name, field_info.get_default(call_default_factory=True))
            key = keys.key_by_parameter.get(name)
            if key is not None and key.is_limited_window and value == -1:
                reason = f"{self.tool} has no number that means all tokens; {UNLIMITED_WINDOW_TOKENS} was written"
                self.report_unsupported(f"{sampler.about.name}.{name} -1", reason)
                self.values[key.name] = UNLIMITED_WINDOW_TOKENS
            elif key is not None:
                self.values[key.name] = key.tool_value(value)
            elif value != tool_value:
                subject = f"{sampler.about.name}.{name} {short_repr(value)}"
                self.report_unsupported(subject, f"{self.tool} always has {short_repr(tool_value)} there")

    def report_order(self, tool_order: Sequence[str]) -> None:
        """Report the order of the steps if it differs from the fixed order of the tool."""
        order_in_tool = sorted(self.written_slots, key=tool_order.index)
        if order_in_tool != self.written_slots:
            self.report_unsupported(
                "order", f"{self.tool} applies {', '.join(order_in_tool)}, not {', '.join(self.written_slots)}"
            )

    @property
    def mirostat_version(self) -> int:
        """The version of mirostat that selects the token; 0 if another step does."""
        return next((version for version, name in MIROSTAT_VERSIONS.items() if name == self.selector_name), 0)

    def replace_greedy(self) -> None:
        """Replace a step that takes the most likely token by a temperature of 0, and report other temperatures."""
        if self.selector_name == "greedy":
            reason = f"the most likely token is taken, which is temperature 0 in {self.tool}"
            self.remove_steps(("temperature", "dynatemp"), reason)
            self.steps.append(_TEMPERATURE_ZERO)
            self.selector = None

    def remove_steps_without_slot(
        self, sampler_keys: Mapping[str, SamplerKeys], slots: Container[str], reason: str
    ) -> None:
        """Remove the steps that the tool has in other slots than these, and report each."""
        samplers = [keys.sampler for keys in sampler_keys.values() if keys.slot not in slots]
        self.remove_steps(samplers, reason)

    def leading_slots(self, slots: Sequence[str]) -> list[str]:
        """Return those of the slots that have been written. Report them if the tool alone applies them first."""
        leading_slots = [slot for slot in slots if slot in self.written_slots]
        if self.written_slots[: len(leading_slots)] != leading_slots:
            reason = f"{self.tool} applies {', '.join(leading_slots)} before all other steps"
            self.report_unsupported("order", reason)
        return leading_slots

    def take_banned_phrases(self) -> list[str]:
        """Remove the bans from the settings, and return those that are phrases in any case. Report the others.

        Strings of the sampler ``ban`` are reported, too, because the tool rewrites them, as ``bans`` do.
        """
        phrases = []
        ban_steps = [step for step in self.steps if step.about.name == "ban"]
        if any(getattr(step, "strings", ()) for step in ban_steps):
            self.report_unsupported("ban.strings", f"{self.tool} goes back and writes something else, as bans do")
        for ban in self.other_settings.pop("bans", []):
            if isinstance(ban, str):
                phrases.append(ban)
            else:
                self.report_unsupported(f"bans {short_repr(ban)}", f"{self.tool} bans only phrases in any case")
        return phrases

    def take_guidance(self, scale_key: str, negative_key: str | None = "negative_prompt") -> dict[str, Any]:
        """Remove guidance from the settings, and return it by the keys of the format. Report its model.

        Args:
            scale_key: the key of the scale.
            negative_key: the key of the negative prompt; None if the format has none, so that it is reported.
        """
        guidance = self.other_settings.pop("guidance", None) or {}
        values = {scale_key: guidance["scale"]} if "scale" in guidance else {}
        if "model" in guidance:
            self.report_unsupported("guidance.model", f"{self.tool} reads the negative prompt with the same model")
        if "negative_prompt" in guidance and negative_key is not None:
            values[negative_key] = guidance["negative_prompt"]
        elif "negative_prompt" in guidance:
            self.report_unsupported("guidance.negative_prompt", f"{self.tool}'s presets do not hold its text")
        return values

    def convert_other_settings(self, keys: Mapping[str, str], unlimited_value: Any = None) -> dict[str, Any]:
        """Return the settings other than the chain, by the keys of the format. Report settings without a key.

        Args:
            keys: the key that the format uses for each setting.
            unlimited_value: the value of ``max_tokens`` that means "no limit" in the format; None if it has none.
        """
        value_by_key: dict[str, Any] = {}
        for name, value in self.other_settings.items():
            has_no_limit = name == "max_tokens" and value == -1
            if name not in keys:
                self.report_unsupported(name, f"{self.tool}'s presets do not hold it")
            elif has_no_limit and unlimited_value is None:
                self.report_unsupported("max_tokens -1", f"{self.tool} has no number that means no limit")
            else:
                value_by_key[keys[name]] = unlimited_value if has_no_limit else value
        return value_by_key

    def finite_biases(self, bias: Mapping[int | str, float]) -> dict[int, float]:
        """Return the finite biases of token ids. Biases of strings, and biases of -inf, are reported."""
        finite_bias_by_id: dict[int, float] = {}
        for token, number in bias.items():
            if isinstance(token, str) or number == float("-inf"):
                reason = f"{self.tool} takes finite numbers by token id only"
                self.report_unsupported(f"logit_bias.bias {token!r}", reason)
            else:
                finite_bias_by_id[token] = number
        return finite_bias_by_id

    def take_grammar(self, keys: Mapping[str, str], allowed: str) -> dict[str, Any]:
        """Remove the grammar from the settings, and return it by the format's key. Report one that it cannot hold.

        Args:
            keys: the key for each kind of grammar: ``gbnf``, ``json_schema``, ``regex`` or ``lark``.
            allowed: the kinds of grammars that the format holds, for the report.
        """
        grammar = self.other_settings.pop("grammar", None)
        if grammar is None:
            return {}
        is_gbnf = isinstance(grammar, str) and "::=" in grammar
        table = {"gbnf": grammar} if is_gbnf else grammar
        if isinstance(table, Mapping) and len(table) == 1:
            ((kind, value),) = table.items()
            if kind == "json_schema" and isinstance(value, str):
                value = _parsed(value)
            if kind in keys:
                return {keys[kind]: value}
        self.report_unsupported("grammar", f"{self.tool} takes {allowed}")
        return {}

    def make_result(self, text: str) -> ExportedPreset:
        """Return the text together with the sentences about unsupported settings."""
        return ExportedPreset(text, list(dict.fromkeys(self.unsupported_settings)))


def _parsed(schema: str) -> Any:
    """Return a schema that a preset holds as text; the text itself if it is not JSON."""
    try:
        return parse_strict_json(schema)
    except ValueError:
        return schema


def is_sloped(penalty: float, slope: float) -> bool:
    """Return True if KoboldCpp lowers a repetition penalty for the older half of its range."""
    return penalty > 1 and 0 < slope < 1


def has_halves_slope(step: Sampler) -> bool:
    """Return True for a repetition penalty with KoboldCpp's slope, if the slope has an effect."""
    penalty = getattr(step, "penalty", 0)
    window = getattr(step, "range", 0)
    slope = getattr(step, "slope", 0)
    return getattr(step, "shape", "") == "halves" and window > 1 and is_sloped(penalty, slope)


def _can_merge_penalties(last_step: Sampler | None, step: Sampler) -> bool:
    """Return True if one step can apply the repeat penalty of ``last_step``, then the penalties of ``step``."""
    if last_step is None or last_step.about.name != "penalties":
        return False
    last_has_repeat_only = last_step.model_fields_set <= {"repeat", "last_n"}
    lacks_repeat = getattr(step, "repeat", 0) == 1 and getattr(step, "penalize_newline", False)
    is_same_window = getattr(step, "last_n", 0) == getattr(last_step, "last_n", 1)
    return last_has_repeat_only and lacks_repeat and is_same_window


def entries_in_order(
    entries: Sequence[_Entry], steps_of: Callable[[_Entry], Container[str]], written: Sequence[str]
) -> list[_Entry]:
    """Return the entries of a tool's list of steps: those of the written steps in their order, then the others."""
    ordered_entries: list[_Entry] = []
    for step in written:
        ordered_entries += [entry for entry in entries if step in steps_of(entry)]
    ordered_entries += entries
    return list(dict.fromkeys(ordered_entries))
