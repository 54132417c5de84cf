"""The base class of the exceptions of all packages, and sentences about pydantic's validation errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from .text import join_alternatives, short_repr

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class LogitsmithError(Exception):
    """An error whose text is one sentence for the user."""

    exit_code: ClassVar[int] = 1  # the exit code of `gen`: 1 for a failure, 2 for wrong usage

    def __init__(self, problem: str = "", *, advice: str = "") -> None:
        super().__init__(problem)
        # the last part of the sentence, which says what to do; empty if there is none. It names parameters of
        # Python, and contains no names or values of the user, so that `gen` can replace the parameters by its
        # flags.
        self.advice = advice

    @property
    def problem(self) -> str:
        """The sentence without the advice."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return f"{self.problem}; {self.advice}" if self.advice else self.problem

    def sentence(self, words: Mapping[str, str]) -> str:
        """Return the problem and the advice, whose Python parameters are replaced by the words of a front end."""
        return f"{self.problem}; {replace_parameters(self.advice, words)}" if self.advice else self.problem


def replace_parameters(advice: str, words: Mapping[str, str]) -> str:
    """Return advice such as ``raise n_ctx`` with a front end's words in place of Python parameters."""
    # The advice must not quote names or values of the user, since these might look like a parameter.
    names = "|".join(map(re.escape, words))
    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", lambda name: words[name[0]], advice)


class PluginError(LogitsmithError):
    """A plug-in that cannot be loaded or used. The message names the plug-in, its package and the reason."""


class UsageError(LogitsmithError):
    """A wrong command line: an unknown flag, a wrong value, or flags that exclude each other."""

    exit_code = 2


# the expected value, by the type of pydantic's error
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
# the sign, and the name of the limit, by the type of pydantic's error about a range
_BOUND_ERRORS = {
    "less_than": ("<", "lt"),
    "less_than_equal": ("≤", "le"),
    "greater_than": (">", "gt"),
    "greater_than_equal": ("≥", "ge"),
}
_VALIDATOR_ERROR_TYPES = ("value_error", "assertion_error")
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def wrong_value(value: object, allowed: str) -> str:
    """Return ``VALUE is not ALLOWED``."""
    return f"{short_repr(value)} is not {allowed}"


def problem_message(*problems: ErrorDetails, allowed: str = "") -> str:
    """Return a sentence about a wrong value, without the field's name, such as ``'abc' is not a number``."""
    # Where pydantic names neither the value nor, for a field of several types, all that is allowed, the sentence
    # is ours. Otherwise it is that of a validator, or pydantic's. ``problems``: one for each type that the field
    # accepts. ``allowed``: the range of the field in words, such as ``0..1``; empty: the error's limit.
    # One of the errors belongs to the type that the value has. It is the only one that is not about a wrong type.
    problem = next((error for error in problems if error["type"] not in _EXPECTED_VALUES), problems[0])
    error_type, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    if error_type in _EXPECTED_VALUES:
        expected_values = join_alternatives(dict.fromkeys(_EXPECTED_VALUES[error["type"]] for error in problems))
        return wrong_value(value, expected_values) + (f" ({allowed})" if allowed else "")
    if error_type in _BOUND_ERRORS:
        sign, limit_name = _BOUND_ERRORS[error_type]
        bound = allowed or f"{sign} {context[limit_name]}"
        return wrong_value(value, f"within {bound}" if ".." in bound else bound)
    if error_type in ("literal_error", "enum"):
        choices = re.sub(r"\b(True|False|None)\b", lambda word: _JSON_WORDS[word[0]], context["expected"])
        return wrong_value(value, choices.replace("'", ""))  # flags list their choices without quotes
    if error_type in _VALIDATOR_ERROR_TYPES:
        return str(context["error"])
    if error_type == "json_invalid":  # a line of its own, whose number the caller knows
        return "not JSON: " + context["error"].replace(" at line 1 column ", ", at character ")
    return problem["msg"]


def problem_sentence(path: Iterable[object], message: str) -> str:
    """Return ``field.of.a.field: message``; without a path, the message alone."""
    field = ".".join(map(str, path))
    return f"{field}: {message}" if field else message
