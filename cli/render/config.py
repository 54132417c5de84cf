"""The settings that `--show-config` prints, each with its origin."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...common.text import count_noun
from .text import terminal_safe

if TYPE_CHECKING:
    from ...grammars.spec import GrammarSpec
    from ...presets.settings import Settings, SettingValue
    from ...samplers.chain import StepSpec


_MAX_INLINE_CHARACTERS = 60
"""A grammar up to this length is printed whole: with it, a row still fits into a wide terminal."""
_GAP_COLUMNS = 2
"""Between two columns."""
_INDENT = 4
"""Of what is below a name on a narrow terminal."""


SETTING_NAMES = ("seed", "max_tokens", "stop", "system", "grammar")
"""The settings beside the chain."""
Row = tuple[str, str, str]
"""Name, value and origin of a setting."""


def show_settings(settings: Settings, grammar: GrammarSpec | None, model: SettingValue) -> None:
    """Print the model, the resolved chain and the other settings to stdout, each with its origin.

    A step that is off is marked. The names of files are data: a terminal gets them without control characters.
    """
    others = [
        (name, _format_value(value.value, name), value.origin)
        for name in SETTING_NAMES
        if name != "grammar"
        for value in (getattr(settings, name),)
    ]
    others.append(("grammar", "none" if grammar is None else grammar_summary(grammar), settings.grammar.origin))
    named = ("model", model.value, model.origin)
    chain = ("chain", "", settings.chain_origin)
    rows = [chain, *_rows_of_steps(settings.steps), *others]
    # The name of a model may be long: the columns of the others do not follow it.
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [
        terminal_safe(f"{key:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip(), sys.stdout)
        for key, value, origin in (named, *rows)
    ]
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or all(len(line) <= columns and "\n" not in line for line in lines):
        print("\n".join(lines))
    else:
        _print_narrow([named, chain, *_grouped_rows_of_steps(settings.steps), *others], columns)


def chain_summary(steps: Sequence[StepSpec]) -> str:
    """Return a chain in one line, each step with its main parameter: ``top_k=40 > temperature=0.8 > dist``."""
    return " > ".join(map(_step_summary, steps))


def _step_summary(step: StepSpec) -> str:
    main = step.sampler.about.main
    value = "" if main is None else f"={_format_value(getattr(step.sampler, main))}"
    return f"{step.name}{value}{' (off)' if step.is_off else ''}"


def _rows_of_steps(steps: Sequence[StepSpec]) -> Iterator[Row]:
    """A row for each parameter of each step."""
    for number, step in enumerate(steps):
        values = step.sampler.model_dump()
        if not values:
            yield f"  [{number}] {step.name}", "", _origin(step, step.origin)
        for parameter, value in values.items():
            origin = _origin(step, step.origins.get(parameter, "default"))
            yield f"  [{number}] {step.name}.{parameter}", _format_value(value), origin


def _grouped_rows_of_steps(steps: Sequence[StepSpec]) -> Iterator[Row]:
    """A row for each step, and one for each of its parameters below it: their names are shorter."""
    for number, step in enumerate(steps):
        yield f"  [{number}] {step.name}", "", _origin(step, step.origin)
        for parameter, value in step.sampler.model_dump().items():
            yield f"      {parameter}", _format_value(value), step.origins.get(parameter, "default")


def _origin(step: StepSpec, origin: str) -> str:
    return f"{origin}  (off)" if step.is_off else origin


def _print_narrow(rows: Sequence[Row], columns: int) -> None:
    """Print rows in lines of at most ``columns`` columns, which end between words.

    What is too long for its column stands below the name.
    """
    from rich.cells import cell_len

    from .text import visible

    indent = max(cell_len(row[0]) for row in rows) + _GAP_COLUMNS
    free = columns - indent
    value_columns = max((cell_len(value) for _, value, _ in rows if cell_len(value) <= free // 2), default=0)
    for key, *cells in rows:
        value, origin = (" ".join(visible(cell).split("\n")) for cell in cells)
        start = indent + value_columns + _GAP_COLUMNS
        name = f"{key:{indent}}"
        if cell_len(value) <= value_columns and _longest_word(origin) <= columns - start:
            first, *more = _wrap(origin, columns - start)
            print(f"{name}{value}{' ' * (value_columns - cell_len(value) + _GAP_COLUMNS)}{first}")
            print("".join(f"{' ' * start}{line}\n" for line in more), end="")
            continue
        below = max(_longest_word(value), _longest_word(origin)) > free
        left = _INDENT if below else indent
        lines = [line for cell in (value, origin) if cell for line in _wrap(cell, columns - left)]
        if below:
            print(key)
        else:
            print(f"{name}{lines.pop(0)}")
        print("".join(f"{' ' * left}{line}\n" for line in lines), end="")


def _longest_word(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split()), default=0)


def _wrap(text: str, columns: int) -> list[str]:
    """The lines of a text; a word that is longer than a line is divided."""
    from rich.text import Text

    from .output_console import OutputConsole

    lines = Text(text).wrap(OutputConsole(width=columns), columns, overflow="fold")
    return [line.plain.rstrip() for line in lines] or [""]


def grammar_summary(grammar: GrammarSpec) -> str:
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
