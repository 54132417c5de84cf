"""The shortest tokens that complete a sentence."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError

# These numbers bound the time of a search. tests/grammars/test_completion.py has the cases that they suffice for.

_TRIES_BY_LENGTH = 300
"""How many texts are tried shortest first."""

_TRIES_BY_REVISITS = 5_000
"""How many texts are then tried in the order of how often they came back to the same set of next tokens."""

_MAX_STEPS = 120_000
"""How many bytes one search tries after its texts; each costs some 10 µs."""

_TRIES_TO_SHORTEN = 2_000
"""How many times a part of a completion is left out as a trial."""

_ALIKE_CANDIDATES = 4
"""How many candidates of equal cost and equal next tokens are followed."""

_LARGE_GROUP_BYTES = 12
"""Of more letters, digits or bytes beyond ASCII than this, one stands for all."""


class SearchableState(Protocol):
    """The state of a text over single bytes; `GrammarState` is one."""

    @property
    def is_complete(self) -> bool:
        """True if the text is a whole sentence."""
        ...

    @property
    def forced_text(self) -> bytes:
        """The text that must come next."""
        ...

    def mask(self) -> NDArray[np.bool_]:
        """The bytes that may come next, bool (V,)."""
        ...

    def accept_prefix(self, tokens: list[int]) -> int:
        """Append as many of these bytes as are allowed; return how many these were."""
        ...

    def roll_back(self, count: int) -> None:
        """Remove the last bytes."""
        ...


class _Cursor:
    """The one state of a search, which goes from text to text.

    A state of its own for each text would also be a copy of llguidance's lexer, which grows with the search.
    """

    def __init__(self, state: SearchableState) -> None:
        self.state = state
        self._added = b""

    def go_to(self, added: bytes) -> bool:
        """Make ``added`` the text after that of the start; False if it is not allowed."""
        common = _common_length(self._added, added)
        self.state.roll_back(len(self._added) - common)
        end = common + self.state.accept_prefix(list(added[common:]))
        self._added = added[:end]
        return end == len(added)


def _common_length(first: bytes, second: bytes) -> int:
    """How many bytes at their beginning two texts have in common."""
    common, end = 0, min(len(first), len(second))
    if first[:end] == second[:end]:
        return end
    if first[: end - 1] == second[: end - 1]:  # the usual case: the next byte is tried
        return end - 1
    while common < end:
        middle = (common + end + 1) // 2
        if first[common:middle] == second[common:middle]:
            common = middle
        else:
            end = middle - 1
    return common


@dataclass
class _Candidate:
    """A text that might lead to the end.

    Attributes:
        added: the text, after that of the start state.
        mask: the state's mask.
        passed: the masks before it, as bytes.
        revisits: how often a mask came that had come before: a sign of a loop.
    """

    added: bytes
    mask: NDArray[np.bool_]
    passed: frozenset[bytes]
    revisits: int


_Cost = Callable[[_Candidate], tuple[int, int]]


def search_completion(state: SearchableState) -> bytes:
    """Return a text that makes the state's text a whole sentence; not always the shortest one.

    Texts are tried by length. If none of them ends the sentence, candidates that lead to something new go first,
    and the first completion is shortened. Raises ``GrammarError`` if none was found.
    """
    cursor = _Cursor(state)
    completion = _search(cursor, _TRIES_BY_LENGTH, _by_length)
    if completion is not None:
        return completion
    completion = _search(cursor, _TRIES_BY_REVISITS, _by_revisits)
    if not completion:
        completion = _search(cursor, _TRIES_BY_LENGTH, _by_revisits, every_byte=True)
    if completion is None:
        raise GrammarError("no way to end the sentence was found")
    return _shortened(cursor, completion)


def _by_length(candidate: _Candidate) -> tuple[int, int]:
    return len(candidate.added), 0


def _by_revisits(candidate: _Candidate) -> tuple[int, int]:
    return candidate.revisits, -len(candidate.added)


def _search(cursor: _Cursor, tries: int, cost_of: _Cost, every_byte: bool = False) -> bytes | None:
    """Return the cheapest completion, None if it was not found.

    Args:
        cursor: goes to the texts; each search begins with the empty one.
        tries: how many candidates are extended.
        cost_of: the cost of a candidate. Candidates with the same first part and the same mask count as alike.
        every_byte: True to try every allowed byte, not one of each large group.
    """
    cursor.go_to(b"")
    start = _Candidate(b"", cursor.state.mask(), frozenset(), 0)
    alike: Counter[tuple[int, bytes]] = Counter()
    heap = [((0, 0), 0, start)]
    pushed = steps = 0
    for _ in range(tries):
        if not heap or steps > _MAX_STEPS:
            return None
        candidate = heapq.heappop(heap)[-1]
        cursor.go_to(candidate.added)
        if cursor.state.is_complete:
            return candidate.added
        texts = _next_texts(candidate, cursor.state.forced_text, every_byte)
        steps += len(texts)
        for extended in _extensions(candidate, cursor, texts):
            cost = cost_of(extended)
            key = (cost[0], extended.mask.tobytes())
            alike[key] += 1
            pushed += 1
            if alike[key] <= _ALIKE_CANDIDATES:
                heapq.heappush(heap, (cost, pushed, extended))
    return None


def _extensions(candidate: _Candidate, cursor: _Cursor, texts: list[bytes]) -> list[_Candidate]:
    """The candidates with one of these texts more, one for each mask."""
    by_mask: dict[bytes, _Candidate] = {}
    passed = candidate.passed | {candidate.mask.tobytes()}
    for data in texts:
        added = candidate.added + data
        if cursor.go_to(added):
            mask = cursor.state.mask()
            key = mask.tobytes()
            revisits = candidate.revisits + (key in passed)
            by_mask.setdefault(key, _Candidate(added, mask, passed, revisits))
    return list(by_mask.values())


def _next_texts(candidate: _Candidate, forced_text: bytes, every_byte: bool) -> list[bytes]:
    """What can come next: the forced text, or single bytes."""
    if forced_text:
        return [forced_text]
    groups: dict[str, list[int]] = {}
    for byte in np.flatnonzero(candidate.mask[:256]).tolist():
        groups.setdefault(_group(byte), []).append(byte)
    tried: list[int] = []
    for group, members in groups.items():
        one_is_enough = group and len(members) > _LARGE_GROUP_BYTES and not every_byte
        tried += members[:1] if one_is_enough else members
    return [bytes([byte]) for byte in tried]


def _group(byte: int) -> str:
    """The group of bytes of which one can stand for all; empty for signs, which each mean something else."""
    if byte >= 0x80:
        return "beyond ASCII"
    character = chr(byte)
    return "digit" if character.isdigit() else "letter" if character.isalpha() else ""


def _shortened(cursor: _Cursor, text: bytes) -> bytes:
    """Leave out the parts of a completion without which it still ends the sentence, long parts first."""
    length = len(text) // 2
    tries = 0
    while length and tries < _TRIES_TO_SHORTEN:
        start = 0
        while start + length <= len(text) and tries < _TRIES_TO_SHORTEN:
            tries += 1
            shorter = text[:start] + text[start + length :]
            if cursor.go_to(shorter) and cursor.state.is_complete:
                text = shorter
            else:
                start += 1
        length -= 1
    return text
