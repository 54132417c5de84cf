"""What has followed the end of a history before, whatever its length."""

from __future__ import annotations

from collections.abc import Sequence


class SuffixAutomaton:
    """All sequences that stand in a history, as states with links between them (Blumer et al. 1985).

    A state stands for the sequences that end at the same places; its link leads to that of their longest suffix
    which also ends elsewhere. So the links from the whole history lead through all of its ends that stand in it
    a second time, the longest first, and what continues a state is what has followed it. A token is added in
    amortised constant time, where a search of the history costs its length, and one that repeats a single token
    all over costs as little as any other. It takes some 400 bytes for each token. Parameters:
    ``tokens``, the history, which may grow: what is new is taken in when asked.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._taken = 0
        self._first_again = False
        # By state; 0 is the empty sequence. The length is that of the longest sequence that the state stands for.
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._end = 0

    def followers(self, limit: int, least: int) -> dict[int, int]:
        """The tokens that would carry on a repetition, and how many tokens of it stand there already, at most.

        Repetitions count up to ``limit`` tokens, and are left out below ``least``.
        """
        for place in range(self._taken, len(self._tokens)):
            self._extend(self._tokens[place])
            self._taken += 1
        found: dict[int, int] = {}
        if limit < least or len(self._tokens) <= least:
            return found
        shortest = self._shortest(least)
        # The first token of the history stands behind nothing, not even behind the empty sequence.
        left_out = set() if shortest or self._first_again else {self._tokens[0]}
        enough = len(self._next[shortest]) - len(left_out)
        state = self._link[self._end]
        while len(found) < enough and state >= 0 and self._length[state] >= least:
            after = self._next[state].keys() - found.keys()
            found.update(dict.fromkeys(after if state else after - left_out, min(self._length[state], limit)))
            state = self._link[state]
        return found

    def _shortest(self, least: int) -> int:
        """The state of the last ``least`` tokens, behind which all tokens stand that are to be found."""
        state = 0
        for token in self._tokens[len(self._tokens) - least :]:
            state = self._next[state][token]
        return state

    def _extend(self, token: int) -> None:
        """Take in one token: the end's suffixes get it as what continues them, until one has it already."""
        self._first_again = self._first_again or (self._taken > 0 and token == self._tokens[0])
        made = self._state({}, 0, self._length[self._end] + 1)
        state, self._end = self._end, made
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = made
            state = self._link[state]
        if state < 0:
            return
        known = self._next[state][token]
        if self._length[known] > self._length[state] + 1:
            known = self._split(state, token, known)
        self._link[made] = known

    def _split(self, state: int, token: int, known: int) -> int:
        """Part the sequences of ``known`` that the end of the history holds from those that are longer."""
        part = self._state(dict(self._next[known]), self._link[known], self._length[state] + 1)
        self._link[known] = part
        while state >= 0 and self._next[state].get(token) == known:
            self._next[state][token] = part
            state = self._link[state]
        return part

    def _state(self, following: dict[int, int], link: int, length: int) -> int:
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        return len(self._next) - 1
