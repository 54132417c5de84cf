"""The settings that `--show-config` prints, each with its origin."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from ...common import count_noun
from .text import terminal_safe

if TYPE_CHECKING:
    from ...grammars import GrammarSpec
    from ...presets import Settings
    from ..inputs.model_choice import ModelChoice


_MAX_INLINE_CHARACTERS = 60
"""A grammar up to this length is printed whole: with it, a row still fits into a wide terminal."""


def show_settings(settings: Settings, grammar: GrammarSpec | None, model: ModelChoice) -> None:
    """Print the model, the resolved chain and the other settings to stdout, each with its origin.

    The names of files are data: a terminal gets them without control characters.
    """
    rows: list[tuple[str, str, str]] = [("chain", "", settings.chain_origin)]
    for number, step in enumerate(settings.steps):
        name = step.sampler.about.name
        off = "  (off: dropped)" if step.is_off else ""
        values = step.sampler.model_dump()
        if not values:
            rows.append((f"  [{number}] {name}{off}", "", step.origin))
        for parameter, value in values.items():
            origin = step.origins.get(parameter, "default")
            rows.append((f"  [{number}] {name}.{parameter}{off}", _format_value(value), origin))
    for name in ("seed", "max_tokens", "stop", "system"):
        value = getattr(settings, name)
        rows.append((name, _format_value(value.value, name), value.origin))
    rows.append(("grammar", "none" if grammar is None else _summary(grammar), settings.grammar.origin))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    # The name of a model may be long: the columns of the others do not follow it.
    named = ("model", terminal_safe(model.name, sys.stdout), model.origin)
    for key, value, origin in (named, *rows):
        print(f"{key:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip())


def _summary(grammar: GrammarSpec) -> str:
    """A grammar in one line: its text if that is short, else its name and length."""
    source = grammar.source
    title = (
        repr(source)
        if len(source) <= _MAX_INLINE_CHARACTERS
        else f"{grammar.label} ({count_noun(len(source.splitlines()), 'line')})"
    )
    after = "" if grammar.after is None else f", after {grammar.after!r}"
    root = "" if grammar.root == "root" else f", from rule {grammar.root}"
    return f"{title}{root}{after}"


def _format_value(value: Any, name: str = "") -> str:
    if value is None or value == []:
        return "random" if name == "seed" else "none"
    if value == -1 and name == "max_tokens":
        return "no limit"
    if isinstance(value, (bool, list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)
