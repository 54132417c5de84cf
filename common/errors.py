"""The base class of the exceptions of all packages, and sentences about pydantic's validation errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from .text import count_noun, join_alternatives, short_repr

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


Place = tuple[str | int, ...]  # where a value is: the keys and indexes that lead to it


class Word(StrEnum):
    """A name in advice, as Python code writes it. A front end replaces it by its own name, such as a flag."""

    BASIS_FROM_ROWS = "basis_from_rows"
    CHAIN = "--chain"
    CHAT_TEMPLATE = "chat_template=…"
    CHECKPOINT = "checkpoint=…"
    GPU_LAYERS = "gpu_layers"
    JSON_SCHEMA_FILE = "json_schema_file=…"
    LORA = "lora=…"
    MODEL = "path=…"
    MODEL_FILE = "path=FILE.gguf"
    N_CTX = "n_ctx"
    RESUME = "resume=True"
    SCHEMA_LENIENT = "schema_lenient=True"
    SET = "--set"
    WAIT_FOR_SERVER = "should_wait_for_server=True"


Advice = tuple[str, ...]  # the parts of a sentence, each a text or a `Word`


class LogitsmithError(Exception):
    """An error whose text is one sentence for the user: the place, the problem and the advice.

    The code that finds a problem knows the path inside of a value. Its callers know the file or the flag that the
    value comes from. Each caller adds its part of the place to the error.
    """

    exit_code: ClassVar[int] = 1  # the exit code of `gen`: 1 for a failure, 2 for wrong usage

    def __init__(
        self, problem: str = "", *, origin: str = "", place: Place = (), advice: str | Advice = ()
    ) -> None:
        super().__init__(problem)
        self.origin = origin  # what the user typed or opened, such as ``--top-p`` or ``mine.yaml``; may be empty
        self.place = place  # the place below the origin, as in ``chain[2].top_p.p``
        # the last part of the sentence, which says what to do
        if isinstance(advice, str):
            self.advice: Advice = (advice,) if advice else ()
        else:
            self.advice = advice

    def __reduce__(self) -> tuple[object, ...]:
        # A copy is made without ``__init__``, because the arguments of a subclass are not known.
        return type(self).__new__, (type(self), *self.args), self.__dict__

    @classmethod
    def of(cls, error: LogitsmithError) -> Self:
        """Return an error of this class with the same problem, place and advice."""
        return cls(error.problem, origin=error.origin, place=error.place, advice=error.advice)

    @property
    def problem(self) -> str:
        """The wrong value and the allowed values."""
        return str(self.args[0]) if self.args else ""

    @property
    def statement(self) -> str:
        """The place and the problem: the text without the advice."""
        parts = [self.origin, place_suffix(self.place).removeprefix(".")]
        parts = [part for part in parts if part]
        return ": ".join([*parts, self.problem])

    def __str__(self) -> str:
        if not self.advice:
            return self.statement
        return f"{self.statement}; {''.join(self.advice)}"

    def sentence(self, words: Mapping[str, str | None]) -> str:
        """Return the text of the error with advice in the words of a front end."""
        return str(self.with_words(words))

    def with_words(self, words: Mapping[str, str | None]) -> Self:
        """Return the error with advice in the words of a front end."""
        # The error has no advice if ``words`` has None for one of its words.
        advice: list[str] = []
        for part in self.advice:
            text = words.get(part, part) if isinstance(part, Word) else part
            if text is None:
                advice.clear()
                break
            if text:
                advice.append(text)
        worded_error = copy(self)
        worded_error.advice = tuple(advice)
        return worded_error

    def at(self, origin: str, place: Place = ()) -> Self:
        """Return the error with another place."""
        moved = copy(self)
        moved.origin, moved.place = origin, place
        return moved

    def within(self, origin: str) -> Self:
        """Return the error in a place that the user typed or opened."""
        full_origin = f"{origin}: {self.origin}" if origin and self.origin else origin or self.origin
        return self.at(full_origin, self.place)

    def under(self, *place: str | int) -> Self:
        """Return the error in a part of a larger value."""
        return self.at(self.origin, (*place, *self.place))


def place_suffix(place: Place) -> str:
    """Return a place as it follows a name, such as ``[2].top_p.p``."""
    suffixes = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    return "".join(suffixes)


class PluginError(LogitsmithError):
    """A plug-in that cannot be loaded or used. The message names the plug-in, its package and the reason."""


class UsageError(LogitsmithError):
    """A wrong command line: an unknown flag, a wrong value, or flags that exclude each other."""

    exit_code = 2


# the expected value, by the type of pydantic's error about a wrong type
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


class InvalidFieldError(LogitsmithError):
    """A field of a request or of a file is invalid, or the whole of it.

    Attributes:
        field: the field at fault; None: the whole.
    """

    def __init__(self, problem: str, place: Place = (), field: str | None = None) -> None:
        super().__init__(problem, place=place)  # the place is empty if the problem names the fields itself
        self.field = field or (str(place[0]) if place else None)


class _Bound(NamedTuple):
    sign: str
    limit_key: str  # key of the limit in the context of pydantic's error


# by the type of pydantic's error about a range
_BOUND_BY_ERROR_TYPE = {
    "less_than": _Bound("<", "lt"),
    "less_than_equal": _Bound("≤", "le"),
    "greater_than": _Bound(">", "gt"),
    "greater_than_equal": _Bound("≥", "ge"),
}


class _Size(NamedTuple):
    noun: str
    limit: str
    limit_key: str  # key of the limit in the context of pydantic's error


# by the type of pydantic's error about a length
_SIZE_BY_ERROR_TYPE = {
    "too_short": _Size("item", "minimum", "min_length"),
    "too_long": _Size("item", "maximum", "max_length"),
    "string_too_short": _Size("character", "minimum", "min_length"),
    "string_too_long": _Size("character", "maximum", "max_length"),
}
_FIELD_PROBLEMS = {"missing": "the field is missing", "extra_forbidden": "there is no such field"}
_VALIDATOR_ERROR_TYPES = ("value_error", "assertion_error")
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def wrong_value(value: object, allowed: str) -> str:
    """Return ``VALUE is not ALLOWED``."""
    return f"{short_repr(value)} is not {allowed}"


def problem_message(*problems: ErrorDetails, allowed: str = "") -> str:
    """Return a sentence about a wrong value, without the field's name, such as ``'abc' is not a number``."""
    # Many of pydantic's sentences do not name the value, or name only one of the allowed types. They are replaced.
    # ``problems``: one error for each type that the field accepts. ``allowed``: the range of the field in words,
    # such as ``0..1``; empty: the limit of the error. If the value has one of the accepted types, only one error
    # is not about a wrong type. This error is reported.
    problem = next((error for error in problems if error["type"] not in _EXPECTED_VALUES), problems[0])
    error_type = problem["type"]
    value = problem["input"]
    context = problem.get("ctx", {})
    if error_type in _EXPECTED_VALUES:
        expected_values = list(dict.fromkeys(_EXPECTED_VALUES[error["type"]] for error in problems))
        if "a number" in expected_values and "an integer" in expected_values:
            expected_values.remove("an integer")
        range_text = f" ({allowed})" if allowed else ""
        return wrong_value(value, join_alternatives(expected_values)) + range_text
    if error_type in _BOUND_BY_ERROR_TYPE:
        bound = _BOUND_BY_ERROR_TYPE[error_type]
        limit = allowed or f"{bound.sign} {context[bound.limit_key]}"
        return wrong_value(value, f"within {limit}" if ".." in limit else limit)
    return _other_problem(problem)


def _other_problem(problem: ErrorDetails) -> str:
    """Return a sentence about a problem that is not about the type or the range of a value."""
    error_type, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    if error_type in ("literal_error", "enum"):
        choices = re.sub(r"\b(True|False|None)\b", lambda word: _JSON_WORDS[word[0]], context["expected"])
        return wrong_value(value, choices.replace("'", ""))  # flags list their choices without quotes
    if error_type in _SIZE_BY_ERROR_TYPE:
        size = _SIZE_BY_ERROR_TYPE[error_type]
        count = f"{'is' if len(value) == 1 else 'are'} {count_noun(len(value), size.noun)}"
        return f"there {count}; the {size.limit} is {context[size.limit_key]:,}"
    if error_type in _VALIDATOR_ERROR_TYPES:
        return str(context["error"])
    if error_type == "json_invalid":  # the value was one line, so only the character is named
        return "not JSON: " + context["error"].replace(" at line 1 column ", ", at character ")
    return _FIELD_PROBLEMS.get(error_type, problem["msg"])


def problem_sentence(place: Place, message: str) -> str:
    """Return ``field.of[1].a.field: message``; without a place, the message alone."""
    return str(LogitsmithError(message, place=place))
