"""Prompt lookup: guesses the next tokens from the text so far."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_MATCH_TOKENS, _MIN_MATCH_TOKENS = 4, 2
"""Tokens at the end of the text that must occur earlier in it: the most at first and after a wrong draft, the
least after a right one. A longer match is preferred to a shorter one."""
_FIRST_DRAFT_TOKENS = 4
"""The length of a draft at first and after a wrong one. On processors the first rows of a batch cost most."""
_MAX_PAUSE_TOKENS = 32
"""Tokens without a draft after several wrong ones in a row; the pause doubles from one token up to this."""


class PromptLookup:
    """Drafts of up to ``max_tokens`` tokens: those that followed an earlier occurrence of the text's last tokens.

    A wrong draft costs time. So drafts begin after a long match; while they are right as a whole, their length
    doubles, and a short match is enough. If less than half of a draft was right, it cost more than it saved, and
    there is no draft for a while. All of it depends on the tokens alone, never on measured times: the same run
    makes the same batches. Attributes: ``drafted`` and ``accepted``, how many tokens were guessed, and how many of
    these were right.
    Source: prompt lookup decoding (A. Saxena 2023); similar to llama.cpp's examples/lookup.
    """

    def __init__(self, max_tokens: int, text: Iterable[int]) -> None:
        self._max_tokens = max_tokens
        self._text: list[int] = []
        self._continuations: dict[tuple[int, ...], int] = {}
        """The index in the text at which the continuation of some tokens begins; the latest one counts."""
        self._draft_length, self._min_match = min(_FIRST_DRAFT_TOKENS, max_tokens), _MAX_MATCH_TOKENS
        self._pause, self._next_pause = 0, 1
        self.drafted = self.accepted = 0
        for token in text:
            self.add(token)

    def add(self, token: int) -> None:
        """Append one token to the text."""
        end = len(self._text)
        for size in range(_MIN_MATCH_TOKENS, min(_MAX_MATCH_TOKENS, end) + 1):
            self._continuations[tuple(self._text[end - size :])] = end
        self._text.append(token)
        self._pause -= self._pause > 0

    def draft(self, limit: int) -> list[int]:
        """Return at most ``limit`` guesses of the next tokens, possibly none."""
        if self._pause:
            return []
        for size in range(min(_MAX_MATCH_TOKENS, len(self._text)), self._min_match - 1, -1):
            start = self._continuations.get(tuple(self._text[-size:]))
            if start is not None:
                period = len(self._text) - start  # a continuation that reaches the end of the text is repeated
                return [self._text[start + step % period] for step in range(min(limit, self._draft_length))]
        return []

    def learn(self, drafted: int, accepted: int) -> None:
        """Adapt to the last draft, of which ``accepted`` tokens were right."""
        self.drafted += drafted
        self.accepted += accepted
        if accepted == drafted:
            self._draft_length, self._min_match = min(self._max_tokens, 2 * self._draft_length), _MIN_MATCH_TOKENS
            self._next_pause = 1
            return
        self._draft_length = min(max(_FIRST_DRAFT_TOKENS, accepted), self._max_tokens)
        if 2 * accepted >= drafted:
            self._next_pause = 1
        else:
            self._min_match = _MAX_MATCH_TOKENS
            self._pause = self._next_pause
            self._next_pause = min(2 * self._next_pause, _MAX_PAUSE_TOKENS)
