"""Drafts of the next tokens, which are looked up in the text so far."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_MATCH_TOKENS, _MIN_MATCH_TOKENS = 4, 2
"""Number of tokens at the end of the text that must occur earlier in the text: the maximum for the first draft and
after a wrong draft, the minimum after a right one. A longer match is preferred to a shorter one."""
_FIRST_DRAFT_TOKENS = 4
"""Length of the first draft, and of a draft after a wrong one. On CPUs the first rows of a batch cost most."""
_MAX_PAUSE_TOKENS = 32
"""Limit of the pause after wrong drafts, in tokens. The pause begins with one token, and doubles with each wrong
draft."""


class PromptLookup:
    """Drafts of up to ``max_tokens`` tokens: those that followed an earlier occurrence of the text's last tokens.

    A wrong draft costs time. So the first draft needs a long match. While all tokens of the drafts are right, the
    length doubles, and a short match is enough. If less than half of a draft was right, it cost more time than it
    saved, and there is no draft for some tokens. All of this depends on the tokens alone, never on measured times,
    so that a repeated run has the same batches.
    Source: prompt lookup decoding (A. Saxena 2023); similar to llama.cpp's examples/lookup.

    Attributes:
        drafted_token_count: number of tokens that were drafted so far.
        accepted_token_count: number of drafted tokens that the chain drew, too.
    """

    def __init__(self, max_tokens: int, text: Iterable[int]) -> None:
        self._max_tokens = max_tokens
        self._text_tokens: list[int] = []
        self._continuations: dict[tuple[int, ...], int] = {}
        """For each sequence of tokens, the index in the text after its latest occurrence."""
        self._max_draft_tokens, self._min_match_tokens = min(_FIRST_DRAFT_TOKENS, max_tokens), _MAX_MATCH_TOKENS
        self._paused_tokens, self._next_pause_tokens = 0, 1
        self._replaced_entries: list[list[tuple[tuple[int, ...], int | None]]] = []
        """For each added token, the entries of `_continuations` that it replaced, to remove the token again."""
        self.drafted_token_count = self.accepted_token_count = 0
        for token in text:
            self.add(token)

    def add(self, token: int) -> None:
        """Append one token to the text."""
        end = len(self._text_tokens)
        replaced_entries = []
        for match_length in range(_MIN_MATCH_TOKENS, min(_MAX_MATCH_TOKENS, end) + 1):
            sequence = tuple(self._text_tokens[end - match_length :])
            replaced_entries.append((sequence, self._continuations.get(sequence)))
            self._continuations[sequence] = end
        self._replaced_entries.append(replaced_entries)
        self._text_tokens.append(token)
        self._paused_tokens -= self._paused_tokens > 0

    def remove_last(self, count: int) -> None:
        """Remove the last ``count`` tokens of the text."""
        for _ in range(count):
            self._text_tokens.pop()
            for sequence, continuation_start in reversed(self._replaced_entries.pop()):
                if continuation_start is None:
                    del self._continuations[sequence]
                else:
                    self._continuations[sequence] = continuation_start

    def draft(self, max_count: int) -> list[int]:
        """Return a guess of the next tokens, at most ``max_count``, possibly none."""
        if self._paused_tokens:
            return []
        for match_length in range(min(_MAX_MATCH_TOKENS, len(self._text_tokens)), self._min_match_tokens - 1, -1):
            continuation_start = self._continuations.get(tuple(self._text_tokens[-match_length:]))
            if continuation_start is not None:
                period = (
                    len(self._text_tokens) - continuation_start
                )  # a continuation that reaches the end of the text is repeated
                return [
                    self._text_tokens[continuation_start + step % period]
                    for step in range(min(max_count, self._max_draft_tokens))
                ]
        return []

    def record_acceptance(self, drafted_count: int, accepted_count: int) -> None:
        """Adapt the length of drafts to the last draft, of which ``accepted_count`` tokens were right."""
        self.drafted_token_count += drafted_count
        self.accepted_token_count += accepted_count
        if accepted_count == drafted_count:
            self._max_draft_tokens, self._min_match_tokens = (
                min(self._max_tokens, 2 * self._max_draft_tokens),
                _MIN_MATCH_TOKENS,
            )
            self._next_pause_tokens = 1
            return
        self._max_draft_tokens = min(max(_FIRST_DRAFT_TOKENS, accepted_count), self._max_tokens)
        if 2 * accepted_count >= drafted_count:
            self._next_pause_tokens = 1
        else:
            self._min_match_tokens = _MAX_MATCH_TOKENS
            self._paused_tokens = self._next_pause_tokens
            self._next_pause_tokens = min(2 * self._next_pause_tokens, _MAX_PAUSE_TOKENS)
