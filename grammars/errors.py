"""The error of a grammar that cannot be used, and the translation of llguidance's messages into it.

Messages on JSON Schemas are translated in `schema_errors`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from ..common.errors import LogitsmithError


class GrammarError(LogitsmithError):
    """A grammar that cannot be used, or a token that the grammar does not allow.

    Attributes: ``message``; ``line`` and ``column``, from 1, of the mistake in the grammar's text, or None where
    it has no position. As text: the position, the message, then that line with a caret under the column.
    """

    exit_code: ClassVar[int] = 2

    def __init__(
        self,
        message: str,
        line: int | None = None,
        column: int | None = None,
        source: str | None = None,
        *,
        advice: str = "",
    ) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(self._full_text(source), advice=advice)

    @classmethod
    def at(cls, message: str, source: str, offset: int) -> GrammarError:
        """The error for an offset, in characters, in the grammar's text ``source``."""
        return cls(message, *line_and_column(source, offset), source)

    def within(self, label: str) -> GrammarError:
        """The same error with the grammar's name before it; a name that the label ends in is not said again."""
        text = self.problem
        head, _, rest = text.partition(": ")
        labelled = GrammarError(self.message, self.line, self.column, advice=self.advice)
        labelled.args = (f"{label}: {rest if _says_the_same(label, head) else text}",)
        return labelled

    def _full_text(self, source: str | None) -> str:
        if self.line is None:
            return self.message
        position = f"line {self.line}" + (f", column {self.column}" if self.column is not None else "")
        lines = [] if source is None else source.split("\n")
        if self.column is None or self.line > len(lines):
            return f"{position}: {self.message}"
        excerpt, caret_line = _excerpt(lines[self.line - 1].rstrip("\r"), self.column)
        return f"{position}: {self.message}\n  {excerpt}\n  {caret_line}"


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """The line and the column, from 1, of an offset in a text."""
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def _says_the_same(label: str, head: str) -> bool:
    """True for labels such as ``--json-schema`` or ``--set grammar`` before ``JSON Schema`` or ``grammar``."""
    last_word = label.rsplit(maxsplit=1)[-1] if label.strip() else ""
    return last_word.removeprefix("--").replace("-", " ").casefold() == head.casefold()


_EXCERPT_CHARACTERS = 90
"""The longest part of a line that an error shows: a terminal has 80 to 120 columns."""


def _excerpt(line: str, column: int) -> tuple[str, str]:
    """The part of a line around a column, and a line with a caret under that column."""
    start = max(0, column - 1 - _EXCERPT_CHARACTERS // 2) if len(line) > _EXCERPT_CHARACTERS else 0
    shown = line[start : start + _EXCERPT_CHARACTERS].replace("\t", " ")
    return shown, " " * (column - 1 - start) + "^"


# llguidance's positions are positions in its own grammar. Only Lark's are also positions in the user's text.
_POSITION_PREFIX = re.compile(r"^(?:at )?\d+\(\d+\): ")
_LARK_ERROR = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*?)(?:\n\s+\d+ \||$)", re.DOTALL)
REGEX_ERROR = re.compile(r"regex parse error:\n    (?P<text>.*)\n    (?P<mark> *\^).*\nerror: (?P<message>.*)")


def translate_engine_error(message: str, kind: str, source: str) -> GrammarError:
    """Make llguidance's message an error, with a position in the source where there is one.

    Args:
        message: what llguidance said.
        kind: the kind of the grammar; not ``json_schema``.
        source: the grammar's text.
    """
    if kind == "regex":
        return _regex_error(message, source)
    if kind == "gbnf":
        return GrammarError(f"llguidance cannot take the grammar: {first_line(_POSITION_PREFIX.sub('', message))}")
    match = _LARK_ERROR.match(message)
    if match:
        return GrammarError(match[3].strip(), int(match[1]), int(match[2]), source)
    return GrammarError(first_line(message))


def _regex_error(message: str, source: str) -> GrammarError:
    match = REGEX_ERROR.search(message)
    if match:
        return GrammarError(match["message"], 1, len(match["mark"]), source)
    if "lookarounds" in message:
        return GrammarError("look-around and \\b are not supported")
    return GrammarError(f"regex: {first_line(message)}")


def first_line(message: str) -> str:
    """Return the first line of a message of llguidance, without its state."""
    return message.split("\n<state>", 1)[0].strip().split("\n", 1)[0]
