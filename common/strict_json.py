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

    Raises:
        json.JSONDecodeError: the text is not JSON.
        UnicodeDecodeError: the bytes are not UTF-8.
        NonFiniteNumberError: there is a NaN or an Infinity.
        NestedTooDeeplyError: it is nested too deeply; also a ``RecursionError``.
        ValueError: an integer has too many digits. All of the above are ``ValueError`` too.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise NestedTooDeeplyError("it is nested too deeply") from None


def _refuse_constant(name: str) -> float:
    raise NonFiniteNumberError(f"there is no number {name}")
