"""Strict JSON, read and written: without NaN and Infinity, which are not part of the standard."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Self

# Maximum number of nested arrays and objects. Python's limit depends on its version: about 900 levels, or
# thousands. Recursive code can only handle values with about 900 levels.
MAX_JSON_DEPTH = 500


class NonFiniteNumberError(ValueError):
    """NaN or Infinity in a JSON text."""


class WrittenNumber(float):
    """A number whose float is not exactly the number that was written."""

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str  # the number as it was written

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]
        """Return the argument with which a copy is made."""
        return (self.text,)


_SHORT_DECIMAL = 15  # A float keeps a decimal of this length exactly


def read_float(text: str) -> float:
    """Return the float of a number; a `WrittenNumber` if the float is another number than the one written."""
    number = float(text)
    if len(text) <= _SHORT_DECIMAL and "e" not in text and "E" not in text:
        return number
    # Decimal() computes with the exponent, but keeps it as it is, so that a large one takes no time.
    try:
        is_exact = Decimal(repr(number)) == Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits and more
        raise ValueError("the exponent has too many digits") from None
    return number if is_exact else WrittenNumber(text)


class NestedTooDeeplyError(ValueError, RecursionError):
    """A JSON text with more than `MAX_JSON_DEPTH` levels."""


def parse_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. A number that a float would change is a `WrittenNumber`."""
    # Every error is a ``ValueError``: ``json.JSONDecodeError``, ``UnicodeDecodeError`` for bytes that are not
    # UTF-8, ``NonFiniteNumberError`` for NaN or Infinity, ``NestedTooDeeplyError``, or a plain ``ValueError`` for
    # a number with too many digits.
    if _bracket_depth(text) > MAX_JSON_DEPTH:
        raise NestedTooDeeplyError("it is nested too deeply")
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=read_float)
    except ValueError as error:
        if type(error) is ValueError:  # Python's message advises to change a setting of Python
            raise ValueError("it has a number of too many digits") from None
        raise


# A string ends with a quote, or with the text (\Z). Without \Z, a string without a closing quote would be searched
# again from each of its characters.
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)
_NON_BRACKETS = re.compile(r"[^\[\]{}]+")


def _bracket_depth(text: str | bytes) -> int:
    """Return the depth of brackets outside of strings; 0 if there are too few brackets to exceed the limit."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")  # UTF-8 has no bracket or quote inside of another character
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return 0
    brackets = _NON_BRACKETS.sub("", _JSON_STRING.sub("", text))
    depth_changes = (1 if bracket in "[{" else -1 for bracket in brackets)
    return max(accumulate(depth_changes), default=0)


def _reject_constant(name: str) -> float:
    raise NonFiniteNumberError(f"{name} is not a number in JSON")


def json_problem(error: json.JSONDecodeError) -> str:
    """Return the message of Python's parser without the position, which callers give as line and column."""
    return error.msg.removesuffix(" starting at").removesuffix(" at")


def placed_json_problem(error: json.JSONDecodeError) -> str:
    """Return the line, the column and the message of Python's parser."""
    return f"line {error.lineno}, column {error.colno}: {json_problem(error)}"


_MAX_EXACT_INTEGER = 2**53  # Every integer up to this one is also a float


def without_whole_floats(value: Any) -> Any:
    """Return a value of JSON with integers instead of whole floats, such as 3 instead of 3.0."""
    # Languages without integers, such as Lua, write 3.0 for 3. Floats above 2^53 are not changed.
    if isinstance(value, WrittenNumber):
        return value
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) <= _MAX_EXACT_INTEGER
        return int(value) if is_whole else value
    if isinstance(value, list):
        return [without_whole_floats(item) for item in value]
    if isinstance(value, dict):
        return {key: without_whole_floats(item) for key, item in value.items()}
    return value


# Returns a value as JSON on one line, without escapes for characters beyond ASCII. Raises ``ValueError`` for NaN
# and Infinity. `json.dumps` would make a new encoder for each call.
encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_line(value: Any) -> str:
    """Return a value as a line of JSON, which ends in a newline. Raises as `encode_json` does."""
    return encode_json(value) + "\n"


def encode_exact_json(value: Any) -> str:
    """Return a value as JSON on one line, with its numbers as they were written."""
    # Each `WrittenNumber` is encoded as a string with its index, which is then replaced by the number's text.
    written_texts: list[str] = []
    marked_value = _mark_written_numbers(value, written_texts)
    text = json.dumps(marked_value, allow_nan=False)
    if not written_texts:
        return text
    return _NUMBER_MARK.sub(lambda match: written_texts[int(match[1])], text)


# \udfff is half of a surrogate pair, so that no valid text contains a mark.
_NUMBER_MARK = re.compile(r'"\\udfff([0-9]+)\\udfff"')


def _mark_written_numbers(value: Any, written_texts: list[str]) -> Any:
    """Return the value with a mark for each `WrittenNumber`, whose text is appended to the list."""
    if isinstance(value, WrittenNumber):
        written_texts.append(value.text)
        return f"\udfff{len(written_texts) - 1}\udfff"
    if isinstance(value, Mapping):
        return {key: _mark_written_numbers(item, written_texts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark_written_numbers(item, written_texts) for item in value]
    return value
