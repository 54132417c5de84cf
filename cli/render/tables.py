"""Tables of samplers, presets and grammars."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from ...grammars.search import GrammarEntry
    from ...presets.search import PresetEntry
    from ...samplers.base import Sampler


_PIPED_COLUMNS = 1000
"""Wide enough that no row of a piped table is wrapped."""
_MIN_TEXT_COLUMNS = 20
"""A narrower column of texts has one or two words a line."""
_GAP_COLUMNS = 3
"""Between two columns of a table."""
_BLOCK_INDENT = 4
_FACT_INDENT = 14


def show_samplers(samplers: Sequence[type[Sampler]], plugins: Mapping[str, str]) -> None:
    """Print all samplers: name, main parameter with its default, summary, source.

    ``plugins``: the samplers of other packages, and where each would be loaded from.
    """
    rows = []
    for cls in samplers:
        about = cls.about
        main = f"{about.main} {_default(cls, about.main)}" if about.main else ""
        rows.append((about.name, main, about.summary, _short_reference(about.reference)))
    table(("sampler", "main parameter", "what it does", "source"), rows, less_needed=3)
    for name, location in sorted(plugins.items()):
        print(f"{name}: offered by another package, {location}")


def show_sampler(cls: type[Sampler]) -> None:
    """Print one sampler: formula, neutral value, source, how it compares with llama.cpp's, parameters."""
    from ...samplers.building import allowed_values

    about = cls.about
    neutral = ", ".join(f"{name} {_format_value(value)}" for name, value in about.neutral.items())
    facts = (
        ("formula", about.formula),
        ("off at", neutral or "never"),
        ("source", about.reference),
        ("llama.cpp", about.llama_cpp),
        ("also named", ", ".join(about.aliases) or "-"),
    )
    print_wrapped(f"{about.name}: {about.summary}\n", 0)
    for name, fact in facts:
        print_wrapped(f"  {name:10}  {fact}", _FACT_INDENT)
    if cls.model_fields:
        print()
        rows = [
            (name, _default(cls, name), allowed_values(field), field.description or "")
            for name, field in cls.model_fields.items()
        ]
        table(("parameter", "default", "allowed", "meaning"), rows)
    if about.main:
        example = _default(cls, about.main) if about.example is None else _format_value(about.example)
        print()
        print_wrapped(f"in a preset: {about.name}: {example}", _BLOCK_INDENT)


def print_wrapped(line: str, indent: int) -> None:
    """Print a line, broken at spaces to the width of a terminal; not broken elsewhere.

    ``indent``: that of the further lines, in spaces.
    """
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        end = line[len(line.rstrip("\n")) :]
        line = fill(line, columns, subsequent_indent=" " * indent, break_on_hyphens=False) + end
    print(line)


def show_presets(entries: Iterable[PresetEntry]) -> None:
    """Print presets: name, folder, description."""
    from ...presets.errors import PresetError
    from ...presets.preset import load_preset

    rows = []
    for entry in entries:
        try:
            description = load_preset(str(entry.path)).description
        except PresetError as error:
            description = f"broken: {error}"
        origin = f"{entry.origin} (hidden)" if entry.shadowed else entry.origin
        rows.append((entry.name, origin, description))
    table(("preset", "from", "what it is for"), rows)


def show_grammars(entries: Iterable[GrammarEntry]) -> None:
    """Print grammars: name, folder, description."""
    table(("grammar", "from", "what it is"), [(entry.name, entry.origin, entry.description) for entry in entries])


def _short_reference(reference: str) -> str:
    """Authors and year of a paper; for a reference without a year, the first system that it names."""
    paper = re.match(r".*?\b\d{4}\b", reference)
    return paper.group() if paper else re.split("[,;]", reference)[0]


def _default(cls: type[Sampler], parameter: str) -> str:
    field = cls.model_fields[parameter]
    return _format_value(field.get_default(call_default_factory=True))


def _format_value(value: Any) -> str:
    """Return a value as a preset may write it: tables and lists in brackets, texts inside them as in JSON."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_format_item(key)}: {_format_item(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_format_item(item) for item in value)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_item(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _format_value(value)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], less_needed: int | None = None) -> None:
    """Print a table; rows are wrapped to the width of a terminal, and not wrapped elsewhere. Nothing is cut.

    A terminal that is too narrow for a column of texts gets a block for each row.

    Args:
        header: the titles of the columns.
        rows: the cells.
        less_needed: a column that is left out where the table would not fit; None: none.
    """
    from .output_console import OutputConsole
    from .text import visible

    console = OutputConsole(width=None if sys.stdout.isatty() else _PIPED_COLUMNS, highlight=False)
    cells = [[visible(cell) for cell in row] for row in rows]
    if less_needed is not None and sum(_column_widths(header, cells)) > console.width:
        header = _without(header, less_needed)
        cells = [_without(row, less_needed) for row in cells]
    widths = _column_widths(header, cells)
    widest = widths.index(max(widths))
    remaining = console.width - (sum(widths) - widths[widest])
    needed = widths[0] if widest == 0 else min(widths[widest], _MIN_TEXT_COLUMNS)  # names are not wrapped
    if remaining < needed:
        _print_blocks(console, [header, *cells], widest)
    elif sum(widths) - _GAP_COLUMNS <= console.width and all(cell.isprintable() for row in cells for cell in row):
        _print_lines(console, [header, *cells], widths)
    else:
        (_print_grid if console.is_terminal else _print_piped_grid)(console, header, cells)


def _column_widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column with the space behind it."""
    from rich.cells import cell_len

    return [max(map(cell_len, column)) + _GAP_COLUMNS for column in zip(header, *rows, strict=True)]


def _without(cells: Sequence[str], number: int) -> list[str]:
    return [*cells[:number], *cells[number + 1 :]]


def _print_lines(console: Console, rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Print a table of which nothing is wrapped, as `_print_grid` would in several times as long."""
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
    """Print the grid without the spaces that fill its last column."""
    from rich.text import Text

    with console.capture() as printed:
        _print_grid(console, header, rows)
    for line in printed.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _print_blocks(console: Console, rows: Sequence[Sequence[str]], widest: int) -> None:
    """Print each row as a line of its short cells, and the long one below."""
    from rich.text import Text

    for row in rows:
        short = [cell for number, cell in enumerate(row) if number != widest and cell]
        line = Text("  ").join(Text(cell, "" if number else "bold") for number, cell in enumerate(short))
        if widest == 0:  # the name, and what is known of it below
            console.print(Text(row[0], "bold"), overflow="fold")
            console.print(Text(" " * _BLOCK_INDENT) + Text("  ").join(Text(cell) for cell in row[1:] if cell))
            continue
        console.print(line)
        if not row[widest]:
            continue
        for long_line in Text(row[widest]).wrap(console, console.width - _BLOCK_INDENT, overflow="fold"):
            console.print(" " * _BLOCK_INDENT + long_line.plain.rstrip(), markup=False)
