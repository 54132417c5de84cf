"""Settings that change while they are in use, as in a chat; each value keeps its origin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from .errors import PresetError
from .override import SETTINGS, Override, setting_of
from .preset import Preset
from .resolve import Settings, checked_setting, resolve_settings
from .step_override import override_step
from .yaml_reader import check_table, parse_yaml


def override_settings(settings: Settings, override: Override) -> Settings:
    """Return the settings with one value changed. Raises ``PresetError``, which begins with its origin."""
    setting = setting_of(override.target)
    if setting is None:
        return replace(settings, steps=tuple(override_step(settings.steps, override)))
    changed: dict[str, Any] = {setting: checked_setting(setting, override)}
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
