"""What completes a word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Candidate(NamedTuple):
    """A text that the word may become, and a few words on it."""

    text: str
    help: str = ""

    @property
    def is_partial(self) -> bool:
        """True if more has to be typed behind it, so that no space follows."""
        return self.text.endswith((".", "=", "(", "/"))


class Reply(NamedTuple):
    """What completes a word.

    Attributes:
        candidates: texts of the whole word.
        file_suffix: files complete the word too if their names end so; None: no files do; empty: all of them do.
        file_start: where the path begins in the word, such as behind ``--file=``.
        adds_space: False if the word goes on although a candidate is complete.
    """

    candidates: list[Candidate]
    file_suffix: str | None = None
    file_start: int = 0
    adds_space: bool = True


def matching(candidates: Iterable[Candidate], word: str) -> list[Candidate]:
    """The candidates that begin with what is typed."""
    return [candidate for candidate in candidates if candidate.text.startswith(word)]
