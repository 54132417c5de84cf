"""What is said about a grammar that cannot be used."""

from __future__ import annotations

from typing import ClassVar

from ..common import LogitsmithError


class GrammarError(LogitsmithError):
    """A grammar that cannot be used, or a token that it does not allow.

    Attributes: ``message``; ``line`` and ``column``, counted from 1, of the place in the grammar's text, or None
    where there is none. As text: the place, the message, then that line with a caret under the column.
    """

    exit_code: ClassVar[int] = 2

    def __init__(
        self, message: str, line: int | None = None, column: int | None = None, source: str | None = None
    ) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(self._tell(source))

    def within(self, label: str) -> GrammarError:
        """The same error, with the name of the grammar before it."""
        other = GrammarError(self.message, self.line, self.column)
        other.args = (f"{label}: {self}",)
        return other

    def _tell(self, source: str | None) -> str:
        if self.line is None:
            return self.message
        place = f"line {self.line}" + (f", column {self.column}" if self.column is not None else "")
        lines = [] if source is None else source.split("\n")
        if self.column is None or self.line > len(lines):
            return f"{place}: {self.message}"
        shown, caret = _excerpt(lines[self.line - 1].rstrip("\r"), self.column)
        return f"{place}: {self.message}\n  {shown}\n  {caret}"


def _excerpt(line: str, column: int, width: int = 90) -> tuple[str, str]:
    """The part of a line about a column, and a line with a caret under that column."""
    start = max(0, column - 1 - width // 2) if len(line) > width else 0
    shown = line[start : start + width].replace("\t", " ")
    return shown, " " * (column - 1 - start) + "^"
