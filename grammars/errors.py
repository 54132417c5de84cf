"""The error class of grammars, and llguidance's errors with their place in the user's source.

Those about JSON Schemas are in `schema_errors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Self

from ..common.errors import Advice, LogitsmithError, Place, Word, place_suffix

# Advice for a keyword of a JSON Schema that is left out on request
LENIENT_HINT: Advice = (Word.SCHEMA_LENIENT, " ignores it")


class GrammarError(LogitsmithError):
    """An invalid grammar, or a token that the grammar does not allow.

    The text of the error has the position, the message, and the line of the grammar with a caret under the column.

    Attributes:
        exit_code: the exit code of ``gen`` after this error.
        message: the message without the position.
        line: line of the error in the grammar's source, counted from 1; None if the error has no position.
        column: column of the error, counted from 1; None if the error has no position.
    """

    exit_code: ClassVar[int] = 2

    def __init__(  # noqa: PLR0913 - the arguments are public
        self,
        message: str,
        line: int | None = None,
        column: int | None = None,
        source: str | None = None,
        *,
        origin: str = "",
        place: Place = (),
        advice: str | Advice = (),
    ) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(self._full_text(source), origin=origin, place=place, advice=advice)

    @classmethod
    def in_source(cls, message: str, source: str, offset: int) -> GrammarError:
        """Return the error for an offset in the grammar's source, in characters."""
        return cls(message, *line_and_column(source, offset), source)

    def within(self, origin: str, words: Mapping[str, str] | None = None) -> Self:
        """Return the error in a place that the user typed or opened. The place is not named twice.

        ``words``: the words of this place for the advice.
        """
        if self.origin:
            first_name, place_below = self.origin, self.place
        else:  # the place begins with the key of a preset, such as ``json_schema``
            first_name, place_below = str(next(iter(self.place), "")), self.place[1:]
        if _is_repetition(origin, first_name):
            moved = self.at(origin + place_suffix(place_below))
        else:
            moved = super().within(origin)
        return moved.with_words(words or {})

    def _full_text(self, source: str | None) -> str:
        if self.line is None:
            return self.message
        position = f"line {self.line}"
        if self.column is not None:
            position += f", column {self.column}"
        lines = [] if source is None else source.split("\n")
        if self.column is None or self.line > len(lines):
            return f"{position}: {self.message}"
        excerpt, caret_line = _excerpt_and_caret(lines[self.line - 1].rstrip("\r"), self.column)
        return f"{position}: {self.message}\n  {excerpt}\n  {caret_line}"


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of an offset in a text, both counted from 1."""
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def _is_repetition(origin: str, name: str) -> bool:
    """Return True if an origin, such as ``--json-schema``, ends in a name, such as ``JSON Schema``."""
    last_word = re.split(r"[\s.]", origin)[-1]
    origin_name = last_word.removeprefix("--").replace("_", " ").replace("-", " ")
    return origin_name.casefold() == name.casefold()


# Maximum length of the part of a line that an error shows. A terminal has 80 to 120 columns.
_EXCERPT_CHARACTERS = 90


def _excerpt_and_caret(line: str, column: int) -> tuple[str, str]:
    """Return the part of a line around a column, and a second line with a caret under the column."""
    index = column - 1
    start = 0
    if len(line) > _EXCERPT_CHARACTERS:
        start = max(0, index - _EXCERPT_CHARACTERS // 2)
    excerpt = line[start : start + _EXCERPT_CHARACTERS].replace("\t", " ")
    caret_line = " " * (index - start) + "^"
    return excerpt, caret_line


# llguidance's positions refer to its Lark grammar. Only for kind "lark" is this grammar the user's source.
_POSITION_PREFIX = re.compile(r"^(?:at )?\d+\(\d+\): ")
_LARK_ERROR = re.compile(
    r"""
    (?:at[ ])?(?P<line>\d+)\((?P<column>\d+)\):[ ]
    (?P<message>.*?)
    (?:\n\s+\d+[ ]\||$)  # an excerpt with line numbers, or the end
    """,
    re.VERBOSE | re.DOTALL,
)
# An error of llguidance's regex parser: the regex, the caret below the wrong character, and the message
REGEX_ERROR = re.compile(
    r"""
    regex[ ]parse[ ]error:\n
    [ ]{4}(?P<regex>.*)\n
    [ ]{4}(?P<caret_line>[ ]*\^).*\n
    error:[ ](?P<message>.*)
    """,
    re.VERBOSE,
)


def source_error(message: str, kind: str, source: str) -> GrammarError:
    """Return the error for a message of llguidance, with a position in the source if the message has one."""
    if kind == "regex":
        return _regex_error(message, source)
    if kind == "gbnf":
        return GrammarError(f"llguidance rejects the grammar: {first_line(_POSITION_PREFIX.sub('', message))}")
    match = _LARK_ERROR.match(message)
    if match:
        return GrammarError(match["message"].strip(), int(match["line"]), int(match["column"]), source)
    return GrammarError(first_line(message))


def _regex_error(message: str, source: str) -> GrammarError:
    match = REGEX_ERROR.search(message)
    if match:
        text_before = match["regex"][: match["caret_line"].index("^")]
        if match["regex"] != source:
            text_before = text_before.replace(r"\/", "/")  # llguidance escapes slashes
        return GrammarError(match["message"], line=1, column=len(text_before) + 1, source=source)
    return GrammarError(first_line(_POSITION_PREFIX.sub("", message)), origin="regex")


def first_line(message: str) -> str:
    """Return the first line of a message of llguidance, without the dump of llguidance's state."""
    return message.split("\n<state>", 1)[0].strip().split("\n", 1)[0]
