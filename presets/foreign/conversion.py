"""Conversion of a chain from another tool's format.

`ImportedChainBuilder` collects the steps of a foreign file, and the settings that could not be carried over.
`Imported` is what a format reads, `ImportedPreset` the preset that is made of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...common.seeds import RANDOM_SEED, SEED_MAX, SEED_MIN, UINT32_MAX, is_seed
from ...common.text import short_repr
from ...samplers.building import make_sampler
from ...samplers.errors import SamplingError
from ...samplers.registry import find_sampler
from ..errors import PresetError
from ..preset import Preset
from ..setting_table import SETTINGS
from ..yaml_writer import write_step, write_yaml
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


@dataclass(frozen=True)
class Imported:
    """What a format reads from a file.

    Attributes:
        steps: the chain, in the tool's order. Without a step that selects the token, it ends in a plain draw.
        other_settings: values of other keys of a preset, such as ``max_tokens``, ``stop``, ``system``, ``seed``,
            ``grammar`` and ``guidance``.
        unsupported_settings: a sentence for each setting that could not be carried over as it is, with its key.
        changed_settings: those of these sentences whose setting was carried over with a change.
        notes: sentences about the whole chain, for comments.
        description: description of the preset, if the file has one.
        sections: names of the presets in the file; empty if the file holds one preset.
        key_count: number of the file's keys, known or not.
        unknown_keys: the keys that the tool does not know.
    """

    steps: Sequence[ForeignStep]
    other_settings: Mapping[str, Any] = field(default_factory=dict)
    unsupported_settings: Sequence[str] = ()
    changed_settings: Sequence[str] = ()
    notes: Sequence[str] = ()
    description: str = ""
    sections: Sequence[str] = ()
    key_count: int = 0
    unknown_keys: Sequence[str] = ()

    @property
    def known_share(self) -> float:
        """The share of the file's keys that the tool knows, 0 to 1; 0 without keys."""
        if not self.key_count:
            return 0.0
        return 1 - len(self.unknown_keys) / self.key_count


class ImportedChainBuilder:
    """A builder of a chain and settings from a file of another tool; `Imported` explains what both have."""

    # Each step is put into a slot, which has the name that the tool uses in its lists of steps. `set_chain` then
    # arranges the steps in the order in which the tool applies them.

    def __init__(self, tool: str, table: ForeignTable, defaults: Mapping[str, Any] | None = None) -> None:
        self.tool = tool
        self.table = table
        self.defaults = defaults or {}  # the tool's defaults that differ from `ToolKey.off_value`, by key
        self.defaults_owner = tool  # name of the tool whose defaults replace absent keys, for comments
        self.step_by_slot: dict[str, ForeignStep] = {}  # the steps that have been read, except those that are off
        self.steps: list[ForeignStep] = []  # the chain that `set_chain` made
        self.other_settings: dict[str, Any] = {}
        self.unsupported_settings: list[str] = []
        self.changed_settings: list[str] = []
        self.notes: list[str] = []
        self.description = ""
        self.unknown_keys: list[str] = []

    def imported(self, sections: Sequence[str] = ()) -> Imported:
        # ``sections``: names of the presets, if the file holds several
        return Imported(
            steps=tuple(self.steps),
            other_settings=self.other_settings,
            unsupported_settings=tuple(self.unsupported_settings),
            changed_settings=tuple(self.changed_settings),
            notes=tuple(self.notes),
            description=self.description,
            sections=tuple(sections),
            unknown_keys=tuple(self.unknown_keys),
        )

    def report_unsupported(self, key: str, reason: str) -> None:
        """Report that a key of the file could not be carried over, as ``KEY VALUE: REASON``."""
        name = self.table.key_in_file(key)
        self.unsupported_settings.append(f"{name} {short_repr(self.table.values.get(name))}: {reason}")

    def report_unless(self, key: str, neutral_value: float, reason: str) -> None:
        """Report a key with another number than the one that has no effect."""
        if self.table.number(key, neutral_value) != neutral_value:
            self.report_unsupported(key, reason)

    def report_changed(self, key: str, change: str) -> None:
        """Report that a key of the file was carried over with a change, as ``KEY VALUE: CHANGE``."""
        self.report_unsupported(key, change)
        self.changed_settings.append(self.unsupported_settings[-1])

    def put_step(  # noqa: PLR0913, PLR0917 - a step has as many facts
        self,
        slot: str,
        name: str,
        params: Mapping[str, Any],
        keys: Sequence[str],
        comment: str = "",
        key_by_parameter: Mapping[str, ToolKey] | None = None,
    ) -> None:
        """Put a step into a slot, unless its parameters turn the step off."""
        # ``keys``: those that the parameters were read from, the main key first. Raises ``PresetError`` that names
        # the key of the parameter, or else the main key.
        table = self.table
        try:
            sampler = make_sampler({name: dict(params)}, origin="")
        except SamplingError as error:
            key = keys[0]
            for parameter, parameter_key in (key_by_parameter or {}).items():
                if error.place == (name, parameter):
                    key = parameter_key.name
            raise PresetError.of(error).within(table.origin_of(key)) from None
        if sampler.is_neutral:
            return
        if name == "penalties":  # the step has three penalties, and the preset lists only those that are on
            off_values = sampler.about.off_values
            params = {
                parameter: value for parameter, value in params.items() if off_values.get(parameter) != value
            }
        used_defaults = [f"{key} {table.used_default(key)}" for key in keys if table.used_default(key) is not None]
        if used_defaults:
            sentence = f"{self.defaults_owner}'s default: {', '.join(used_defaults)}"
            comment = f"{comment}; {sentence}" if comment else sentence
        keys_in_file = tuple(table.key_in_file(key) for key in keys if table.is_set(key))
        self.step_by_slot[slot] = ForeignStep(
            name, dict(params), keys_in_file, comment, is_from_file=bool(keys_in_file)
        )

    def read_value(self, key: ToolKey) -> Any:
        """Return the value of a key, or the tool's default."""
        return key.read(self.table, self.defaults.get(key.name, key.off_value))

    def read_step(self, keys: SamplerKeys, comment: str = "") -> None:
        """Put the step of a sampler into its slot if the tool applies it."""
        if keys.is_active_at is not None:
            main_key = next(iter(keys.key_by_parameter.values()))
            if not keys.is_active_at(self.read_value(main_key)):
                return
        params = {parameter: self.read_value(key) for parameter, key in keys.key_by_parameter.items()}
        self.put_step(
            keys.slot,
            keys.sampler,
            {**params, **keys.fixed_parameters},
            keys.key_names,
            comment or keys.comment,
            keys.key_by_parameter,
        )

    def read_steps(self, sampler_keys: Mapping[str, SamplerKeys], *samplers: str) -> None:
        for sampler in samplers:
            self.read_step(sampler_keys[sampler])

    def read_temperature(
        self, keys: SamplerKeys, comment: str = "temperature 0 takes the most likely token"
    ) -> None:
        # 0 becomes a greedy step with the comment.
        if self.read_value(keys.key_by_parameter["t"]) == 0:
            self.put_step(keys.slot, "greedy", {}, keys.key_names, comment)
        else:
            self.read_step(keys)

    def read_ignore_eos(self, key: str) -> None:
        if self.table.boolean(key, False):
            self.put_step("ignore_eos", "ignore_eos", {}, [key])

    def steps_in_order(self, slots: Iterable[str]) -> list[ForeignStep]:
        return [self.step_by_slot[slot] for slot in slots if slot in self.step_by_slot]

    def set_chain(self, steps: Sequence[ForeignStep]) -> None:
        """Use the steps as the chain, up to the first one that selects the token."""
        # Without such a step, a plain draw is appended. Steps after it have no effect in the tool, and are
        # reported.
        for index, step in enumerate(steps):
            if step.selects:
                self.steps = list(steps[: index + 1])
                reason = f"{step.name} selects the token before it"
                self.report_inactive_steps(steps[index + 1 :], reason)
                return
        self.steps = [*steps, ForeignStep("dist")]

    def set_mirostat_chain(self, active_slots: Iterable[str]) -> None:
        """Use the steps that the tool applies before mirostat, and then mirostat, as the chain."""
        # The others are reported.
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
        # ``unlimited_values`` mean no limit, and become -1. Other values below 1 are ignored.
        max_tokens = self.table.integer(key)
        if max_tokens is not None and (max_tokens > 0 or max_tokens in unlimited_values):
            self.other_settings["max_tokens"] = max_tokens if max_tokens > 0 else -1

    def read_seed(self, key: str, min_fixed_seed: int = SEED_MIN) -> None:
        """Carry over the seed, unless it means a random one."""
        # Numbers below ``min_fixed_seed`` mean a random seed, and so do -1 and llama.cpp's 2^32 - 1.
        seed = self.table.integer(key)
        if seed is None:
            return
        is_random = seed in (RANDOM_SEED, UINT32_MAX) or SEED_MIN <= seed < min_fixed_seed
        if is_random:
            return
        if is_seed(seed):
            self.other_settings["seed"] = seed
        else:
            self.report_unsupported(key, f"a seed must be an integer within {SEED_MIN}..{SEED_MAX} here")

    def read_strings(self, key: str, setting: str) -> None:
        strings = self.table.strings(key)
        if strings:
            self.other_settings[setting] = [*self.other_settings.get(setting, []), *strings]

    def read_string(self, key: str, setting: str) -> None:
        string_value = self.table.string(key)
        if string_value:
            self.other_settings[setting] = string_value

    def read_settings(self, keys: Mapping[str, str], unlimited_values: Container[int] = ()) -> None:
        """Read settings beside the chain from these keys, by setting."""
        for setting, key in keys.items():
            match setting:
                case "max_tokens":
                    self.read_max_tokens(key, unlimited_values)
                case "seed":
                    self.read_seed(key)
                case "stop":
                    self.read_strings(key, setting)
                case _:
                    self.read_string(key, setting)

    def read_grammar(self, keys: Mapping[str, str]) -> None:
        """Read the grammar from these keys, by its kind; the first one that has a value counts."""
        for kind, key in keys.items():
            value = self.table.string(key) if kind == "gbnf" else self.table.raw_value(key)
            if value:
                self.other_settings["grammar"] = value if kind == "gbnf" else {kind: value}
                return

    def report_unknown(self, known_keys: Iterable[str]) -> None:
        for key in self.table.unknown_keys(known_keys):
            value = short_repr(self.table.values[key])
            self.unknown_keys.append(key)
            self.unsupported_settings.append(f"{key} {value}: {self.tool} does not know this key; it was left out")


def merge_penalties(steps: Sequence[ForeignStep]) -> list[ForeignStep]:
    """Merge adjacent ``penalties`` steps with the same penalty window where this changes no logit."""
    # The sampler ``penalties`` applies ``repeat`` first. So a repeat penalty after a frequency or presence penalty
    # stays a separate step.
    merged_steps: list[ForeignStep] = []
    for step in steps:
        if merged_steps and _can_merge(merged_steps[-1], step):
            earlier = merged_steps[-1]
            merged_steps[-1] = replace(
                earlier,
                params={**earlier.params, **step.params},
                keys=tuple(dict.fromkeys([*earlier.keys, *step.keys])),
                comment=earlier.comment or step.comment,
            )
        else:
            merged_steps.append(step)
    return merged_steps


def _can_merge(earlier: ForeignStep, step: ForeignStep) -> bool:
    are_penalties = earlier.name == "penalties" and step.name == "penalties"
    is_same_window = earlier.params.get("last_n") == step.params.get("last_n")
    return are_penalties and is_same_window and "repeat" not in step.params


_BEAM_KEYS = ("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping")
# the keys that `read_decoding` reads
DECODING_KEYS = (*_BEAM_KEYS, "penalty_alpha", "guidance_scale", "cfg_scale", "negative_prompt", "rep_pen_decay")
# the value of each key with which it does not change a beam search
_NEUTRAL_BEAM_VALUES = {"num_beam_groups": 1.0, "diversity_penalty": 0.0, "length_penalty": 1.0}


def read_decoding(builder: ImportedChainBuilder) -> None:
    """Read guidance. Report beam search, contrastive search and a decay of the penalty if they are on."""
    table = builder.table
    if table.number("num_beams", 1) > 1:
        builder.report_unsupported("num_beams", "beam search is not part of a preset; gen run has it as --beams N")
        for key, neutral_value in _NEUTRAL_BEAM_VALUES.items():
            flag = "; gen run has it as --length-penalty X" if key == "length_penalty" else ""
            builder.report_unless(key, neutral_value, f"it would have weighted the texts of the beam search{flag}")
        if table.raw_value("early_stopping") not in (None, False, 0, "false"):
            builder.report_unsupported(
                "early_stopping", "it would have ended the beam search early; gen run has it as --early-stopping"
            )
    builder.report_unless(
        "penalty_alpha",
        0,
        "contrastive search compares the model's hidden states, which a chain does not see; it would have avoided"
        " tokens that resemble earlier ones",
    )
    read_guidance(builder, "guidance_scale")
    read_guidance(builder, "cfg_scale")
    builder.report_unless("rep_pen_decay", 0, "the repetition penalty would have faded with distance")


def read_guidance(builder: ImportedChainBuilder, key: str, negative_prompt_key: str = "negative_prompt") -> None:
    """Read the scale of classifier-free guidance, and its negative prompt, unless the scale 1 turns it off."""
    scale = builder.table.number(key, 1)
    if scale == 1:
        return
    guidance: dict[str, Any] = {"scale": scale}
    negative_prompt = builder.table.string(negative_prompt_key)
    if negative_prompt:
        guidance["negative_prompt"] = negative_prompt
    builder.other_settings["guidance"] = guidance


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
        lines = [f"description: {write_yaml(self.preset.description, one_line=True)}"]
        lines += [f"# {_comment_text(note)}" for note in self.notes]
        lines.append("chain:")
        lines += [_step_line(step) for step in self.steps]
        lines += [f"{key}: {write_yaml(settings[key], one_line=True)}" for key in SETTINGS if key in settings]
        left_out = [sentence for sentence in self.unsupported_settings if sentence not in self.changed_settings]
        lines += _comment_list("Carried over with a change", self.changed_settings)
        lines += _comment_list("Left out", left_out)
        return "\n".join(lines) + "\n"


def build_imported_preset(
    imported: Imported, format_name: str, origin: str, source: str, description: str
) -> ImportedPreset:
    """Return the preset that was read from a file. Without a step that selects the token, a plain draw ends it."""
    # ``origin`` begins error messages. ``source``: the path of the file, after which the preset is named.
    # ``description``: used if the file has none. Raises ``PresetError`` if the preset would not work.
    steps = list(imported.steps)
    if not any(step.selects for step in steps):
        steps.append(ForeignStep("dist"))
    table = {
        "description": imported.description or description,
        "chain": [{step.name: step.params} if step.params else step.name for step in steps],
        **imported.other_settings,
    }
    preset = Preset.from_table(table, origin=origin, name=Path(source).stem, source=source)
    return ImportedPreset(
        format=format_name,
        chain=[[step.name, step.params] for step in steps],
        other_settings=dict(imported.other_settings),
        unsupported_settings=list(dict.fromkeys(imported.unsupported_settings)),
        preset=preset,
        sections=list(imported.sections),
        steps=tuple(steps),
        notes=tuple(imported.notes),
        changed_settings=tuple(dict.fromkeys(imported.changed_settings)),
    )


def _with_absolute_paths(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings; a relative path of a grammar's file is made absolute, counted from ``folder``."""
    grammar = settings.get("grammar")
    if not isinstance(grammar, Mapping):
        return dict(settings)
    absolute_grammar = dict(grammar)
    for key, value in grammar.items():
        is_path = key.endswith("file") and isinstance(value, str)  # the keys file and json_schema_file
        if is_path:
            absolute_grammar[key] = str((folder / value).absolute())
    return {**settings, "grammar": absolute_grammar}


def _step_line(step: ForeignStep) -> str:
    entry = write_step({step.name: step.params} if step.params else step.name)
    reasons = [", ".join(step.keys), step.comment]
    comment = "; ".join(reason for reason in reasons if reason)
    if not comment:
        return f"  - {entry}"
    return f"  - {entry}  # {_comment_text(comment)}"


def _comment_list(heading: str, sentences: Sequence[str]) -> list[str]:
    """Return the lines of a list in comments; no line for an empty list."""
    if not sentences:
        return []
    return [f"# {heading}:", *(f"# - {_comment_text(sentence)}" for sentence in sentences)]


def _comment_text(text: str) -> str:
    """Return the text as one line of a YAML comment: without newlines and characters that YAML rejects."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else " " for char in line)
