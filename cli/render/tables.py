"""Tables of samplers, presets and grammars, and the settings of a run, as `--show-config` prints them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ...common.text import count_noun
from .run import terminal_safe, visible

if TYPE_CHECKING:
    from rich.console import Console

    from ...grammars.search import GrammarEntry
    from ...grammars.spec import GrammarSpec
    from ...presets.search import PresetEntry
    from ...presets.settings import Settings, SettingValue
    from ...samplers.base import Sampler
    from ...samplers.chain import StepSpec

PIPED_COLUMNS = 1000
"""Width of a table that is not printed on a terminal, so that no row is wrapped."""
_MIN_TEXT_COLUMNS = 20
"""Columns below which a wrapped text has only one or two words per line, and goes below its row instead."""
_GAP_COLUMNS = 3
"""Spaces between two columns of a table."""
_BLOCK_INDENT = 4
"""Indentation of a text below its name on a narrow terminal."""


def show_samplers(samplers: Sequence[type[Sampler]], plugins: Mapping[str, str]) -> None:
    """Print a table of samplers: name, main parameter with its default, summary, source.

    Args:
        samplers: samplers in the table.
        plugins: names of the samplers of other packages, and the place that each would be loaded from.
    """
    rows = []
    for cls in samplers:
        info = cls.about
        main = f"{info.main_parameter} {_default_text(cls, info.main_parameter)}" if info.main_parameter else ""
        rows.append((info.name, main, info.summary, _short_reference(info.reference)))
    print_table(("sampler", "main parameter", "what it does", "source"), rows, optional_column=3)
    for name, location in sorted(plugins.items()):
        print(f"{name}: offered by another package, {location}")


def _short_reference(reference: str) -> str:
    """Return authors and year of a paper; for a reference without a year, the first system that it names."""
    paper = re.match(r".*?\b\d{4}\b", reference)
    return paper.group() if paper else re.split("[,;]", reference)[0]


_FACT_INDENT = 14
"""Columns before a fact about a sampler, which its title fills."""


def show_sampler(cls: type[Sampler]) -> None:
    """Print the facts about one sampler: formula, off value, source, llama.cpp's variant, parameters."""
    from ...samplers.building import allowed_values

    info = cls.about
    neutral = ", ".join(f"{name} {_format_value(value)}" for name, value in info.off_values.items())
    facts = (
        ("formula", info.formula),
        ("off at", neutral or "never"),
        ("source", info.reference),
        ("llama.cpp", info.llama_cpp),
        ("also named", ", ".join(info.aliases) or "-"),
    )
    print_wrapped(f"{info.name}: {info.summary}\n", 0)
    for name, fact in facts:
        print_wrapped(f"  {name:10}  {fact}", _FACT_INDENT)
    if cls.model_fields:
        print()
        rows = [
            (name, _default_text(cls, name), allowed_values(field), field.description or "")
            for name, field in cls.model_fields.items()
        ]
        print_table(("parameter", "default", "allowed", "meaning"), rows)
    if info.main_parameter:
        example = _default_text(cls, info.main_parameter) if info.example is None else _format_value(info.example)
        print()
        print_wrapped(f"in a preset: {info.name}: {example}", _BLOCK_INDENT)


def _default_text(cls: type[Sampler], parameter: str) -> str:
    """Return the default of a sampler's parameter in the notation of presets."""
    field = cls.model_fields[parameter]
    return _format_value(field.get_default(call_default_factory=True))


def _format_value(value: Any) -> str:
    """Return a value in the notation of presets: maps and lists in brackets, strings in them as in JSON."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_format_item(key)}: {_format_item(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_format_item(item) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_item(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _format_value(value)


def show_presets(entries: Iterable[PresetEntry]) -> None:
    """Print a table of presets: name, folder, description."""
    from ...presets.errors import PresetError
    from ...presets.preset import load_preset

    rows = []
    for entry in entries:
        try:
            description = load_preset(str(entry.path)).description
        except PresetError as error:
            description = f"broken: {error}"
        origin = f"{entry.origin} (hidden)" if entry.is_shadowed else entry.origin
        rows.append((entry.name, origin, description))
    print_table(("preset", "from", "what it is for"), rows)


def show_grammars(entries: Iterable[GrammarEntry]) -> None:
    """Print a table of grammars: name, folder, description."""
    print_table(
        ("grammar", "from", "what it is"), [(entry.name, entry.origin, entry.description) for entry in entries]
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], optional_column: int | None = None) -> None:
    """Print a table. Rows are wrapped to the width of a terminal, and not wrapped elsewhere. No cell is truncated.

    On a terminal that is too narrow for the widest column, each row becomes a block of lines.

    Args:
        header: titles of the columns.
        rows: cells of each row.
        optional_column: index of a column that is left out if the table does not fit; None to leave out no column.
    """
    from .console import OutputConsole

    console = OutputConsole(width=None if sys.stdout.isatty() else PIPED_COLUMNS, highlight=False)
    cells = [[visible(cell) for cell in row] for row in rows]
    if optional_column is not None and sum(_column_widths(header, cells)) > console.width:
        header = _without(header, optional_column)
        cells = [_without(row, optional_column) for row in cells]
    widths = _column_widths(header, cells)
    widest = widths.index(max(widths))
    remaining_width = console.width - (sum(widths) - widths[widest])
    min_width = widths[0] if widest == 0 else min(widths[widest], _MIN_TEXT_COLUMNS)  # names are not wrapped
    if remaining_width < min_width:
        _print_blocks(console, [header, *cells], widest)
    elif sum(widths) - _GAP_COLUMNS <= console.width and all(cell.isprintable() for row in cells for cell in row):
        _print_lines(console, [header, *cells], widths)
    else:
        (_print_grid if console.is_terminal else _print_piped_grid)(console, header, cells)


def _column_widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column, including the space after it."""
    from rich.cells import cell_len

    return [max(map(cell_len, column)) + _GAP_COLUMNS for column in zip(header, *rows, strict=True)]


def _without(cells: Sequence[str], number: int) -> list[str]:
    return [*cells[:number], *cells[number + 1 :]]


def _print_lines(console: Console, rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Print a table without wrapped cells, with the output of `_print_grid` but several times as fast."""
    from rich.cells import set_cell_size
    from rich.text import Text

    columns = [*widths[:-1], widths[-1] - _GAP_COLUMNS]
    for number, row in enumerate(rows):
        name, *rest = map(set_cell_size, row, columns)
        text = Text.assemble((name, "bold"), ("".join(rest), "bold" if number == 0 else ""))
        text.rstrip()
        console.print(text, soft_wrap=True)
        if number == 0:
            console.print("─" * sum(columns), soft_wrap=True)


def _print_grid(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, title in enumerate(header):
        grid.add_column(title, no_wrap=number == 0, style="bold" if number == 0 else "", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)


def _print_piped_grid(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the grid without trailing spaces."""
    from rich.text import Text

    with console.capture() as printed:
        _print_grid(console, header, rows)
    for line in printed.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _print_blocks(console: Console, rows: Sequence[Sequence[str]], widest: int) -> None:
    """Print each row as a line of its short cells, with the cell of the widest column below.

    Args:
        console: console to print to.
        rows: cells of each row; the first row has the titles.
        widest: index of the widest column.
    """
    from rich.text import Text

    for row in rows:
        short = [cell for number, cell in enumerate(row) if number != widest and cell]
        line = Text("  ").join(Text(cell, "" if number else "bold") for number, cell in enumerate(short))
        if widest == 0:  # the name in the first line, all other cells below
            console.print(Text(row[0], "bold"), overflow="fold")
            console.print(Text(" " * _BLOCK_INDENT) + Text("  ").join(Text(cell) for cell in row[1:] if cell))
            continue
        console.print(line)
        if not row[widest]:
            continue
        for long_line in Text(row[widest]).wrap(console, console.width - _BLOCK_INDENT, overflow="fold"):
            console.print(" " * _BLOCK_INDENT + long_line.plain.rstrip(), markup=False)


def print_wrapped(line: str, indent: int) -> None:
    """Print a line, wrapped at spaces to the width of a terminal; not wrapped elsewhere.

    ``indent``: number of spaces before each line after the first.
    """
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        end = line[len(line.rstrip("\n")) :]
        line = fill(line, columns, subsequent_indent=" " * indent, break_on_hyphens=False) + end
    print(line)


SettingRow = tuple[str, str, str]
"""Name, value and origin of a setting."""


def show_settings(settings: Settings, grammar: GrammarSpec | None, model: SettingValue) -> None:
    """Print the model, the chain and all other settings to stdout, each with its origin.

    A step that is off is marked. Control characters in the names of files are made visible on a terminal.

    Args:
        settings: resolved settings, with the chain.
        grammar: grammar of the run; None if there is none.
        model: name of the model, with its origin.
    """
    from ...presets.overrides import SETTING_NAMES
    from ...presets.text_rules import RULE_DEFAULTS

    other_rows = [
        (name, _config_value(value.value, name), value.origin)
        for name in SETTING_NAMES
        if name != "grammar"
        for value in (getattr(settings, name),)
        if name not in RULE_DEFAULTS or value.origin != "default"
    ]
    other_rows.append(
        ("grammar", "none" if grammar is None else grammar_summary(grammar), settings.grammar.origin)
    )
    model_row = ("model", model.value, model.origin)
    chain_row = ("chain", "", settings.chain_origin)
    rows = [chain_row, *_rows_of_steps(settings.steps), *other_rows]
    # The row of the model does not count for the widths, because the name of a model may be long.
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [
        terminal_safe(f"{key:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip(), sys.stdout)
        for key, value, origin in (model_row, *rows)
    ]
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or all(len(line) <= columns and "\n" not in line for line in lines):
        print("\n".join(lines))
    else:
        _print_narrow([model_row, chain_row, *_grouped_rows_of_steps(settings.steps), *other_rows], columns)


def _rows_of_steps(steps: Sequence[StepSpec]) -> Iterator[SettingRow]:
    """Yield a row for each parameter of each step."""
    for number, step in enumerate(steps):
        values = step.sampler.model_dump()
        if not values:
            yield f"  [{number}] {step.name}", "", _origin(step, step.origin)
        for parameter, value in values.items():
            origin = _origin(step, step.origins.get(parameter, "default"))
            yield f"  [{number}] {step.name}.{parameter}", _config_value(value), origin


def _grouped_rows_of_steps(steps: Sequence[StepSpec]) -> Iterator[SettingRow]:
    """Yield a row for each step, followed by a row for each of its parameters, with a shorter name."""
    for number, step in enumerate(steps):
        yield f"  [{number}] {step.name}", "", _origin(step, step.origin)
        for parameter, value in step.sampler.model_dump().items():
            yield f"      {parameter}", _config_value(value), step.origins.get(parameter, "default")


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


_CONFIG_GAP_COLUMNS = 2
"""Spaces between two columns of settings."""


def _print_narrow(rows: Sequence[SettingRow], columns: int) -> None:
    """Print rows in lines of at most ``columns`` columns, wrapped between words.

    A value that is too long for its column is printed below the name.
    """
    from rich.cells import cell_len

    indent = max(cell_len(row[0]) for row in rows) + _CONFIG_GAP_COLUMNS
    free = columns - indent
    value_columns = max((cell_len(value) for _, value, _ in rows if cell_len(value) <= free // 2), default=0)
    for key, *cells in rows:
        value, origin = (" ".join(visible(cell).split("\n")) for cell in cells)
        start = indent + value_columns + _CONFIG_GAP_COLUMNS
        name = f"{key:{indent}}"
        if cell_len(value) <= value_columns and _longest_word(origin) <= columns - start:
            first, *more = _wrap(origin, columns - start)
            print(f"{name}{value}{' ' * (value_columns - cell_len(value) + _CONFIG_GAP_COLUMNS)}{first}")
            print("".join(f"{' ' * start}{line}\n" for line in more), end="")
            continue
        is_below_name = max(_longest_word(value), _longest_word(origin)) > free
        left = _BLOCK_INDENT if is_below_name else indent
        lines = [line for cell in (value, origin) if cell for line in _wrap(cell, columns - left)]
        if is_below_name:
            print(key)
        else:
            print(f"{name}{lines.pop(0)}")
        print("".join(f"{' ' * left}{line}\n" for line in lines), end="")


def _longest_word(text: str) -> int:
    """Return the columns of the longest word."""
    from rich.cells import cell_len

    return max(map(cell_len, text.split()), default=0)


def _wrap(text: str, columns: int) -> list[str]:
    """Return the lines of a wrapped text. A word that is longer than a line is split."""
    from rich.text import Text

    from .console import OutputConsole

    lines = Text(text).wrap(OutputConsole(width=columns), columns, overflow="fold")
    return [line.plain.rstrip() for line in lines] or [""]


def chain_summary(steps: Sequence[StepSpec]) -> str:
    """Return a chain in one line, each step with its main parameter: ``top_k=40 > temperature=0.8 > dist``."""
    return " > ".join(map(_step_summary, steps))


def _step_summary(step: StepSpec) -> str:
    main = step.sampler.about.main_parameter
    value = "" if main is None else f"={_config_value(getattr(step.sampler, main))}"
    return f"{step.name}{value}{' (off)' if step.is_off else ''}"


_MAX_INLINE_CHARACTERS = 60
"""Length of the longest grammar that is printed in full. With it, a row still fits on a wide terminal."""


def grammar_summary(grammar: GrammarSpec) -> str:
    """Return a grammar in one line: its text if that is short, otherwise its name and number of lines."""
    source = grammar.source
    title = (
        repr(source)
        if len(source) <= _MAX_INLINE_CHARACTERS
        else f"{grammar.label} ({count_noun(len(source.splitlines()), 'line')})"
    )
    after = "" if grammar.after is None else f", after {grammar.after!r}"
    root = "" if grammar.root == "root" else f", from rule {grammar.root}"
    return f"{title}{root}{after}"
