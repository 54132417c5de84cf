"""Tables of samplers, presets and grammars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...grammars import GrammarEntry
    from ...presets import PresetEntry
    from ...samplers import Sampler


_PIPED_COLUMNS = 1000
"""Wide enough that no row of a piped table is wrapped."""


def show_samplers(samplers: Sequence[type[Sampler]], plugins: Mapping[str, str]) -> None:
    """Print all samplers: name, main parameter with its default, summary, source.

    ``plugins``: the samplers of other packages, and where each would be loaded from.
    """
    rows = []
    for cls in samplers:
        about = cls.about
        main = f"{about.main} {_default(cls, about.main)}" if about.main else ""
        rows.append((about.name, main, about.summary, _short_reference(about.reference)))
    table(("sampler", "main parameter", "what it does", "source"), rows)
    for name, location in sorted(plugins.items()):
        print(f"{name}: offered by another package, {location}")


def show_sampler(cls: type[Sampler]) -> None:
    """Print one sampler: formula, neutral value, source, how it compares with llama.cpp's, parameters."""
    from ...samplers import allowed_values

    about = cls.about
    neutral = ", ".join(f"{name} {_format_value(value)}" for name, value in about.neutral.items())
    facts = (
        ("formula", about.formula),
        ("off at", neutral or "never"),
        ("source", about.reference),
        ("llama.cpp", about.llama_cpp),
        ("also named", ", ".join(about.aliases) or "-"),
    )
    print(f"{about.name}: {about.summary}\n")
    for name, fact in facts:
        print(f"  {name:10}  {fact}")
    if cls.model_fields:
        print()
        rows = [
            (name, _default(cls, name), allowed_values(field), field.description or "")
            for name, field in cls.model_fields.items()
        ]
        table(("parameter", "default", "allowed", "meaning"), rows)
    if about.main:
        example = _default(cls, about.main) if about.example is None else _format_value(about.example)
        print(f"\nin a preset: {about.name}: {example}")


def show_presets(entries: Iterable[PresetEntry]) -> None:
    """Print presets: name, folder, description."""
    from ...presets import PresetError, load_preset

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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; rows are wrapped to the width of a terminal, and not wrapped elsewhere."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .text import visible

    console = Console(width=None if sys.stdout.isatty() else _PIPED_COLUMNS, highlight=False)
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, title in enumerate(header):
        grid.add_column(title, no_wrap=number == 0, style="bold" if number == 0 else "")
    for row in rows:
        grid.add_row(*(Text(visible(cell)) for cell in row))
    console.print(grid)
