"""JSON as its standard has it: no NaN, no Infinity."""

from __future__ import annotations

import json
from typing import Any


class NonFiniteNumberError(ValueError):
    """NaN or Infinity in a JSON text."""


class NestedTooDeeplyError(ValueError, RecursionError):
    """A JSON text that is nested more deeply than Python's stack allows, about 900 levels."""


def parse_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ``json.JSONDecodeError`` (a ``ValueError``) for what is not JSON, ``UnicodeDecodeError`` for bytes that
    are not UTF-8, ``NonFiniteNumberError`` (a ``ValueError``) for NaN and Infinity, ``ValueError`` for integers of
    too many digits, and ``NestedTooDeeplyError`` (a ``ValueError`` and a ``RecursionError``).
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise NestedTooDeeplyError("it is nested too deeply") from None


def _refuse_constant(name: str) -> float:
    raise NonFiniteNumberError(f"there is no number {name}")
