"""Strict JSON, read and written: without NaN and Infinity, which are not part of the standard."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

MAX_JSON_DEPTH = 500
"""Maximum number of nested arrays and objects. Python's limit depends on its version: about 900 levels, or
thousands. Recursive code can only handle values with about 900 levels."""


class NonFiniteNumberError(ValueError):
    """NaN or Infinity in a JSON text."""


class NestedTooDeeplyError(ValueError, RecursionError):
    """A JSON text with more than `MAX_JSON_DEPTH` levels."""


def parse_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        json.JSONDecodeError: the text is not JSON.
        UnicodeDecodeError: the bytes are not UTF-8.
        NonFiniteNumberError: the text contains NaN or Infinity.
        NestedTooDeeplyError: the text has too many levels; also a ``RecursionError``.
        ValueError: an integer has too many digits. All errors above are subclasses of ``ValueError``.
    """
    if _bracket_depth(text) > MAX_JSON_DEPTH:
        raise NestedTooDeeplyError("it is nested too deeply")
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except ValueError as error:
        if type(error) is ValueError:  # Python's message advises to change a setting of Python
            raise ValueError("it has a number of too many digits") from None
        raise


_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)
# \Z: a string without a closing quote must not be searched again from each of its characters.
_NON_BRACKETS = re.compile(r"[^\[\]{}]+")


def _bracket_depth(text: str | bytes) -> int:
    """Return the depth of brackets outside of strings; 0 if there are too few brackets to exceed the limit."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")  # UTF-8 has no bracket or quote inside of another character
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return 0
    brackets = _NON_BRACKETS.sub("", _JSON_STRING.sub("", text))
    return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)


def _reject_constant(name: str) -> float:
    raise NonFiniteNumberError(f"{name} is not a number in JSON")


_PROBLEM_BY_MESSAGE_START = {
    "Expecting value": "a value is missing",
    "Expecting property name": "a key in double quotes is missing",
    "Expecting ':'": "a colon is missing",
    "Expecting ','": "a comma or a closing bracket is missing",
    "Unterminated string": "a string has no closing quote",
    "Invalid control character": "a string has a control character such as a newline",
    "Invalid \\": "a backslash is not followed by an escape of JSON",
    "Illegal trailing comma": "a comma has no value after it",
    "Extra data": "there is more text after the value",
    "Unexpected UTF-8 BOM": "it begins with a byte order mark",
}
"""logitsmith's message, by the beginning of the parser's message."""


def json_problem(error: json.JSONDecodeError) -> str:
    """Return logitsmith's wording of an error of Python's JSON parser, without the position."""
    return next(
        (problem for start, problem in _PROBLEM_BY_MESSAGE_START.items() if error.msg.startswith(start)),
        "it is incomplete",
    )


# One encoder for all calls: `json.dumps` would make a new one for each.
encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""Return a value as JSON on one line, without escapes for characters beyond ASCII.

Raises ``ValueError`` for a number that JSON does not have.
"""
