"""The tokens that have followed the last tokens of a history, for any number of last tokens."""

from __future__ import annotations

from collections.abc import Sequence


class SuffixAutomaton:
    """All token sequences that occur in a history, as states with links between them.

    A state stands for the sequences that end at the same positions. Its link leads to the state of their longest
    suffix that also ends elsewhere. So the links from the whole history lead through all of its suffixes that
    occur in it twice, the longest first. The transitions of a state are the tokens that have followed it.

    A token is added in amortised constant time, also where one token repeats throughout. A search of the history
    would cost its length. A token takes about 400 bytes. Source: Blumer et al. 1985.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        """Follow a history that may grow; new tokens are read at the next question."""
        self._tokens = tokens
        self._read_count = 0
        self._is_first_repeated = False
        # By state; state 0 is the empty sequence. The length is that of the state's longest sequence.
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._end = 0

    def followers(self, limit: int, least: int) -> dict[int, int]:
        """Return the tokens that would continue a repetition, each with the length of its longest one, in tokens.

        Lengths above ``limit`` count as ``limit``; shorter repetitions than ``least`` are left out.
        """
        for at in range(self._read_count, len(self._tokens)):
            self._extend(self._tokens[at])
            self._read_count += 1
        followers: dict[int, int] = {}
        if limit < least or len(self._tokens) <= least:
            return followers
        shortest = self._shortest(least)
        # Before the first token of the history there is nothing, not even the empty sequence.
        left_out = set() if shortest or self._is_first_repeated else {self._tokens[0]}
        count = len(self._next[shortest]) - len(left_out)
        state = self._link[self._end]
        while len(followers) < count and state >= 0 and self._length[state] >= least:
            known = followers.keys() if state else followers.keys() | left_out
            new = self._next[state].keys() - known if known else self._next[state]
            followers.update(dict.fromkeys(new, min(self._length[state], limit)))
            state = self._link[state]
        return followers

    def _shortest(self, least: int) -> int:
        """Return the state of the last ``least`` tokens; every follower that counts is one of its transitions."""
        state = 0
        for token in self._tokens[len(self._tokens) - least :]:
            state = self._next[state][token]
        return state

    def _extend(self, token: int) -> None:
        """Add one token: a transition from each suffix of the history, up to the first that has one already."""
        self._is_first_repeated = self._is_first_repeated or (self._read_count > 0 and token == self._tokens[0])
        new = self._add_state({}, 0, self._length[self._end] + 1)
        state, self._end = self._end, new
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state < 0:
            return
        target = self._next[state][token]
        if self._length[target] > self._length[state] + 1:
            target = self._split(state, token, target)
        self._link[new] = target

    def _split(self, state: int, token: int, target: int) -> int:
        """Split off the sequences of ``target`` that are suffixes of the history; return their new state."""
        suffixes = self._add_state(dict(self._next[target]), self._link[target], self._length[state] + 1)
        self._link[target] = suffixes
        while state >= 0 and self._next[state].get(token) == target:
            self._next[state][token] = suffixes
            state = self._link[state]
        return suffixes

    def _add_state(self, transitions: dict[int, int], link: int, length: int) -> int:
        self._next.append(transitions)
        self._link.append(link)
        self._length.append(length)
        return len(self._next) - 1
