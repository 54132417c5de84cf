"""The settings of a run, each with its origin: flag > `--set` > preset > default.

Settings can change while they are in use, as in a chat; each value keeps its origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..samplers.base import Sampler
from ..samplers.building import parse_chain
from ..samplers.chain import StepSpec
from ..samplers.errors import SamplingError
from .errors import PresetError
from .overrides import (
    SETTINGS,
    Arrangement,
    Override,
    order_steps,
    override_step,
    parse_set,
    replace_selector,
    setting_of,
)
from .preset import Preset
from .yaml_reader import check_table, parse_yaml

_MAX_TOKENS = 256
"""How many tokens are made if no setting says otherwise; a length that fits a terminal."""
_PLACE_IN_LIST = re.compile(r"^\[\d+\]")


@dataclass(frozen=True)
class SettingValue:
    """A setting and its origin: ``default``, ``preset creative``, ``--set top_k.k`` or ``--top-k``."""

    value: Any
    origin: str


class IgnoredValue(NamedTuple):
    """A flag without effect, and why, as the end of a sentence: ``--samplers leaves its sampler out``."""

    flag: str
    reason: str


@dataclass(frozen=True)
class Settings:
    """All settings of a run.

    Attributes:
        steps: the chain, for `logitsmith.samplers.build`; the last step selects.
        chain_origin: where the chain as a whole came from.
        grammar_base: the folder that a grammar's file is relative to: the preset's, if the preset names the
            grammar; else None.
        ignored: the flags whose sampler an arrangement leaves out, or which is off.
    """

    steps: tuple[StepSpec, ...]
    seed: SettingValue
    max_tokens: SettingValue
    stop: SettingValue
    system: SettingValue
    grammar: SettingValue
    chain_origin: str
    grammar_base: Path | None = None
    ignored: tuple[IgnoredValue, ...] = ()

    def samplers(self) -> list[Sampler]:
        """Return the samplers of the chain, those that are off included."""
        return [step.sampler for step in self.steps]

    @property
    def token_limit(self) -> int | None:
        """How many tokens may be written; None: no limit, which is set as -1."""
        limit: int = self.max_tokens.value
        return None if limit == -1 else limit

    @property
    def has_default_length(self) -> bool:
        """True if nobody set a length. Such a length should not break off the sentence of a grammar."""
        return self.max_tokens.origin == "default"


class _StartingChain(NamedTuple):
    """The steps before any override, and where they came from."""

    steps: list[StepSpec]
    origin: str


def resolve_settings(
    preset: Preset | None,
    *,
    chain: str | None = None,
    sets: Sequence[str] = (),
    flags: Sequence[Override] = (),
    arrangements: Sequence[Arrangement] = (),
) -> Settings:
    """Return the settings of a run. Of several values for one setting, a flag goes before a ``--set``, and so on.

    Args:
        preset: the preset; None: the defaults.
        chain: a chain in the compact notation; it replaces the preset's.
        sets: texts for `parse_set`. A sampler that the chain lacks is put in at its stage.
        flags: overrides that go before those.
        arrangements: changes of selector and order. The selector is replaced first and the order changed last, so
            a flag for a step that is left out has no effect, as in llama.cpp.

    Raises ``PresetError`` that begins with the origin of the value that cannot be used.
    """
    steps, chain_origin = _starting_chain(preset, chain)
    for arrangement in arrangements:
        steps = replace_selector(steps, arrangement)
    values = {name: _starting_value(preset, name) for name in SETTINGS}
    for override in (*map(parse_set, sets), *flags):
        setting = setting_of(override.target)
        if setting is None:
            steps = override_step(steps, override)
        else:
            values[setting] = _checked_setting(setting, override)
    ignored: list[IgnoredValue] = []
    for arrangement in arrangements:
        arranged = order_steps(steps, arrangement)
        ignored += _ignored_values(steps, arranged, arrangement.origin)
        steps = arranged
    ignored += _values_of_steps_that_are_off(steps)
    names_grammar = preset is not None and values["grammar"].origin == _origin(preset)
    base = preset_folder(preset) if preset is not None and names_grammar else None
    return Settings(tuple(steps), chain_origin=chain_origin, grammar_base=base, ignored=tuple(ignored), **values)


def _ignored_values(
    steps: Sequence[StepSpec], arranged: Sequence[StepSpec], because_of: str
) -> Iterator[IgnoredValue]:
    """The flags that set a parameter of a step which is left out. A step that was off anyway is not missed."""
    remaining = {id(step) for step in arranged}
    for step in steps:
        if id(step) not in remaining and not step.is_off:
            flags = (origin for origin in step.origins.values() if origin.startswith("--"))
            yield from (
                IgnoredValue(flag, f"{because_of} leaves its sampler out") for flag in dict.fromkeys(flags)
            )


def _values_of_steps_that_are_off(steps: Sequence[StepSpec]) -> Iterator[IgnoredValue]:
    """The flags that set a parameter of a step which is off, or idle, unless a flag turned it off."""
    for step in steps:
        about = step.sampler.about
        flags = {name: origin for name, origin in step.origins.items() if origin.startswith("--")}
        if step.is_off and flags.keys().isdisjoint(about.off_values):
            values = " and ".join(_value_of(step, name) for name in about.off_values)
            yield from (
                IgnoredValue(flag, f"{step.name} is off, with {values}")
                for flag in dict.fromkeys(flags.values())
                if flag != "--chain"
            )
            continue
        for name, switch in about.inactive_while_off.items():
            is_neutral = getattr(step.sampler, switch) == about.off_values[switch]
            if name in flags and switch not in flags and is_neutral:
                yield IgnoredValue(flags[name], f"{step.name} has {_value_of(step, switch)}")


def _value_of(step: StepSpec, name: str) -> str:
    """A parameter and its value, as a person writes them: a number without idle zeros."""
    value = getattr(step.sampler, name)
    return f"{name} {f'{value:g}' if isinstance(value, (int, float)) else value}"


def preset_folder(preset: Preset) -> Path | None:
    """Return the folder that a preset's files are relative to; None if it is not a file of the user's."""
    return Path(preset.source).parent if preset.source not in ("", "built-in", "model") else None


def _default(name: str) -> Any:
    return {"max_tokens": _MAX_TOKENS, "stop": []}.get(name)


def _origin(preset: Preset) -> str:
    return f"preset {preset.name}".rstrip()


def _starting_chain(preset: Preset | None, chain: str | None) -> _StartingChain:
    preset = preset or Preset()
    if chain is not None:
        origin = "--chain"
        message_start = "--chain: "
        try:
            samplers = parse_chain(chain)
        except SamplingError as error:
            raise PresetError(f"--chain: {error}") from None
    else:
        origin = _origin(preset) if "chain" in preset.model_fields_set else "default"
        message_start = f"{preset.origin}: " if preset.origin else ""
        samplers = preset.samplers()
    steps = [
        StepSpec.from_origin(sampler, origin, f"{message_start}chain[{number}].{sampler.about.name}")
        for number, sampler in enumerate(samplers)
    ]
    if not samplers or not samplers[-1].about.is_selector:
        # What a chain does without a selecting step, spelled out.
        steps.append(StepSpec.from_origin(parse_chain(["dist"])[0], "default"))
    return _StartingChain(steps, origin)


def _starting_value(preset: Preset | None, name: str) -> SettingValue:
    if preset is not None and getattr(preset, name) is not None and name in preset.model_fields_set:
        return SettingValue(getattr(preset, name), _origin(preset))
    return SettingValue(_default(name), "default")


def _checked_setting(name: str, override: Override) -> SettingValue:
    """Return a setting's value, checked as a preset's would be; None stands for the default.

    No token at all is for a single run, which then only reads its prompt; a preset has no use for it.
    """
    if name == "max_tokens" and type(override.value) is int and override.value == 0:
        return SettingValue(0, override.origin)
    try:
        value = getattr(Preset.from_table({name: override.value}, origin=""), name)
    except PresetError as error:
        message = str(error).removeprefix(f": {name}")
        if not override.origin.startswith("--set"):  # each of a flag's texts was typed alone: no place in a list
            message = _PLACE_IN_LIST.sub("", message)
        raise PresetError(f"{override.origin}{message}") from None
    return SettingValue(_default(name) if value is None else value, override.origin)


def override_settings(settings: Settings, override: Override) -> Settings:
    """Return the settings with one value changed. Raises ``PresetError``, which begins with its origin."""
    setting = setting_of(override.target)
    if setting is None:
        return replace(settings, steps=tuple(override_step(settings.steps, override)))
    changed: dict[str, Any] = {setting: _checked_setting(setting, override)}
    if setting == "grammar":
        changed["grammar_base"] = None
    return replace(settings, **changed)


def replace_chain(settings: Settings, chain: str, origin: str) -> Settings:
    """Return the settings with another chain, in the compact notation. Raises ``PresetError``."""
    try:
        resolved = resolve_settings(None, chain=chain)
    except PresetError as error:
        raise PresetError(f"{origin}: {str(error).removeprefix('--chain: ')}") from None
    steps = [
        replace(
            step,
            origin=origin,
            origins={name: origin if place == "--chain" else place for name, place in step.origins.items()},
            location="",
        )
        for step in resolved.steps
    ]
    return replace(settings, steps=tuple(steps), chain_origin=origin)


def replace_preset(settings: Settings, preset: Preset) -> Settings:
    """Return the settings with a preset's chain, and with those other values that the preset has."""
    resolved = resolve_settings(preset)
    kept: dict[str, Any] = {
        name: getattr(settings, name) for name in SETTINGS if getattr(resolved, name).origin == "default"
    }
    if "grammar" in kept:
        kept["grammar_base"] = settings.grammar_base
    return replace(resolved, **kept)


def settings_text(settings: Settings) -> str:
    """The settings as the text of a preset, for `preset_of_text`."""
    table = {name: getattr(settings, name).value for name in SETTINGS}
    chain = [{step.name: step.sampler.model_dump()} for step in settings.steps]
    written = {name: value for name, value in table.items() if value not in (None, [])}
    return yaml.safe_dump({"chain": chain, **written}, allow_unicode=True, sort_keys=False)


def preset_of_text(text: str, origin: str) -> Preset:
    """Return the preset of a text. Raises ``PresetError``.

    ``origin``: its name, and what a message begins with.
    """
    return Preset.from_table(check_table(parse_yaml(text, origin), origin), origin, name=origin)
