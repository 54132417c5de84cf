"""A short way to the end of a sentence that was broken off."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError
from .gbnf import read, shortest_suffix

if TYPE_CHECKING:
    from .grammar import Grammar, GrammarState

_EXACT, _AT_ALL = 300, 5_000
"""How many texts are tried by length, and then by how straight they go."""

_ALIKE = 4
"""How many texts are followed that look alike from where they stand."""

_SHORTER = 2_000
"""How many ways to shorten a text are tried."""

_MANY = 12
"""Of more letters or digits than this, or bytes of a longer character, one stands for all."""


@dataclass
class _Way:
    """A text that might lead to the end. ``turns``: how often it came to where the same can follow as before."""

    added: bytes
    state: GrammarState
    mask: NDArray[np.bool_]
    passed: frozenset[bytes]
    turns: int


def shortest_completion(grammar: Grammar, text: bytes) -> bytes:
    """Return a text that makes ``text`` a whole sentence of the grammar.

    For GBNF it is the shortest there is, in characters. For the other kinds texts are tried by length; if that
    leads to no end soon, those are followed that go on to something new, and what can be left out of the first
    that ends is left out. Raises ``GrammarError`` where the grammar names tokens, or no end is found.
    """
    if grammar.names_tokens:
        raise GrammarError("a grammar that names tokens cannot be closed by text")
    if grammar.kind == "gbnf":
        return shortest_suffix(read(grammar.source, grammar.root), grammar.root, text)
    state = grammar.by_bytes.start()
    if state.follow(list(text)) < len(text):
        raise GrammarError("the text does not begin a sentence of the grammar")
    start = _Way(b"", state, state.mask(), frozenset(), 0)
    found = _search(start, _EXACT, _by_length)
    if found is not None:
        return found
    found = _search(start, _AT_ALL, _by_turns) or _search(start, _EXACT, _by_turns, every_byte=True)
    if found is None:
        raise GrammarError("no way to end the sentence was found")
    return _shortened(state, found)


def _by_length(way: _Way) -> tuple[int, int]:
    return len(way.added), 0


def _by_turns(way: _Way) -> tuple[int, int]:
    return way.turns, -len(way.added)


def _search(
    start: _Way, tries: int, cost: Callable[[_Way], tuple[int, int]], every_byte: bool = False
) -> bytes | None:
    """The cheapest text to the end, None if it was not found. Ways of one first cost are compared for likeness."""
    seen: Counter[tuple[int, bytes]] = Counter()
    heap = [((0, 0), 0, start)]
    pushed = 0
    for _ in range(tries):
        if not heap:
            return None
        way = heapq.heappop(heap)[-1]
        if way.state.is_complete:
            return way.added
        for following in _following(way, every_byte):
            price = cost(following)
            key = (price[0], following.mask.tobytes())
            seen[key] += 1
            pushed += 1
            if seen[key] <= _ALIKE:
                heapq.heappush(heap, (price, pushed, following))
    return None


def _following(way: _Way, every_byte: bool) -> list[_Way]:
    """The ways one step further, one for each set of characters that can follow."""
    found: dict[bytes, _Way] = {}
    passed = way.passed | {way.mask.tobytes()}
    for more in _ways_on(way, every_byte):
        state = way.state.copy()
        if state.follow(list(more)) == len(more):
            mask = state.mask()
            key = mask.tobytes()
            found.setdefault(key, _Way(way.added + more, state, mask, passed, way.turns + (key in passed)))
    return list(found.values())


def _ways_on(way: _Way, every_byte: bool) -> list[bytes]:
    """What can come next: a text that is forced, or single bytes, of many of a kind only one if not every byte."""
    certain = way.state.forced_text
    if certain:
        return [certain]
    kinds: dict[str, list[int]] = {}
    for byte in np.flatnonzero(way.mask[:256]).tolist():
        character = chr(byte)
        kind = (
            "high" if byte >= 0x80 else "digit" if character.isdigit() else "letter" if character.isalpha() else ""
        )
        kinds.setdefault(kind, []).append(byte)
    found: list[int] = []
    for kind, members in kinds.items():
        found += members[:1] if kind and len(members) > _MANY and not every_byte else members
    return [bytes([byte]) for byte in found]


def _shortened(state: GrammarState, text: bytes) -> bytes:
    """Leave out of a text what it does not need to end the sentence, long parts first."""
    length = len(text) // 2
    tries = 0
    while length and tries < _SHORTER:
        start = 0
        while start + length <= len(text) and tries < _SHORTER:
            tries += 1
            shorter = text[:start] + text[start + length :]
            trial = state.copy()
            if trial.follow(list(shorter)) == len(shorter) and trial.is_complete:
                text = shorter
            else:
                start += 1
        length -= 1
    return text
