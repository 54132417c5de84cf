"""pydantic's errors as sentences for the user."""

from __future__ import annotations

import re
from collections.abc import Iterable
from reprlib import Repr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_KINDS = {
    "float_parsing": "a number",
    "float_type": "a number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "a text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "dataclass_type": "an object",
}
"""What pydantic misses, by the type of its error."""
_BOUNDS = {"less_than_equal": ("≤", "le"), "greater_than_equal": ("≥", "ge")}
"""Sign and limit of pydantic's errors of range."""
_REPR = Repr()
_REPR.maxstring = _REPR.maxother = 60


def problem_message(problem: ErrorDetails) -> str:
    """Return what is wrong, without the field, such as ``'abc' is not a number``.

    A message of our own validators comes without pydantic's prefix.
    """
    kind = problem["type"]
    if kind in _KINDS:
        return f"{_REPR.repr(problem['input'])} is not {_KINDS[kind]}"
    if kind in _BOUNDS:
        sign, limit = _BOUNDS[kind]
        return f"{problem['input']} is not {sign} {problem['ctx'][limit]}"
    if kind == "json_invalid":
        return "not JSON: " + re.sub(r" at line 1 column (\d+)$", r" at column \1", problem["ctx"]["error"])
    return problem["msg"].removeprefix("Value error, ")


def problem_sentence(path: Iterable[object], message: str) -> str:
    """Return ``field.of.a.field: message``; without a path, the message alone."""
    field = ".".join(map(str, path))
    return f"{field}: {message}" if field else message
