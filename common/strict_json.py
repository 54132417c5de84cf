"""JSON as its standard has it: no NaN, no Infinity."""

from __future__ import annotations

import json
from typing import Any


class NonFiniteNumberError(ValueError):
    """NaN or Infinity in a JSON text."""


def parse_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ``json.JSONDecodeError`` (a ``ValueError``) for what is not JSON, ``UnicodeDecodeError`` for bytes that
    are not UTF-8, ``NonFiniteNumberError`` (a ``ValueError``) for NaN and Infinity, ``ValueError`` for integers of
    too many digits, and ``RecursionError`` for values that are nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> float:
    raise NonFiniteNumberError(f"there is no number {name}")
