"""The common base of the rooms' exceptions."""

from __future__ import annotations

from typing import ClassVar


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
