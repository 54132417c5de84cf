"""The flags of the rules of a text: bans, the loop guard, the phases of a text, and others of the table."""

from __future__ import annotations

from dataclasses import dataclass

from ...presets.setting_table import BANS, GUIDANCE, REASONING, SETTINGS, flags_in
from ..flags import Options, with_flags


@dataclass(frozen=True, kw_only=True)
@with_flags(*flags_in(GUIDANCE))
class GuidanceOptions(Options):
    """The flags of a negative prompt, which the rules of `gen next` consist of."""


@dataclass(frozen=True, kw_only=True)
@with_flags(*flags_in(BANS), *flags_in(REASONING))
class TextRuleOptions(Options):
    """The flags of all rules of a text."""

    guidance: GuidanceOptions


@dataclass(frozen=True, kw_only=True)
@with_flags(*SETTINGS["field_confidence"].flags)
class MeasuredTextOptions(TextRuleOptions):
    """The flags of all rules of a text whose answer can show measurements."""
