"""JSON as its standard has it: no NaN, no Infinity."""

from __future__ import annotations

import json
from typing import Any


def parse_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ``json.JSONDecodeError`` (a ``ValueError``) for what is not JSON, ``UnicodeDecodeError`` for bytes that
    are not UTF-8, ``ValueError`` for NaN, Infinity and integers of too many digits, and ``RecursionError`` for
    values that are nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"there is no number {name}")
