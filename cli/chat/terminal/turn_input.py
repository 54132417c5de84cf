"""Where the turns of a chat come from: a person who types, or lines of stdin."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from io import StringIO

from ....common.errors import LogitsmithError
from ....common.files import MAX_TEXT_BYTES
from ....common.text import NotUTF8Error, decode_utf8

BLOCK_MARK = '"""'
"""On a line of its own it begins and ends a turn of several lines."""


class EndOfInputError(Exception):
    """Nothing more comes."""


class TurnError(LogitsmithError):
    """A turn that cannot be used."""


class TurnInput(ABC):
    """Where turns come from.

    Attributes: ``interrupt_waits``, True after Ctrl-C behind a turn that was read, or behind another Ctrl-C:
    nobody knows of it yet; ``was_cleared``, True if Ctrl-C cleared what was typed, and nothing was sent since.
    """

    interrupt_waits = False
    was_cleared = False

    def take_interrupt(self) -> bool:
        """Return ``interrupt_waits``, which is False from then on."""
        waits, self.interrupt_waits = self.interrupt_waits, False
        return waits

    def take_cleared(self) -> bool:
        """Return ``was_cleared``, which is False from then on."""
        cleared, self.was_cleared = self.was_cleared, False
        return cleared

    @abstractmethod
    def read(self, default: str = "", question: str = "") -> str:
        """Return the next turn, which may have several lines.

        Args:
            default: a text that the person may change.
            question: what stands before the place to type; empty: the usual mark.

        Raises ``EndOfInputError`` when nothing more comes, ``TurnError``, and ``KeyboardInterrupt`` for Ctrl-C
        where nothing is typed, also for one that waits.
        """


class PipedInput(TurnInput):
    """The lines of stdin: each is a turn, or part of a block between two marks. Blank lines are none."""

    _is_over = False
    """True after a turn that is too large: nothing more is read."""

    def read(self, default: str = "", question: str = "") -> str:
        """Return the next turn."""
        while not (line := self._line().strip("\n")).strip():
            pass
        if line.strip() != BLOCK_MARK:
            return line
        block = StringIO()  # a list of short lines would take twenty times the memory
        try:
            while (line := self._line()).strip() != BLOCK_MARK:
                block.write(line)
                self._check_size(block.tell(), "a block")
        except EndOfInputError:
            if not block.tell():
                raise
        return block.getvalue().removesuffix("\n")

    def _line(self) -> str:
        is_open = sys.stdin is not None and not self._is_over
        data = sys.stdin.buffer.readline(MAX_TEXT_BYTES + 1) if is_open else b""
        if not data:
            raise EndOfInputError
        self._check_size(len(data), "a line")
        try:
            return decode_utf8(data)
        except NotUTF8Error as error:
            raise TurnError(f"stdin is {error}") from None

    def _check_size(self, size: int, what: str) -> None:
        """End the input with a ``TurnError``: what follows in such a line or block is not a turn."""
        if size > MAX_TEXT_BYTES:
            self._is_over = True
            limit = MAX_TEXT_BYTES // 1_000_000
            raise TurnError(f"stdin: {what} is larger than {limit} MB, so the chat ends; give shorter turns")


def unmarked(text: str) -> str:
    """A turn without the marks of a block around it."""
    lines = text.strip().split("\n")
    if len(lines) > 1 and lines[0].strip() == BLOCK_MARK:
        end = -1 if lines[-1].strip() == BLOCK_MARK else len(lines)
        return "\n".join(lines[1:end])
    return text


def is_open_block(text: str) -> bool:
    """True for a block whose end mark is missing."""
    lines = text.strip().split("\n")
    return lines[0].strip() == BLOCK_MARK and (len(lines) == 1 or lines[-1].strip() != BLOCK_MARK)
