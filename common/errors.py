"""The base class of the exceptions of all packages, and sentences for pydantic's validation errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from .text import count_noun, join_alternatives, short_repr

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class LogitsmithError(Exception):
    """An error whose text is one sentence for the user.

    Attributes:
        exit_code: the exit code of `gen`: 1 for a failure, 2 for wrong usage.
        problem: the sentence without the advice.
        advice: the last part of the sentence, which says what to do; empty if there is none. It names parameters
            of Python, and contains no names or values of the user, so that `gen` can replace the parameters by its
            flags.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, problem: str = "", *, advice: str = "") -> None:
        super().__init__(problem)
        self.advice = advice

    @property
    def problem(self) -> str:
        """The sentence without the advice."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        """Return the problem and the advice."""
        return f"{self.problem}; {self.advice}" if self.advice else self.problem


class UsageError(LogitsmithError):
    """A wrong command line: an unknown flag, a wrong value, or flags that exclude each other."""

    exit_code = 2


_EXPECTED_VALUES = {
    "float_parsing": "a number",
    "float_type": "a number",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of this size",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "finite_number": "a finite number",
    "string_type": "a string",
    "string_unicode": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
    "path_type": "a path",
}
"""The expected value, by the type of pydantic's error."""
_BOUND_ERRORS = {
    "less_than": ("<", "lt"),
    "less_than_equal": ("≤", "le"),
    "greater_than": (">", "gt"),
    "greater_than_equal": ("≥", "ge"),
}
"""The sign, and the name of the limit, by the type of pydantic's error about a range."""
_LENGTH_ERRORS = {
    "too_short": ("item", "min_length"),
    "too_long": ("item", "max_length"),
    "string_too_short": ("character", "min_length"),
    "string_too_long": ("character", "max_length"),
}
"""The counted noun, and the name of the limit, by the type of pydantic's error about a length."""
_VALIDATOR_ERROR_TYPES = ("value_error", "assertion_error")
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def wrong_value(value: object, allowed: str) -> str:
    """Return ``VALUE is not ALLOWED``."""
    return f"{short_repr(value)} is not {allowed}"


def problem_message(*problems: ErrorDetails, allowed: str = "") -> str:
    """Return a sentence about a wrong value, without the field's name, such as ``'abc' is not a number``.

    Messages of logitsmith's validators lose pydantic's prefix. All other messages are logitsmith's wording.

    Args:
        problems: pydantic's errors about the value, one for each type that the field accepts.
        allowed: the range of the field in words, such as ``0..1`` or ``≥ 0``; empty: the error's limit.
    """
    # One of the errors belongs to the type that the value has. It is the only one that is not about a wrong type.
    problem = next((error for error in problems if error["type"] not in _EXPECTED_VALUES), problems[0])
    error_type, value = problem["type"], problem["input"]
    if error_type in _EXPECTED_VALUES:
        expected_values = join_alternatives(dict.fromkeys(_EXPECTED_VALUES[error["type"]] for error in problems))
        return wrong_value(value, expected_values) + (f" ({allowed})" if allowed else "")
    if error_type in _LENGTH_ERRORS:
        return _length_message(problem)
    if error_type in _VALIDATOR_ERROR_TYPES:
        return str(problem["ctx"]["error"])
    context = problem.get("ctx", {})
    match error_type:
        case "missing":
            message = "it is missing"
        case "extra_forbidden":
            message = "there is no such field"
        case "json_invalid":
            column = re.search(r" column (\d+)$", context["error"])
            message = "not JSON" + (f", starting at column {column[1]}" if column else "")
        case "literal_error" | "enum":
            message = _choice_message(short_repr(value), context["expected"])
        case _ if error_type in _BOUND_ERRORS:
            sign, limit_name = _BOUND_ERRORS[error_type]
            bound = allowed or f"{sign} {context[limit_name]}"
            message = wrong_value(value, f"within {bound}" if ".." in bound else bound)
        case _:
            message = f"{short_repr(value)} is not allowed here"
    return message


def _length_message(problem: ErrorDetails) -> str:
    noun, limit_name = _LENGTH_ERRORS[problem["type"]]
    limit, length = problem["ctx"][limit_name], len(problem["input"])
    if limit == 0:
        return f"it has {count_noun(length, noun)}, but must be empty"
    if length == 0:
        return "it is empty"
    bound = "at least" if limit_name == "min_length" else "at most"
    return f"it has {count_noun(length, noun)}, but must have {bound} {limit:,}"


def _choice_message(value: str, expected: str) -> str:
    """Return a sentence about a value that is not one of the choices.

    ``expected``: the choices as pydantic lists them, such as ``'a', 'b' or False``.
    """
    choices = re.sub(r"\b(True|False|None)\b", lambda word: _JSON_WORDS[word[0]], expected)
    if " or " not in choices:
        return f"{value} is not supported, only {choices}"
    unquoted = choices.replace("'", "")  # flags list their choices without quotes
    return f"{value} is not {unquoted}"


def problem_sentence(path: Iterable[object], message: str) -> str:
    """Return ``field.of.a.field: message``; without a path, the message alone."""
    field = ".".join(map(str, path))
    return f"{field}: {message}" if field else message
