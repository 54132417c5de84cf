"""The place where a text leaves its grammar, and the text that was possible there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .grammar import Grammar, GrammarState

_NAMED_CHARACTERS = {" ": "a space", "\n": "a line end", "\t": "a tab", "\r": "a carriage return"}
_RUNS = ("0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]


@dataclass(frozen=True)
class Mismatch:
    """The first character that cannot stand where it does.

    Attributes:
        offset: its offset in characters, from 0.
        line: its line, from 1.
        column: its column, from 1.
        character: the character; None where the text ends too early.
        expected: in words, what could have come.
    """

    offset: int
    line: int
    column: int
    character: str | None
    expected: str


def find_mismatch(grammar: Grammar, text: str) -> Mismatch | None:
    """Find where a text leaves the grammar; None if it is a whole sentence."""
    inner = text.strip(grammar.ignored_outer_whitespace)
    data = inner.encode(errors="surrogatepass")  # half of a pair matches nothing
    lenient = grammar.text_matching_grammar
    tokens = lenient.vocabulary.tokenize(data, special=grammar.has_token_references)
    state = lenient.start()
    count = state.accept_prefix(tokens)
    if count == len(tokens) and state.is_complete:
        return None
    # A character may go wrong in its second byte: the state goes back to the beginning of the character.
    matched = data[: len(b"".join(lenient.vocabulary.pieces[token] for token in tokens[:count]))]
    before = matched.decode(errors="ignore")
    state = lenient.start()
    state.accept_prefix(lenient.vocabulary.tokenize(before.encode(), special=grammar.has_token_references))
    character = inner[len(before)] if len(before) < len(inner) else None
    before = text[: len(text) - len(text.lstrip(grammar.ignored_outer_whitespace))] + before
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    return Mismatch(len(before), line, column, character, describe_expected(state))


def describe_expected(state: GrammarState) -> str:
    """Say in words what can come next: a text, or the characters."""
    forced = state.forced_text.decode(errors="ignore")
    if len(forced) > 1:
        return f"{forced!r}"
    pieces = state.grammar.vocabulary.pieces
    eog = state.grammar.vocabulary.eog
    tokens = np.flatnonzero(state.mask()).tolist()
    first_bytes = {pieces[token][0] for token in tokens if token not in eog and pieces[token]}
    ascii_characters = {chr(byte) for byte in first_bytes if byte < 0x80}
    parts = ["the end of the text"] if state.is_complete else []
    parts += _describe_characters(ascii_characters, any(byte >= 0x80 for byte in first_bytes))
    return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "nothing"


def _describe_characters(allowed: set[str], beyond_ascii: bool) -> list[str]:
    """Name the ASCII characters that are allowed. ``beyond_ascii``: others may come too."""
    refused = [character for character in _PRINTABLE if character not in allowed]
    if len(refused) <= len(_PRINTABLE) // 4:
        exceptions = f" but {' '.join(map(_character_name, refused))}" if refused else ""
        return [f"any{'' if beyond_ascii else ' ASCII'} character{exceptions}"]
    ranges: list[str] = []
    for run in _RUNS:
        ranges += _ranges([character for character in run if character in allowed])
    single = [_character_name(character) for character in sorted(allowed - set("".join(_RUNS)))]
    return [*single, *ranges, "a character beyond ASCII"] if beyond_ascii else [*single, *ranges]


def _character_name(character: str) -> str:
    return _NAMED_CHARACTERS.get(character) or repr(character)


def _ranges(characters: list[str]) -> list[str]:
    """Sorted characters, with neighbours as a range: a-f."""
    if not characters:
        return []
    groups: list[list[str]] = [[characters[0]]]
    for previous, character in pairwise(characters):
        if ord(character) == ord(previous) + 1:
            groups[-1].append(character)
        else:
            groups.append([character])
    return [group[0] if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups]
