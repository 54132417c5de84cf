"""A search for a short text that completes a sentence.

The search extends candidate texts byte by byte, using only the masks of the grammar.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError

# These limits bound the time of a search. tests/grammars/test_completion.py has grammars for which they suffice.

_MAX_TRIES_BY_LENGTH = 300
"""Number of candidates that are extended in the order of their length."""

_MAX_TRIES_BY_REVISITS = 5_000
"""Number of candidates that are then extended in the order of their revisits, see `_Candidate`."""

_MAX_STEPS = 120_000
"""Number of extensions that one search tries. Each takes about 10 µs."""

_MAX_SHORTENING_TRIES = 2_000
"""Number of trials of removing a part of a completion."""

_MAX_EQUIVALENT_CANDIDATES = 4
"""Number of candidates of equal cost and equal mask that are extended."""

_MAX_GROUP_BYTES = 12
"""If more letters, more digits or more non-ASCII bytes than this are allowed, only one of them is tried."""


class SearchableState(Protocol):
    """The state of a text of single bytes. `GrammarState` implements this protocol."""

    @property
    def is_complete(self) -> bool:
        """True if the text is a complete sentence."""
        ...

    @property
    def forced_text(self) -> bytes:
        """The bytes that must come next; often empty."""
        ...

    def mask(self) -> NDArray[np.bool_]:
        """Return the mask of the allowed next bytes, bool (V,)."""
        ...

    def accept_prefix(self, tokens: list[int]) -> int:
        """Append the bytes up to the first that is not allowed. Return the number of appended bytes."""
        ...

    def roll_back(self, count: int) -> None:
        """Remove the last ``count`` bytes of the text."""
        ...


class _Cursor:
    """The only state of a search, which is moved from text to text.

    A separate state for each text would also copy llguidance's lexer, whose size grows during the search.
    """

    def __init__(self, state: SearchableState) -> None:
        self.state = state
        self._added = b""

    def go_to(self, added: bytes) -> bool:
        """Change the text to the start text followed by ``added``. Return False if this text is not allowed."""
        common = _common_length(self._added, added)
        self.state.roll_back(len(self._added) - common)
        end = common + self.state.accept_prefix(list(added[common:]))
        self._added = added[:end]
        return end == len(added)


def _common_length(first: bytes, second: bytes) -> int:
    """Return the length of the longest common prefix, bytes."""
    common, end = 0, min(len(first), len(second))
    if first[:end] == second[:end]:
        return end
    if first[: end - 1] == second[: end - 1]:  # the usual case: the last byte is replaced
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
    """A text that may be the beginning of a completion.

    Attributes:
        added: the text that is added to the text of the start state.
        mask: the mask after the text.
        earlier_masks: the masks after shorter prefixes of the text, as bytes.
        revisits: number of prefixes with the mask of a shorter prefix; a high number is a sign of a loop.
    """

    added: bytes
    mask: NDArray[np.bool_]
    earlier_masks: frozenset[bytes]
    revisits: int


_Cost = Callable[[_Candidate], tuple[int, int]]


def search_completion(state: SearchableState) -> bytes:
    """Return a text that makes the state's text a complete sentence; not always the shortest one.

    Short texts are tried first. If none of them completes the sentence, texts that lead to new masks are tried
    first, and the completion is then shortened. Raises ``GrammarError`` if no completion is found.
    """
    cursor = _Cursor(state)
    completion = _search(cursor, _MAX_TRIES_BY_LENGTH, _by_length)
    if completion is not None:
        return completion
    completion = _search(cursor, _MAX_TRIES_BY_REVISITS, _by_revisits)
    if not completion:
        completion = _search(cursor, _MAX_TRIES_BY_LENGTH, _by_revisits, tries_every_byte=True)
    if completion is None:
        raise GrammarError("no way to complete the sentence was found")
    return _shorten(cursor, completion)


def _by_length(candidate: _Candidate) -> tuple[int, int]:
    return len(candidate.added), 0


def _by_revisits(candidate: _Candidate) -> tuple[int, int]:
    return candidate.revisits, -len(candidate.added)


def _search(cursor: _Cursor, max_tries: int, cost_of: _Cost, tries_every_byte: bool = False) -> bytes | None:
    """Return the completion of the lowest cost; None if no completion is found.

    Args:
        cursor: the state that is moved to each text. The search begins with the empty text.
        max_tries: number of candidates that are extended.
        cost_of: returns the cost of a candidate. Candidates with the same mask and the same first number of the
            cost are equivalent.
        tries_every_byte: True to try every allowed byte instead of one byte of each large group.
    """
    cursor.go_to(b"")
    start = _Candidate(b"", cursor.state.mask(), frozenset(), 0)
    equivalent_counts: Counter[tuple[int, bytes]] = Counter()
    heap = [((0, 0), 0, start)]
    pushed = steps = 0
    for _ in range(max_tries):
        if not heap or steps > _MAX_STEPS:
            return None
        candidate = heapq.heappop(heap)[-1]
        cursor.go_to(candidate.added)
        if cursor.state.is_complete:
            return candidate.added
        texts = _next_texts(candidate, cursor.state.forced_text, tries_every_byte)
        steps += len(texts)
        for extended in _extensions(candidate, cursor, texts):
            cost = cost_of(extended)
            key = (cost[0], extended.mask.tobytes())
            equivalent_counts[key] += 1
            pushed += 1
            if equivalent_counts[key] <= _MAX_EQUIVALENT_CANDIDATES:
                heapq.heappush(heap, (cost, pushed, extended))
    return None


def _extensions(candidate: _Candidate, cursor: _Cursor, texts: list[bytes]) -> list[_Candidate]:
    """Return extensions of a candidate by these texts, one extension for each different mask."""
    by_mask: dict[bytes, _Candidate] = {}
    earlier_masks = candidate.earlier_masks | {candidate.mask.tobytes()}
    for text in texts:
        added = candidate.added + text
        if cursor.go_to(added):
            mask = cursor.state.mask()
            key = mask.tobytes()
            revisits = candidate.revisits + (key in earlier_masks)
            by_mask.setdefault(key, _Candidate(added, mask, earlier_masks, revisits))
    return list(by_mask.values())


def _next_texts(candidate: _Candidate, forced_text: bytes, tries_every_byte: bool) -> list[bytes]:
    """Return the texts by which a candidate is extended: the forced text, or single bytes."""
    if forced_text:
        return [forced_text]
    groups: dict[str, list[int]] = {}
    for byte in np.flatnonzero(candidate.mask[:256]).tolist():
        groups.setdefault(_group(byte), []).append(byte)
    tried_bytes: list[int] = []
    for group, members in groups.items():
        is_one_enough = group and len(members) > _MAX_GROUP_BYTES and not tries_every_byte
        tried_bytes += members[:1] if is_one_enough else members
    return [bytes([byte]) for byte in tried_bytes]


def _group(byte: int) -> str:
    """Return the group of a byte. Bytes of one group usually mean the same; signs have no group."""
    if byte >= 0x80:
        return "non-ASCII"
    character = chr(byte)
    return "digit" if character.isdigit() else "letter" if character.isalpha() else ""


def _shorten(cursor: _Cursor, text: bytes) -> bytes:
    """Remove the parts that a completion does not need, long parts first."""
    length = len(text) // 2
    tries = 0
    while length and tries < _MAX_SHORTENING_TRIES:
        start = 0
        while start + length <= len(text) and tries < _MAX_SHORTENING_TRIES:
            tries += 1
            shorter = text[:start] + text[start + length :]
            if cursor.go_to(shorter) and cursor.state.is_complete:
                text = shorter
            else:
                start += 1
        length -= 1
    return text
