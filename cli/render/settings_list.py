"""The output of `gen settings`: a table of settings, and the facts about one setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..text import output_width, print_wrapped
from .table import Column, fact_lines, print_table

if TYPE_CHECKING:
    from ...presets.settings_list import ListedSetting

_LABEL_WIDTH = 10
_NO_DEFAULT = "-"


def show_settings_list(settings: Sequence[ListedSetting]) -> None:
    """Print a table of settings: name, default, allowed values, meaning."""
    rows = [(each.name, each.default_text or _NO_DEFAULT, each.kind, each.help) for each in settings]
    print_table(["setting", "default", "allowed", Column("meaning", is_text=True)], rows)


def show_setting(setting: ListedSetting) -> None:
    """Print the facts about one setting."""
    print_wrapped(f"{setting.name}: {setting.help}\n")
    facts = [
        ("allowed", setting.kind),
        ("default", setting.default_text or _NO_DEFAULT),
        ("flags", ", ".join(setting.flags) or f"--set {setting.name}=…"),
        *((tool, ", ".join(names)) for tool, names in setting.names.items()),
    ]
    width = max(_LABEL_WIDTH, *(len(label) for label, _ in facts)) + 1
    print("\n".join(fact_lines(facts, width, output_width())))
