"""What a run goes by in the end, and where each value came from: flag > --set > preset > default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..samplers import Sampler, SamplingError, parse_chain
from . import chain_arrangement
from .chain_arrangement import Arrangement
from .errors import PresetError
from .override import SETTINGS, Override, parse_set, setting_of
from .preset import Preset
from .step_override import ResolvedStep, override_step, resolved

MAX_TOKENS = 256
"""How many tokens are made if nothing says otherwise."""


@dataclass(frozen=True)
class SettingValue:
    """A setting and its origin: ``default``, ``preset creative``, ``--set top_k.k`` or ``--top-k``."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Settings:
    """Everything that a run goes by. The last step selects."""

    steps: tuple[ResolvedStep, ...]
    seed: SettingValue
    max_tokens: SettingValue
    stop: SettingValue
    system: SettingValue
    grammar: SettingValue
    chain_origin: str
    grammar_base: Path | None = None
    """What a grammar's file is relative to: the preset's folder, if the preset names it; else None."""

    def samplers(self) -> list[Sampler]:
        """The samplers of the chain, those that are off included; for `logitsmith.samplers.chain_builder`.

        Each knows where it was written, for the complaints that come only with a vocabulary.
        """
        return [step.placed() for step in self.steps]


def resolve_settings(
    preset: Preset | None,
    *,
    chain: str | None = None,
    sets: Sequence[str] = (),
    flags: Sequence[Override] = (),
    wishes: Sequence[Arrangement] = (),
) -> Settings:
    """Return the settings of a run; of the values for one thing, a flag goes before a ``--set``, and so on.

    ``chain`` is the compact notation and replaces the preset's chain; ``sets`` are texts for `parse_set`. An
    override of a sampler that the chain lacks puts it in at its place in llama.cpp's default order. ``wishes``
    change the end first and the order last, so that a flag for a step which stays out is without effect there.
    Raises ``PresetError`` with the origin of the value that cannot be used.
    """
    steps, chain_origin = _starting_chain(preset, chain)
    for wish in wishes:
        steps = chain_arrangement.end(steps, wish)
    values = {name: _starting_value(preset, name) for name in SETTINGS}
    for override in (*map(parse_set, sets), *flags):
        setting = setting_of(override.target)
        if setting is None:
            steps = override_step(steps, override)
        else:
            values[setting] = _setting(setting, override)
    for wish in wishes:
        steps = chain_arrangement.order(steps, wish)
    ours = preset is not None and values["grammar"].origin == _origin(preset)
    base = preset_folder(preset) if ours and preset is not None else None
    return Settings(tuple(steps), chain_origin=chain_origin, grammar_base=base, **values)


def preset_folder(preset: Preset) -> Path | None:
    """The folder that a preset's files are relative to; None if it is no file of the user's."""
    return Path(preset.source).parent if preset.source not in ("", "built-in", "model") else None


def _default(name: str) -> Any:
    return {"max_tokens": MAX_TOKENS, "stop": []}.get(name)


def _origin(preset: Preset) -> str:
    return f"preset {preset.name}".rstrip()


def _starting_chain(preset: Preset | None, chain: str | None) -> tuple[list[ResolvedStep], str]:
    preset = preset or Preset()
    if chain is not None:
        origin = place = "--chain"
        try:
            samplers = parse_chain(chain)
        except SamplingError as error:
            raise PresetError(f"--chain: {error}") from None
    else:
        origin = _origin(preset) if "chain" in preset.model_fields_set else "default"
        place = preset.place
        samplers = preset.samplers()
    start = f"{place}: " if place else ""
    steps = [
        resolved(sampler, origin, f"{start}chain[{number}].{sampler.about.name}")
        for number, sampler in enumerate(samplers)
    ]
    if not samplers or not samplers[-1].about.selects:
        # What a chain does without a selecting step, spelled out.
        steps.append(resolved(parse_chain(["dist"])[0], "default"))
    return steps, origin


def _starting_value(preset: Preset | None, name: str) -> SettingValue:
    if preset is not None and getattr(preset, name) is not None and name in preset.model_fields_set:
        return SettingValue(getattr(preset, name), _origin(preset))
    return SettingValue(_default(name), "default")


def _setting(name: str, override: Override) -> SettingValue:
    """The value of a setting, checked as a preset's would be; None stands for the default."""
    try:
        value = getattr(Preset.from_table({name: override.value}, place=""), name)
    except PresetError as error:
        rest = str(error).removeprefix(f": {name}")
        raise PresetError(f"{override.origin}{rest}") from None
    return SettingValue(_default(name) if value is None else value, override.origin)
