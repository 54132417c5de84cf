"""Strict JSON, read and written: without NaN and Infinity, which the standard does not have."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

MAX_JSON_DEPTH = 500
"""Levels of arrays and objects in a JSON text. Python's own limit depends on its version: about 900 levels, or
thousands, although code that walks through the value recursively can handle only about 900."""


class NonFiniteNumberError(ValueError):
    """NaN or Infinity in a JSON text."""


class NestedTooDeeplyError(ValueError, RecursionError):
    """A JSON text that is nested more deeply than `MAX_JSON_DEPTH` levels."""


def parse_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        json.JSONDecodeError: the text is not JSON.
        UnicodeDecodeError: the bytes are not UTF-8.
        NonFiniteNumberError: there is a NaN or an Infinity.
        NestedTooDeeplyError: it is nested too deeply; also a ``RecursionError``.
        ValueError: an integer has too many digits. All of the above are ``ValueError`` too.
    """
    if _depth(text) > MAX_JSON_DEPTH:
        raise NestedTooDeeplyError("it is nested too deeply")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        if type(error) is ValueError:  # Python's own advice is about its settings
            raise ValueError("it has a number of too many digits") from None
        raise


_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)  # \Z: an open string must not be searched repeatedly
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")


def _depth(text: str | bytes) -> int:
    """Return the levels of brackets outside of strings; 0 where a count shows that there cannot be too many."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")  # UTF-8 has no bracket or quote inside of another character
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return 0
    brackets = _NO_BRACKETS.sub("", _STRING.sub("", text))
    return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)


def _refuse_constant(name: str) -> float:
    raise NonFiniteNumberError(f"there is no number {name}")


_PROBLEMS = {
    "Expecting value": "a value is missing",
    "Expecting property name": "a key in double quotes is missing",
    "Expecting ':'": "a colon is missing",
    "Expecting ','": "a comma or a closing bracket is missing",
    "Unterminated string": "a text begins that is never closed",
    "Invalid control character": "a text has a control character such as a line end",
    "Invalid \\": "a backslash begins no escape of JSON",
    "Illegal trailing comma": "a comma has nothing behind it",
    "Extra data": "something follows the value",
    "Unexpected UTF-8 BOM": "it begins with a byte order mark",
}
"""By the beginning of the parser's message, what a person would say."""


def json_problem(error: json.JSONDecodeError) -> str:
    """What is wrong at the place that the error names, in a few words of ours."""
    return next((words for start, words in _PROBLEMS.items() if error.msg.startswith(start)), "it breaks off")


# One encoder for all calls: `json.dumps` would make a new one for each.
encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""A value as JSON on one line, with characters beyond ASCII as they are.

Raises ``ValueError`` for a number that JSON does not have.
"""
