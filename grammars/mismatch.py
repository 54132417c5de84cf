"""Where a text leaves its grammar, and what could have come there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .grammar import Grammar, GrammarState

_NAMES = {" ": "a space", "\n": "a line end", "\t": "a tab", "\r": "a carriage return"}
_RUNS = ("0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]


@dataclass(frozen=True)
class Mismatch:
    """The first character that cannot stand where it does.

    ``offset`` counts characters from 0, ``line`` and ``column`` from 1; ``character`` is None where the text ends
    too early. ``expected`` says in words what could have come.
    """

    offset: int
    line: int
    column: int
    character: str | None
    expected: str


def find_mismatch(grammar: Grammar, text: str) -> Mismatch | None:
    """Find where a text leaves the grammar; None if it is a sentence of it."""
    inner = text.strip(grammar.blanks)
    data = inner.encode(errors="surrogatepass")  # half of a pair matches nothing
    whole = grammar.for_reading
    tokens = whole.vocabulary.tokenize(data, special=grammar.names_tokens)
    state = whole.start()
    taken = state.follow(tokens)
    if taken == len(tokens) and state.is_complete:
        return None
    # A character may have begun well and gone wrong in its second byte.
    good = data[: len(b"".join(whole.vocabulary.pieces[token] for token in tokens[:taken]))]
    before = good.decode(errors="ignore")
    state = whole.start()
    state.follow(whole.vocabulary.tokenize(before.encode(), special=grammar.names_tokens))
    character = inner[len(before)] if len(before) < len(inner) else None
    before = text[: len(text) - len(text.lstrip(grammar.blanks))] + before
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    return Mismatch(len(before), line, column, character, expected(state))


def expected(state: GrammarState) -> str:
    """Say what can come next: a text, or the characters."""
    certain = state.forced_text.decode(errors="ignore")
    if len(certain) > 1:
        return f"{certain!r}"
    mask = state.mask()
    pieces = state.grammar.vocabulary.pieces
    ends = state.grammar.vocabulary.eog
    firsts = {pieces[token][0] for token in np.flatnonzero(mask).tolist() if token not in ends and pieces[token]}
    parts = ["the end of the text"] if state.is_complete else []
    parts += _characters({chr(byte) for byte in firsts if byte < 0x80}, any(byte >= 0x80 for byte in firsts))
    return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "nothing"


def _characters(found: set[str], beyond: bool) -> list[str]:
    """Name characters; ``beyond``: some beyond ASCII may come too."""
    missing = [character for character in _PRINTABLE if character not in found]
    if len(missing) <= len(_PRINTABLE) // 4:
        rest = f" but {' '.join(map(_named, missing))}" if missing else ""
        return [f"any{'' if beyond else ' ASCII'} character{rest}"]
    parts: list[str] = []
    for run in _RUNS:
        inside = [character for character in run if character in found]
        parts += _ranges(inside)
        found = found - set(run)
    named = [_named(character) for character in sorted(found)] + parts
    return [*named, "a character beyond ASCII"] if beyond else named


def _named(character: str) -> str:
    return _NAMES.get(character) or repr(character)


def _ranges(characters: list[str]) -> list[str]:
    """Characters of one run, neighbours together: a-f."""
    if not characters:
        return []
    groups: list[list[str]] = [[characters[0]]]
    for last, character in pairwise(characters):
        if ord(character) == ord(last) + 1:
            groups[-1].append(character)
        else:
            groups.append([character])
    return [group[0] if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups]
