"""DRY's sequence breakers, in all the ways in which the tools write them."""

from __future__ import annotations

import json
import re
from typing import Any

from .table import ForeignTable

BREAKERS = ["\n", ":", '"', "*"]
"""The default of all tools."""

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
"""A text in double or single quotes."""


def read_breakers(table: ForeignTable, key: str) -> list[str]:
    """DRY's sequence breakers: a list, a JSON array as text, or quoted texts separated by commas."""
    value: Any = table.raw(key)
    if value is None:
        return list(BREAKERS)
    if isinstance(value, str):
        text = value.strip()
        try:
            # Not strict: a YAML text in double quotes holds a line break itself, not a backslash and n.
            value = json.loads(text if text.startswith("[") else f"[{text}]", strict=False)
        except (ValueError, RecursionError):
            value = _loose_texts(text)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise table.fault(key, "a list of texts, or quoted texts separated by commas")
    return [part for part in value if part]


def _loose_texts(text: str) -> list[str]:
    """Texts between commas that are no JSON: with or without quotes, and brackets around all."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    parts: list[str] = re.findall(rf"\s*(?:{_QUOTED})|[^,]+", text)
    return [_unquoted(part.strip()) for part in parts if part.strip()]


def _unquoted(part: str) -> str:
    if re.fullmatch(_QUOTED, part) is None:
        return part
    try:
        return str(json.loads(f'"{part[1:-1]}"' if part[0] == "'" else part, strict=False))
    except ValueError:  # an escape that JSON does not know, or a double quote in single ones
        return part[1:-1]
