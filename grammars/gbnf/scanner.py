"""Reads a GBNF text from left to right, and reports mistakes at their position."""

from __future__ import annotations

import re
from typing import NoReturn

from ..errors import GrammarError

_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANKS_AND_LINE_ENDS = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")


class Scanner:
    """A GBNF text and the position up to which it was read: ``position``, an offset in characters."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0

    def peek(self) -> str:
        """The next character; empty at the end of the text."""
        return self.source[self.position : self.position + 1]

    def is_next(self, text: str) -> bool:
        """True if this text comes next."""
        return self.source.startswith(text, self.position)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what the pattern matches here; None if it matches nothing."""
        match = pattern.match(self.source, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def skip_blanks(self, line_ends: bool) -> None:
        """Skip blanks and comments, and with ``line_ends`` line ends too."""
        self.take(_BLANKS_AND_LINE_ENDS if line_ends else _BLANKS)

    def describe_next(self) -> str:
        """The next character as an error message names it."""
        character = self.peek()
        if not character:
            return "the end of the text"
        return "the end of the line" if character in "\r\n" else repr(character)

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise ``GrammarError`` for a position in the text; None: the current position."""
        raise GrammarError.at(message, self.source, self.position if position is None else position)
