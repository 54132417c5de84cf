"""Guesses at what comes next, from the text so far."""

from __future__ import annotations

from collections.abc import Iterable

# Tokens at the end of the text that have to stand somewhere before; the longest that do decide.
_LONGEST, _SHORTEST = 4, 2
# Tokens to wait after a guess that was all wrong: doubled each time, up to this.
_PATIENCE = 32


class Lookup:
    """Drafts of up to ``most`` tokens: what followed where the last tokens of the text stood before.

    A draft costs time where it is wrong, so its length doubles with each that was right as a whole, and falls to
    what was right of the last one; where nothing was, there is none for a while.
    Source: prompt lookup decoding (A. Saxena 2023); llama.cpp's examples/lookup works alike.
    """

    def __init__(self, most: int, text: Iterable[int]) -> None:
        self._most = most
        self._text: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        """Where what follows some tokens begins, by these tokens; the last place counts."""
        self._reach, self._wait, self._patience = min(2, most), 0, 1
        self.drafted = self.accepted = 0
        for token in text:
            self.add(token)

    def add(self, token: int) -> None:
        """One more token of the text."""
        end = len(self._text)
        for size in range(_SHORTEST, min(_LONGEST, end) + 1):
            self._places[tuple(self._text[end - size :])] = end
        self._text.append(token)
        self._wait -= self._wait > 0

    def draft(self, limit: int) -> list[int]:
        """At most ``limit`` tokens that may come next; possibly none."""
        if self._wait:
            return []
        for size in range(min(_LONGEST, len(self._text)), _SHORTEST - 1, -1):
            place = self._places.get(tuple(self._text[-size:]))
            if place is not None:
                round_ = len(self._text) - place  # what runs on past the end is taken to go round
                return [self._text[place + step % round_] for step in range(min(limit, self._reach))]
        return []

    def learn(self, drafted: int, accepted: int) -> None:
        """Tell how many tokens of a draft were right."""
        self.drafted += drafted
        self.accepted += accepted
        if accepted:
            self._reach = min(self._most, 2 * self._reach) if accepted == drafted else accepted
            self._patience = 1
        else:
            self._reach = min(2, self._most)
            self._wait = self._patience
            self._patience = min(2 * self._patience, _PATIENCE)
