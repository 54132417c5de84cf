"""The output of `gen samplers`: a table of samplers, and the facts about one sampler."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..text import output_width, print_wrapped
from .table import Column, fact_lines, print_table

if TYPE_CHECKING:
    from ...samplers.base import Sampler


def show_samplers(samplers: Sequence[type[Sampler]], plugins: Mapping[str, str]) -> None:
    """Print a table of samplers: name, main parameter with its default, summary, source."""
    # ``plugins``: the place that each sampler of another package would be loaded from, by name.
    rows = []
    for cls in samplers:
        info = cls.about
        main = f"{info.main_parameter} {_default_text(cls, info.main_parameter)}" if info.main_parameter else ""
        rows.append((info.name, main, info.summary, _short_reference(info.reference)))
    text = Column("what it does", is_text=True)
    print_table(["sampler", "main parameter", text, Column("source", is_optional=True)], rows)
    for name, location in sorted(plugins.items()):
        print(f"{name}: offered by another package, {location}")


def _short_reference(reference: str) -> str:
    """Return authors and year of a paper; for a reference without a year, the first system that it names."""
    paper = re.match(r".*?\b\d{4}\b", reference)
    return paper.group() if paper else re.split("[,;]", reference)[0]


_LABEL_WIDTH = 10


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
    print_wrapped(f"{info.name}: {info.summary}\n")
    print("\n".join(fact_lines(facts, _LABEL_WIDTH, output_width())))
    if cls.model_fields:
        print()
        rows = [
            (name, _default_text(cls, name), allowed_values(field), field.description or "")
            for name, field in cls.model_fields.items()
        ]
        print_table(["parameter", "default", "allowed", Column("meaning", is_text=True)], rows)
    if info.main_parameter:
        example = _default_text(cls, info.main_parameter) if info.example is None else _format_value(info.example)
        print()
        print_wrapped(f"in a preset: {info.name}: {example}", 4)


def _default_text(cls: type[Sampler], parameter: str) -> str:
    """Return the default of a sampler's parameter in the notation of presets."""
    field = cls.model_fields[parameter]
    return _format_value(field.get_default(call_default_factory=True))


def _format_value(value: Any) -> str:
    """Return a value in the notation of presets: maps and lists in brackets, strings in them as in JSON."""
    if isinstance(value, Mapping):
        items = ", ".join(f"{_format_item(key)}: {_format_item(item)}" for key, item in value.items())
        return f"{{{items}}}"
    if isinstance(value, list):
        return f"[{', '.join(_format_item(item) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_item(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _format_value(value)
