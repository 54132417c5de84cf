"""The base class of the exceptions of all rooms, and pydantic's errors as sentences for the user."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from .text import count_noun, join_alternatives, short_repr

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class LogitsmithError(Exception):
    """A named failure: its text is one sentence for the user.

    Attributes:
        exit_code: the exit code of `gen`: 1 for a failure, 2 for wrong usage.
        problem: the sentence without the advice.
        advice: the last part of the sentence, which says what to do and names parameters of Python; it holds no
            names or values of the user's, so that `gen` can name its flags instead. Empty if there is none.
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
    """Wrong words on a command line: an unknown flag, a wrong value, flags that exclude each other."""

    exit_code = 2


_KINDS = {
    "float_parsing": "a number",
    "float_type": "a number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of this size",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_unicode": "a text",
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
"""What pydantic misses, by the type of its error."""
_BOUNDS = {
    "less_than": ("<", "lt"),
    "less_than_equal": ("≤", "le"),
    "greater_than": (">", "gt"),
    "greater_than_equal": ("≥", "ge"),
}
"""Sign and limit of pydantic's errors of range."""
_LENGTHS = {
    "too_short": ("item", "min_length"),
    "too_long": ("item", "max_length"),
    "string_too_short": ("character", "min_length"),
    "string_too_long": ("character", "max_length"),
}
"""What is counted, and the limit of pydantic's errors of length."""
_OWN_VALIDATORS = ("value_error", "assertion_error")
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def wrong_value(value: object, allowed: str) -> str:
    """Return ``VALUE is not ALLOWED``."""
    return f"{short_repr(value)} is not {allowed}"


def problem_message(*problems: ErrorDetails, allowed: str = "") -> str:
    """Return what is wrong with a value, without the field, such as ``'abc' is not a number``.

    A message of our own validators comes without pydantic's prefix. No sentence is pydantic's.

    Args:
        problems: pydantic's problems with the value, one for each type that the field takes.
        allowed: the range of the field in words, such as ``0..1`` or ``≥ 0``; empty: the problem has the limit.
    """
    # A problem other than the type belongs to the type that the value has.
    problem = next((other for other in problems if other["type"] not in _KINDS), problems[0])
    kind, value = problem["type"], problem["input"]
    if kind in _KINDS:
        kinds = join_alternatives(dict.fromkeys(_KINDS[other["type"]] for other in problems))
        return wrong_value(value, kinds) + (f" ({allowed})" if allowed else "")
    if kind in _LENGTHS:
        return _length_message(problem)
    if kind in _OWN_VALIDATORS:
        return str(problem["ctx"]["error"])
    context = problem.get("ctx", {})
    match kind:
        case "missing":
            message = "it is missing"
        case "extra_forbidden":
            message = "there is no such field"
        case "json_invalid":
            column = re.search(r" column (\d+)$", context["error"])
            message = "not JSON" + (f", from column {column[1]} on" if column else "")
        case "literal_error" | "enum":
            message = _choice_message(short_repr(value), context["expected"])
        case _ if kind in _BOUNDS:
            sign, limit = _BOUNDS[kind]
            bound = allowed or f"{sign} {context[limit]}"
            message = wrong_value(value, f"within {bound}" if ".." in bound else bound)
        case _:
            message = f"{short_repr(value)} cannot stand here"
    return message


def _length_message(problem: ErrorDetails) -> str:
    noun, key = _LENGTHS[problem["type"]]
    limit, length = problem["ctx"][key], len(problem["input"])
    if limit == 0:
        return f"it has {count_noun(length, noun)}, and has to be empty"
    if length == 0:
        return "it is empty"
    bound = "at least" if key == "min_length" else "at most"
    return f"it has {count_noun(length, noun)}; {bound} {limit:,} can stand here"


def _choice_message(value: str, expected: str) -> str:
    """``expected``: the choices as pydantic lists them, such as ``'a', 'b' or False``."""
    choices = re.sub(r"\b(True|False|None)\b", lambda word: _JSON_WORDS[word[0]], expected)
    if " or " not in choices:
        return f"{value} is not supported, only {choices}"
    unquoted = choices.replace("'", "")  # as flags list their choices
    return f"{value} is not {unquoted}"


def problem_sentence(path: Iterable[object], message: str) -> str:
    """Return ``field.of.a.field: message``; without a path, the message alone."""
    field = ".".join(map(str, path))
    return f"{field}: {message}" if field else message
