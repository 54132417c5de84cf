"""The settings of a run, each with its origin: flag > `--set` > preset > default.

Settings can change while they are in use, as in a chat; each value keeps its origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import place_suffix
from ..samplers.base import Sampler
from ..samplers.building import build_phases, parse_chain
from ..samplers.chain import Phase, StepSpec
from ..samplers.errors import SamplingError
from .errors import PresetError
from .overrides import (
    WATERMARK,
    ChainRearrangement,
    Override,
    order_steps,
    override_step,
    parse_set,
    replace_selector,
)
from .preset import Preset
from .setting_table import SETTINGS, find_setting_name
from .story import AuthorsNote, Story, WorldInfo
from .text_rules import ends_thinking, last_chain
from .yaml_reader import check_table, parse_yaml
from .yaml_writer import write_yaml


@dataclass(frozen=True)
class SettingValue:
    """The value of a setting and its origin.

    Attributes:
        value: the value of the setting.
        origin: ``default``, or where the value was set: ``preset creative``, ``--set top_k.k``, ``--top-k``.
    """

    value: Any
    origin: str


class IgnoredFlag(NamedTuple):
    flag: str
    reason: str  # the reason, as the end of a sentence: ``--samplers leaves its sampler out``


@dataclass(frozen=True)
class Settings:
    """All settings of a run.

    Attributes:
        steps: the chain, for `logitsmith.samplers.build`; the last step selects the token.
        values: the value and the origin of each setting of the table `SETTINGS`, by name.
        chain_origin: origin of the chain as a whole, as in `SettingValue`.
        grammar_folder: the folder that a relative path of a grammar's file counts from, which is the folder of the
            preset; None if the grammar does not come from a preset file.
        ignored_flags: flags that set a parameter of a sampler that is off or was removed from the chain.
    """

    steps: tuple[StepSpec, ...]
    values: Mapping[str, SettingValue]
    chain_origin: str
    grammar_folder: Path | None = None
    ignored_flags: tuple[IgnoredFlag, ...] = ()

    def __getitem__(self, name: str) -> SettingValue:
        """Return the value and the origin of a setting."""
        return self.values[name]

    def with_value(self, name: str, value: Any) -> Settings:
        """Return the settings with another value of a setting, whose origin stays."""
        return replace(self, values={**self.values, name: replace(self[name], value=value)})

    @property
    def earlier_phases(self) -> tuple[Phase, ...]:
        """The phases before the last one, whose chain is ``steps``."""
        phases = self["phases"].value
        if phases is None and ends_thinking(self["loop_guard"].value):
            phases = [{"adds_end": True}, {}]
        return build_phases(phases)

    def samplers(self) -> list[Sampler]:
        """Return the samplers of the chain, including those that are off."""
        return [step.sampler for step in self.steps]

    @property
    def token_limit(self) -> int | None:
        """The maximum number of tokens; None if there is no limit, which the setting expresses as -1."""
        limit: int = self["max_tokens"].value
        return None if limit == -1 else limit

    @property
    def has_default_length(self) -> bool:
        """True if ``max_tokens`` was not set.

        The default limit may be exceeded to complete a grammar's sentence.
        """
        return self["max_tokens"].origin == "default"

    @cached_property
    def story(self) -> Story | None:
        """What the model reads besides the prompt; None: only the prompt."""
        memory, note, world_info = (self[name].value for name in ("memory", "authors_note", "world_info"))
        if memory is None and note is None and world_info is None:
            return None
        return Story(memory or "", AuthorsNote(**note or {}), WorldInfo(**world_info or {}))


class _StartingChain(NamedTuple):
    """The steps before any override, and their origin."""

    steps: list[StepSpec]
    origin: str


def resolve_settings(  # noqa: PLR0913 - the arguments are public
    preset: Preset | None,
    *,
    chain: str | None = None,
    chain_origin: str = "--chain",
    sets: Sequence[str] = (),
    flags: Sequence[Override] = (),
    rearrangements: Sequence[ChainRearrangement] = (),
) -> Settings:
    """Return the settings of a run. A flag takes precedence over ``--set``, ``--set`` over the preset.

    Args:
        preset: the preset; None uses the defaults.
        chain: a chain in the compact notation, which replaces the preset's chain; None: the preset's chain is
            used.
        chain_origin: the origin of ``chain``, such as a flag.
        sets: arguments of ``--set``, see `parse_set`. A sampler that is not in the chain is inserted at its stage.
        flags: overrides that take precedence over ``sets``.
        rearrangements: changes of the selecting step and of the order. The selecting step is replaced first. The
            order is changed last, so a flag for a step that is left out has no effect, as in llama.cpp.

    Raises ``PresetError`` that begins with the origin of the value that cannot be used.
    """
    overrides = [parse_set(argument) for argument in sets]
    overrides += flags
    steps, origin = _starting_chain(preset, chain, chain_origin, last_phase_chain(overrides))
    for rearrangement in rearrangements:
        steps = replace_selector(steps, rearrangement, chain_origin)
    values = _starting_values(preset)
    for override in overrides:
        setting = find_setting_name(override.target)
        if setting is None:
            steps = override_step(steps, override)
        else:
            values[setting] = _check_setting(setting, override, values[setting])
    ignored_flags: list[IgnoredFlag] = []
    for rearrangement in rearrangements:
        ordered_steps = order_steps(steps, rearrangement)
        ignored_flags += _flags_of_removed_steps(steps, ordered_steps, rearrangement.origin)
        steps = ordered_steps
    ignored_flags += _flags_of_inactive_steps(steps)
    grammar_folder = None
    if preset is not None and values["grammar"].origin == _origin(preset):
        grammar_folder = preset_folder(preset)
    return Settings(
        tuple(steps),
        values,
        origin,
        grammar_folder=grammar_folder,
        ignored_flags=tuple(ignored_flags),
    )


def _flags_of_removed_steps(
    steps: Sequence[StepSpec], remaining_steps: Sequence[StepSpec], rearranging_flag: str
) -> Iterator[IgnoredFlag]:
    """Yield the flags that set a parameter of a step that was removed, unless the step was off."""
    remaining_ids = {id(step) for step in remaining_steps}
    removed_steps = [step for step in steps if id(step) not in remaining_ids and not step.is_off]
    for step in removed_steps:
        flags = _distinct(_flag_by_parameter(step).values())
        for flag in flags:
            yield IgnoredFlag(flag, f"{rearranging_flag} leaves its sampler out")
        # A watermark of the preset is reported, too, because the user expects the text to be marked.
        if step.name == WATERMARK and not flags:
            yield IgnoredFlag(WATERMARK, f"{rearranging_flag} leaves the watermark out")


def _flag_by_parameter(step: StepSpec) -> dict[str, str]:
    """Return the parameters of a step that flags have set, each with its flag."""
    return {name: origin for name, origin in step.origins.items() if origin.startswith("--")}


def _distinct(flags: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(flags))


def _flags_of_inactive_steps(steps: Sequence[StepSpec]) -> Iterator[IgnoredFlag]:
    """Yield the flags that set a parameter without effect, unless a flag turned the step or parameter off."""
    for step in steps:
        about = step.sampler.about
        flag_by_parameter = _flag_by_parameter(step)
        is_turned_off_by_flag = not flag_by_parameter.keys().isdisjoint(about.off_values)
        if step.is_off and not is_turned_off_by_flag:
            values = " and ".join(_name_and_value(step, name) for name in about.off_values)
            for flag in _distinct(flag_by_parameter.values()):
                if flag != "--chain":
                    yield IgnoredFlag(flag, f"{step.name} is off, with {values}")
            continue
        for name, switch in about.inactive_while_off.items():
            is_switched_off = getattr(step.sampler, switch) == about.off_values[switch]
            if name in flag_by_parameter and switch not in flag_by_parameter and is_switched_off:
                yield IgnoredFlag(flag_by_parameter[name], f"{step.name} has {_name_and_value(step, switch)}")


def _name_and_value(step: StepSpec, name: str) -> str:
    """Return a parameter and its value, as in ``top_k 40``; a number has no trailing zeros."""
    value = getattr(step.sampler, name)
    text = f"{value:g}" if isinstance(value, (int, float)) else str(value)
    return f"{name} {text}"


def preset_folder(preset: Preset) -> Path | None:
    """Return the folder that relative paths in a preset count from; None if the preset is not the user's file."""
    if preset.source in ("", "built-in", "model"):
        return None
    return Path(preset.source).parent


def _origin(preset: Preset) -> str:
    return f"preset {preset.name}".rstrip()


def last_phase_chain(overrides: Sequence[Override]) -> tuple[str, Any] | None:
    """Return the origin and the chain of the last phase that an override sets; None if there is none."""
    for override in reversed(overrides):
        if override.target == "phases":
            phases = _check_setting("phases", override, SettingValue(None, "default")).value
            chain = last_chain(phases)
            return None if chain is None else (override.origin, chain)
    return None


def _starting_chain(
    preset: Preset | None, chain: str | None, chain_origin: str, phase_chain: tuple[str, Any] | None
) -> _StartingChain:
    # ``chain``: in the compact notation. ``phase_chain``: the origin and the chain of a last phase that replaces
    # the preset's chain.
    preset = preset or Preset()
    if phase_chain is not None:
        origin, phase_steps = phase_chain
        if chain is not None:
            problem = "the last phase has a chain, and another chain is given"
            raise PresetError(problem, origin=origin, advice="write one of them")
        message_start = f"{origin}: "
        samplers = parse_chain(phase_steps)
    elif chain is not None:
        origin = chain_origin
        message_start = f"{origin}: " if origin else ""
        try:
            samplers = parse_chain(chain)
        except SamplingError as error:
            raise PresetError.of(error).within(origin) from None
    else:
        origin = _origin(preset) if preset.has_chain else "default"
        message_start = f"{preset.origin}: " if preset.origin else ""
        samplers = preset.samplers()
    steps = [
        StepSpec.from_origin(sampler, origin, f"{message_start}chain[{number}].{sampler.about.name}")
        for number, sampler in enumerate(samplers)
    ]
    if not samplers or not samplers[-1].about.is_selector:
        # A chain without a selecting step makes a plain draw. Other functions need a last step that selects.
        steps.append(StepSpec.from_origin(parse_chain(["dist"])[0], "default"))
    return _StartingChain(steps, origin)


def _starting_values(preset: Preset | None) -> dict[str, SettingValue]:
    """Return the values before any override: those of the preset, or else the defaults."""
    values = {name: SettingValue(setting.unset_value, "default") for name, setting in SETTINGS.items()}
    if preset is not None:
        values |= {name: SettingValue(value, _origin(preset)) for name, value in preset.settings.items()}
    return values


def _check_setting(name: str, override: Override, earlier: SettingValue) -> SettingValue:
    """Return the value of a setting, checked by the rules of a preset. None becomes the default."""
    new_value = override.value
    # A preset does not allow 0 tokens. A run with 0 tokens only reads its prompt.
    is_zero_tokens = name == "max_tokens" and type(new_value) is int and new_value == 0
    if is_zero_tokens:
        return SettingValue(0, override.origin)
    if SETTINGS[name].kind.has_parts and isinstance(new_value, Mapping):
        earlier_parts = earlier.value or {}
        new_value = {**earlier_parts, **new_value}
    try:
        value = getattr(Preset.from_table({name: new_value}, origin=""), name)
    except PresetError as error:
        raise _error_at_override(error, name, override.origin) from None
    if value is None:
        value = SETTINGS[name].unset_value
    return SettingValue(value, override.origin)


def _error_at_override(error: PresetError, name: str, origin: str) -> PresetError:
    """Return the error about a setting, whose place begins with the setting, at the origin of an override."""
    place = error.place[1:]  # the origin names the setting
    origin_names_part = SETTINGS[name].kind.has_parts and not origin.endswith(name)
    if origin_names_part:
        place = place[1:]
    is_flag = origin.startswith("-") and not origin.startswith("--set")
    if is_flag and place and isinstance(place[0], int):
        # A flag takes one string, so the user has written no list whose index could be named.
        return error.at(origin, place[1:])
    return error.at(origin + place_suffix(place))


def override_settings(settings: Settings, override: Override) -> Settings:
    setting = find_setting_name(override.target)
    if setting is None:
        return change_chain(settings, (override,))
    values = {**settings.values, setting: _check_setting(setting, override, settings[setting])}
    folder = None if setting == "grammar" else settings.grammar_folder
    return replace(settings, values=values, grammar_folder=folder)


def change_chain(
    settings: Settings,
    overrides: Iterable[Override],
    rearrangements: Sequence[ChainRearrangement] = (),
    chain_origin: str = "--chain",
) -> Settings:
    """Return the settings with another selecting step, other parameters and another order."""
    # The changes are made in this sequence. ``chain_origin``: as in `resolve_settings`
    steps = list(settings.steps)
    for rearrangement in rearrangements:
        steps = replace_selector(steps, rearrangement, chain_origin)
    for override in overrides:
        steps = override_step(steps, override)
    for rearrangement in rearrangements:
        steps = order_steps(steps, rearrangement)
    return replace(settings, steps=tuple(steps))


def replace_chain(settings: Settings, chain: str, origin: str) -> Settings:
    # ``chain``: in the compact notation
    resolved = resolve_settings(None, chain=chain, chain_origin=origin)
    steps = [replace(step, origin=origin, location="") for step in resolved.steps]
    return replace(settings, steps=tuple(steps), chain_origin=origin)


def replace_preset(settings: Settings, preset: Preset) -> Settings:
    """Return the settings with the chain of a preset, and with all other values that the preset sets."""
    resolved = resolve_settings(preset)
    kept_values = {name: settings[name] for name in SETTINGS if resolved[name].origin == "default"}
    keeps_grammar = "grammar" in kept_values
    folder = settings.grammar_folder if keeps_grammar else resolved.grammar_folder
    return replace(resolved, values={**resolved.values, **kept_values}, grammar_folder=folder)


def settings_text(settings: Settings) -> str:
    """Return the settings as the text of a preset, for `preset_of_text`."""
    chain = [{step.name: step.sampler.model_dump()} for step in settings.steps]
    values = {name: settings[name].value for name in SETTINGS}
    if values["phases"] is not None:
        earlier_phases = values["phases"][:-1]
        values["phases"] = [*earlier_phases, {}]  # the last phase has the chain of the settings
    given_values = {name: value for name, value in values.items() if value not in (None, [])}
    return write_yaml({"chain": chain, **given_values})


def preset_of_text(text: str, origin: str) -> Preset:
    # ``origin``: name of the preset, which also begins the messages
    return Preset.from_table(check_table(parse_yaml(text, origin), origin), origin, name=origin)
