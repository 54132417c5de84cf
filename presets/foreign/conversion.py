"""Conversion of a chain from another tool's format.

`ImportedChainBuilder` collects the steps of a foreign file, and the settings that could not be carried over.
`ImportedPreset` is the result of an import.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ...common.machine import SEED_MAX
from ...common.renamed import supports_old_names
from ...common.text import short_repr
from ...samplers.building import make_sampler
from ...samplers.errors import SamplingError
from ...samplers.registry import find_sampler
from ..errors import PresetError
from ..overrides import SETTING_NAMES
from ..preset import Preset
from .sampler_keys import SamplerKeys, ToolKey
from .table import ForeignTable


@dataclass(frozen=True)
class ForeignStep:
    """A step of an imported chain.

    Attributes:
        name: name of the sampler.
        params: parameters of the sampler; the others have their defaults.
        keys: the keys of the file that the step was read from, as the file writes them.
        comment: comment for the YAML preset.
        is_from_file: False if all values of the step are defaults of the tool.
    """

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    comment: str = ""
    is_from_file: bool = True

    @property
    def selects(self) -> bool:
        """True if the step selects the token."""
        return find_sampler(self.name).about.is_selector


class ImportedChainBuilder:
    """A builder of a chain and settings from a file of another tool.

    Each step is put into a slot, which has the name that the tool uses in its lists of steps. `set_chain` then
    arranges the steps in the order in which the tool applies them.

    Attributes:
        tool: name of the tool, for messages.
        table: the keys and values of the file.
        defaults: the tool's defaults that differ from `ToolKey.off_value`, by key.
        defaults_owner: name of the tool whose defaults replace absent keys, for comments.
        step_by_slot: the steps that have been read, except those that are off.
        steps: the chain that `set_chain` made.
        other_settings: values of ``max_tokens``, ``stop``, ``system``, ``seed``, ``grammar`` and ``guidance``, if
            the file sets them.
        unsupported_settings: a sentence for each setting that could not be carried over as it is.
        changed_settings: the sentences of ``unsupported_settings`` whose setting was carried over with a change.
        notes: sentences about the whole chain, such as the order of its steps, for comments.
        description: description of the preset, if the file has one.
    """

    def __init__(self, tool: str, table: ForeignTable, defaults: Mapping[str, Any] | None = None) -> None:
        self.tool = tool
        self.table = table
        self.defaults = defaults or {}
        self.defaults_owner = tool
        self.step_by_slot: dict[str, ForeignStep] = {}
        self.steps: list[ForeignStep] = []
        self.other_settings: dict[str, Any] = {}
        self.unsupported_settings: list[str] = []
        self.changed_settings: list[str] = []
        self.notes: list[str] = []
        self.description = ""

    def report_unsupported(self, key: str, reason: str) -> None:
        """Report that a key of the file could not be carried over, as ``KEY VALUE: REASON``."""
        name = self.table.key_in_file(key)
        self.unsupported_settings.append(f"{name} {short_repr(self.table.values.get(name))}: {reason}")

    def report_changed(self, key: str, change: str) -> None:
        """Report that a key of the file was carried over with a change, as ``KEY VALUE: CHANGE``."""
        self.report_unsupported(key, change)
        self.changed_settings.append(self.unsupported_settings[-1])

    def put_step(
        self, slot: str, name: str, params: Mapping[str, Any], keys: Sequence[str], comment: str = ""
    ) -> None:
        """Put a step into a slot, unless its parameters turn the step off.

        Args:
            slot: the tool's name for the step.
            name: name of the sampler.
            params: parameters of the sampler.
            keys: the table's keys that the parameters were read from, the main key first.
            comment: comment for the YAML preset.

        Raises ``PresetError`` that names the main key, for parameters that the sampler rejects.
        """
        table = self.table
        try:
            sampler = make_sampler({name: dict(params)}, origin="")
        except SamplingError as error:
            raise PresetError(f"{table.origin_of(keys[0])}: {str(error).lstrip('.')}") from None
        if sampler.is_neutral:
            return
        if name == "penalties":  # a step for three penalties: the preset need not list those that are off
            off_values = sampler.about.off_values
            params = {key: value for key, value in params.items() if off_values.get(key) != value}
        defaults = [f"{key} {table.used_default(key)}" for key in keys if table.used_default(key) is not None]
        if defaults:
            comment = f"{comment + '; ' if comment else ''}{self.defaults_owner}'s default: {', '.join(defaults)}"
        keys_in_file = tuple(table.key_in_file(key) for key in keys if table.is_set(key))
        self.step_by_slot[slot] = ForeignStep(name, dict(params), keys_in_file, comment, bool(keys_in_file))

    def read_value(self, key: ToolKey) -> Any:
        """Return the value of a key, or the tool's default; raise ``PresetError`` for a value of another type."""
        return key.read(self.table, self.defaults.get(key.name, key.off_value))

    def read_step(self, keys: SamplerKeys, comment: str = "") -> None:
        """Read the step of a sampler from the file, and put it into its slot if the tool applies it.

        Args:
            keys: the keys of the sampler.
            comment: comment for the YAML preset; empty: ``keys.comment``.

        Raises ``PresetError`` for a value of another type, or one that the sampler rejects.
        """
        if keys.is_active_at is not None:
            main_key = next(iter(keys.key_by_parameter.values()))
            if not keys.is_active_at(self.read_value(main_key)):
                return
        params = {parameter: self.read_value(key) for parameter, key in keys.key_by_parameter.items()}
        all_params = {**params, **keys.fixed_parameters}
        self.put_step(keys.slot, keys.sampler, all_params, keys.key_names, comment or keys.comment)

    def read_steps(self, sampler_keys: Mapping[str, SamplerKeys], *samplers: str) -> None:
        """Read the steps of these samplers; raise ``PresetError`` as `read_step` does."""
        for sampler in samplers:
            self.read_step(sampler_keys[sampler])

    def read_temperature(
        self, keys: SamplerKeys, comment: str = "temperature 0 takes the most likely token"
    ) -> None:
        """Read the temperature; 0 becomes a greedy step with the comment."""
        if self.read_value(keys.key_by_parameter["t"]) == 0:
            self.put_step(keys.slot, "greedy", {}, keys.key_names, comment)
        else:
            self.read_step(keys)

    def read_logit_bias(self) -> None:
        """Read the biases of ``logit_bias``, a table of token ids and numbers, into the slot of that name."""
        bias_by_id = self.table.raw_value("logit_bias") or {}
        if not isinstance(bias_by_id, dict) or not all(str(key).isdecimal() for key in bias_by_id):
            raise self.table.value_error("logit_bias", "a table of token ids and numbers")
        bias_table = ForeignTable(bias_by_id, f"{self.table.origin}: logit_bias")
        params = {"bias": {int(key): bias_table.number(key, 0.0) for key in bias_table.values}}
        self.put_step("logit_bias", "logit_bias", params, ["logit_bias"])

    def steps_in_order(self, slots: Iterable[str]) -> list[ForeignStep]:
        """Return the steps of these slots, in this order. Slots without a step are skipped."""
        return [self.step_by_slot[slot] for slot in slots if slot in self.step_by_slot]

    def set_chain(self, steps: Sequence[ForeignStep]) -> None:
        """Use the steps as the chain, up to the first one that selects the token.

        If no step selects the token, a plain draw is appended. Steps after the step that selects the token have no
        effect in the tool, and are reported.
        """
        selector_index = next((index for index, step in enumerate(steps) if step.selects), None)
        if selector_index is None:
            self.steps = [*steps, ForeignStep("dist")]
            return
        self.steps = list(steps[: selector_index + 1])
        reason = f"{steps[selector_index].name} selects the token before it"
        self.report_inactive_steps(steps[selector_index + 1 :], reason)

    def set_mirostat_chain(self, active_slots: Iterable[str]) -> None:
        """Use the steps of the slots, and then mirostat, as the chain. All other steps are reported.

        Args:
            active_slots: slots of the steps that the tool applies before mirostat, in its order.
        """
        slots = (*active_slots, "mirostat")
        inactive_steps = [step for slot, step in self.step_by_slot.items() if slot not in slots]
        self.report_inactive_steps(inactive_steps, "mirostat is on")
        self.set_chain(self.steps_in_order(slots))

    def report_inactive_steps(self, steps: Iterable[ForeignStep], reason: str) -> None:
        """Report the steps that have no effect in the tool, unless all their values are defaults of the tool."""
        for step in steps:
            if step.is_from_file:
                values = ", ".join(f"{key} {short_repr(self.table.values.get(key))}" for key in step.keys)
                self.unsupported_settings.append(f"{values}: no effect in {self.tool}, since {reason}")

    def read_max_tokens(self, key: str, unlimited_values: Container[int] = ()) -> None:
        """Carry over the maximum number of tokens.

        Args:
            key: the file's key of this maximum.
            unlimited_values: values that mean no limit, and become -1. Other values below 1 are ignored.
        """
        max_tokens = self.table.integer(key)
        if max_tokens is not None and (max_tokens > 0 or max_tokens in unlimited_values):
            self.other_settings["max_tokens"] = max_tokens if max_tokens > 0 else -1

    def read_seed(self, key: str, min_fixed_seed: int = 0) -> None:
        """Carry over the seed, unless it means a random seed.

        Args:
            key: the file's key of the seed.
            min_fixed_seed: a lower number means a random seed, and so does llama.cpp's 2^32 - 1.
        """
        seed = self.table.integer(key)
        if seed is None or seed < min_fixed_seed or seed == SEED_MAX:
            return
        if seed > SEED_MAX:
            self.report_unsupported(key, f"a seed must be an integer within 0..{SEED_MAX} here")
        else:
            self.other_settings["seed"] = seed

    def read_strings(self, key: str, setting: str) -> None:
        """Append the strings of a list to a setting. Empty strings are ignored."""
        strings = self.table.strings(key)
        if strings:
            self.other_settings[setting] = [*self.other_settings.get(setting, []), *strings]

    def read_string(self, key: str, setting: str) -> None:
        """Carry over a string as a setting, unless the string is empty."""
        string_value = self.table.string(key)
        if string_value:
            self.other_settings[setting] = string_value

    def report_unknown(self, known_keys: Iterable[str]) -> None:
        """Report each key of the file that the tool does not know."""
        for key in self.table.unknown_keys(known_keys):
            value = short_repr(self.table.values[key])
            self.unsupported_settings.append(f"{key} {value}: {self.tool} does not know this key; it was left out")


def merge_penalties(steps: Sequence[ForeignStep]) -> list[ForeignStep]:
    """Merge adjacent ``penalties`` steps with the same penalty window where this changes no logit.

    The sampler ``penalties`` applies ``repeat`` first. So a repeat penalty after a frequency or presence penalty
    stays a separate step.
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
DECODING_KEYS = (*_BEAM_KEYS, "penalty_alpha", "guidance_scale", "cfg_scale", "negative_prompt", "rep_pen_decay")
"""The keys that `read_decoding` reads."""
_NEUTRAL_BEAM_VALUES = {"num_beam_groups": 1.0, "diversity_penalty": 0.0, "length_penalty": 1.0}
"""The value of each key with which it does not change a beam search."""


def read_decoding(builder: ImportedChainBuilder) -> None:
    """Read guidance. Report beam search, contrastive search and a decay of the penalty if they are on."""
    table = builder.table
    if table.number("num_beams", 1) > 1:
        builder.report_unsupported("num_beams", "beam search is not part of a preset; gen run has it as --beams N")
        for key, neutral_value in _NEUTRAL_BEAM_VALUES.items():
            if table.number(key, neutral_value) != neutral_value:
                flag = "; gen run has it as --length-penalty X" if key == "length_penalty" else ""
                builder.report_unsupported(key, f"it would have weighted the texts of the beam search{flag}")
        if table.raw_value("early_stopping") not in (None, False, 0, "false"):
            builder.report_unsupported(
                "early_stopping", "it would have ended the beam search early; gen run has it as --early-stopping"
            )
    if table.number("penalty_alpha", 0) != 0:
        builder.report_unsupported(
            "penalty_alpha",
            "contrastive search compares the model's hidden states, which a chain does not see; it would have"
            " avoided tokens that resemble earlier ones",
        )
    read_guidance(builder, "guidance_scale")
    read_guidance(builder, "cfg_scale")
    if table.number("rep_pen_decay", 0) != 0:
        builder.report_unsupported("rep_pen_decay", "the repetition penalty would have faded with distance")


def read_guidance(builder: ImportedChainBuilder, key: str) -> None:
    """Read the scale of classifier-free guidance, and its negative prompt, unless the scale 1 turns it off."""
    scale = builder.table.number(key, 1)
    if scale == 1:
        return
    guidance: dict[str, Any] = {"scale": scale}
    negative_prompt = builder.table.string("negative_prompt")
    if negative_prompt:
        guidance["negative_prompt"] = negative_prompt
    builder.other_settings["guidance"] = guidance


@supports_old_names
@dataclass(frozen=True)
class ImportedPreset:
    """A preset that was read from a file of another tool.

    Attributes:
        format: the format of the file, one of `FORMATS`.
        chain: ``[name, {parameter: value}]`` for each step that is on, in the tool's order. The last step selects
            the token: ``dist``, a plain draw, unless the file has a step that selects.
        other_settings: values of ``max_tokens``, ``stop``, ``system``, ``seed`` and ``grammar``, if the file sets
            them.
        unsupported_settings: a sentence for each setting that could not be carried over as it is, with its key.
        preset: the imported preset, ready to use.
        sections: names of the presets in the file; empty if the file holds one preset.
        steps: the steps of the chain, with the keys and comments of each.
        notes: sentences about the whole chain, such as the order of its steps and the defaults that were used.
        changed_settings: the sentences of ``unsupported_settings`` whose setting was carried over with a change.
        other_format: the format that the content looks like, if it differs from the requested format, and the
            requested format does not know some of the keys; otherwise None.
    """

    format: str
    chain: list[list[Any]]
    other_settings: dict[str, Any]
    unsupported_settings: list[str]
    preset: Preset
    sections: list[str]
    steps: tuple[ForeignStep, ...]
    notes: tuple[str, ...]
    changed_settings: tuple[str, ...] = ()
    other_format: str | None = None

    def yaml_text(self, folder: Path | None = None) -> str:
        """Return the text of a preset file: the chain with comments, and comments on what was changed or left out.

        Args:
            folder: the folder of the imported file, if the preset is written to another folder. A relative path
                of a grammar's file is then written as an absolute path. None leaves paths unchanged.
        """
        settings = self.other_settings if folder is None else _with_absolute_paths(self.other_settings, folder)
        lines = [f"description: {_flow_yaml(self.preset.description)}"]
        lines += [f"# {_comment_text(note)}" for note in self.notes]
        lines.append("chain:")
        lines += [_step_line(step) for step in self.steps]
        lines += [f"{key}: {_flow_yaml(settings[key])}" for key in SETTING_NAMES if key in settings]
        left_out = [sentence for sentence in self.unsupported_settings if sentence not in self.changed_settings]
        for heading, sentences in (("Carried over with a change", self.changed_settings), ("Left out", left_out)):
            if sentences:
                lines += [f"# {heading}:", *(f"# - {_comment_text(sentence)}" for sentence in sentences)]
        return "\n".join(lines) + "\n"


class MissingSectionError(PresetError):
    """The file holds several presets, and no section was chosen.

    Attributes:
        origin: the path of the file, as messages name it.
        names: names of the presets in the file.
    """

    def __init__(self, origin: str, names: Sequence[str]) -> None:
        listed = ", ".join(names)
        super().__init__(f"{origin}: the file holds {len(names)} presets; choose a section: {listed}")
        self.origin, self.names = origin, tuple(names)


def build_imported_preset(
    builder: ImportedChainBuilder, format_name: str, source: str, description: str, sections: Sequence[str]
) -> ImportedPreset:
    """Return the preset that a builder has collected.

    Args:
        builder: the builder, with its chain set.
        format_name: the format, one of `FORMATS`.
        source: the path of the file, for `Preset.source`. The preset is named after this file.
        description: description of the preset, if the file has none.
        sections: names of the presets in the file; empty if the file holds one preset.

    Raises ``PresetError`` if the preset would not work.
    """
    chain = [[step.name, step.params] for step in builder.steps]
    table = {
        "description": builder.description or description,
        "chain": [{step.name: step.params} if step.params else step.name for step in builder.steps],
        **builder.other_settings,
    }
    preset = Preset.from_table(table, origin=builder.table.origin, name=Path(source).stem, source=source)
    return ImportedPreset(
        format=format_name,
        chain=chain,
        other_settings=dict(builder.other_settings),
        unsupported_settings=list(dict.fromkeys(builder.unsupported_settings)),
        preset=preset,
        sections=list(sections),
        steps=tuple(builder.steps),
        notes=tuple(builder.notes),
        changed_settings=tuple(dict.fromkeys(builder.changed_settings)),
    )


def _with_absolute_paths(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings; a relative path of a grammar's file is made absolute, counted from ``folder``."""
    grammar = settings.get("grammar")
    if not isinstance(grammar, Mapping):
        return dict(settings)
    grammar_with_paths = {
        key: str((folder / value).absolute()) if key.endswith("file") and isinstance(value, str) else value
        for key, value in grammar.items()
    }
    return {**settings, "grammar": grammar_with_paths}


def _step_line(step: ForeignStep) -> str:
    """Return the line of a step in a YAML preset, with a comment."""
    entry = f"{step.name}: {_flow_yaml(step.params)}" if step.params else step.name
    reasons = [", ".join(step.keys), step.comment]
    comment = "; ".join(reason for reason in reasons if reason)
    return f"  - {entry}" + (f"  # {_comment_text(comment)}" if comment else "")


_QUOTED_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan")
"""Words that YAML does not read as strings unless they are quoted."""


def _flow_yaml(value: Any) -> str:
    """Return a value in YAML's flow style, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow_yaml(key)}: {_flow_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow_yaml(inner) for inner in value) + "]"
    if value is None or isinstance(value, (bool, int, float)):
        return "-inf" if value == float("-inf") else json.dumps(value)
    if isinstance(value, str) and value.isidentifier() and value.isascii() and value.lower() not in _QUOTED_WORDS:
        return value
    text: str = yaml.safe_dump(str(value), default_style='"', allow_unicode=True, width=float("inf"))
    return text.rstrip("\n")


def _comment_text(text: str) -> str:
    """Return the text as one line of a YAML comment: without newlines and characters that YAML rejects."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
