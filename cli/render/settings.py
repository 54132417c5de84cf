"""The settings of a run, as `--show-config` and `/settings` print them, and summaries of its chain and grammar."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...common.text import count_noun
from ..text import output_width, terminal_safe, text_width
from .table import Column, Table

if TYPE_CHECKING:
    from ...grammars.spec import GrammarSpec
    from ...presets.settings import Settings, SettingValue
    from ...samplers.chain import StepSpec

SettingRow = tuple[str, str, str]  # name, value and origin


def show_settings(
    settings: Settings, grammar: GrammarSpec | None, model: SettingValue, device: SettingValue
) -> None:
    """Print the model, the device, the chain and all other settings to stdout, each with its origin."""
    # A step that is off is marked. Control characters in the names of files are made visible on a terminal.
    from ...presets.setting_table import SETTINGS

    other_rows = [
        (name, _config_value(value.value, name), value.origin)
        for name, value in settings.values.items()
        if name != "grammar" and (value.origin != "default" or not SETTINGS[name].is_shown_if_set)
    ]
    other_rows.append(
        ("grammar", "none" if grammar is None else grammar_summary(grammar), settings["grammar"].origin)
    )
    # The rows of model and device do not count for the widths, because they may be long.
    first_rows = [("model", model.value, model.origin), ("device", device.value, device.origin)]
    chain_row = ("chain", "", settings.chain_origin)
    rows = [chain_row, *_rows_of_steps(settings.steps), *other_rows]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    columns = [Column(width=name_width), Column(width=value_width), Column()]
    lines = Table(columns, [*first_rows, *rows], gap=_GAP).render()
    width = output_width()
    if width is not None and max(map(text_width, lines)) > width:
        lines = _narrow_table([*first_rows, *rows]).render(width)
    print(terminal_safe("\n".join(lines), sys.stdout))


_GAP = 2
_SHORT_VALUE = 12  # columns of the longest value whose origin is aligned with other origins in a narrow table


def _narrow_table(rows: Sequence[SettingRow]) -> Table:
    """Return a table with two columns: a name, and a text of the value and its origin."""
    value_width = max(len(value) for _, value, _ in rows if len(value) <= _SHORT_VALUE)
    gap = " " * _GAP
    narrow_rows = []
    for name, value, origin in rows:
        value_in_one_line = " ".join(value.split())
        narrow_rows.append((name, f"{value_in_one_line:{value_width}}{gap}{origin}"))
    return Table([Column(), Column(is_text=True)], narrow_rows, gap=_GAP)


def _rows_of_steps(steps: Sequence[StepSpec]) -> Iterator[SettingRow]:
    """Yield a row for each parameter."""
    for number, step in enumerate(steps):
        values = step.sampler.model_dump()
        if not values:
            yield f"  [{number}] {step.name}", "", _origin(step, step.origin)
        for parameter, value in values.items():
            origin = _origin(step, step.origins.get(parameter, "default"))
            yield f"  [{number}] {step.name}.{parameter}", _config_value(value), origin


def _origin(step: StepSpec, origin: str) -> str:
    return f"{origin}  (off)" if step.is_off else origin


def _config_value(value: Any, name: str = "") -> str:
    if value is None or value == []:
        return "random" if name == "seed" else "none"
    if value == -1 and name == "max_tokens":
        return "no limit"
    if isinstance(value, (bool, list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)


def chain_summary(steps: Sequence[StepSpec]) -> str:
    """Return a chain in one line, each step with its main parameter: ``top_k=40 > temperature=0.8 > dist``."""
    return " > ".join(map(_step_summary, steps))


def _step_summary(step: StepSpec) -> str:
    main = step.sampler.about.main_parameter
    value = "" if main is None else f"={_config_value(getattr(step.sampler, main))}"
    return f"{step.name}{value}{' (off)' if step.is_off else ''}"


# Length of the longest grammar that is printed in full. With it, a row still fits on a wide terminal.
_MAX_INLINE_CHARACTERS = 60


def grammar_summary(grammar: GrammarSpec) -> str:
    """Return a grammar in one line: its text if that is short, otherwise its name and number of lines."""
    source = grammar.source
    if len(source) <= _MAX_INLINE_CHARACTERS:
        summary = repr(source)
    else:
        summary = f"{grammar.label} ({count_noun(len(source.splitlines()), 'line')})"
    if grammar.root != "root":
        summary += f", from rule {grammar.root}"
    if grammar.after is not None:
        summary += f", after {grammar.after!r}"
    return summary
