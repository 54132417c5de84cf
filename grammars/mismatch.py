"""The first character of a text that does not match a grammar, and the characters that would match there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .grammar import Grammar, GrammarState

_NAMED_CHARACTERS = {" ": "a space", "\n": "a newline", "\t": "a tab", "\r": "a carriage return"}
_CHARACTER_RUNS = ("0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]


@dataclass(frozen=True)
class Mismatch:
    """The first character of a text that the grammar does not allow, or the end of an incomplete text.

    Attributes:
        offset: offset of the character in the text, counted from 0.
        line: line of the character, counted from 1.
        column: column of the character, counted from 1.
        character: the character; None if the text ends too early.
        expected: the allowed text or characters, in words.
    """

    offset: int
    line: int
    column: int
    character: str | None
    expected: str


def find_mismatch(grammar: Grammar, text: str) -> Mismatch | None:
    """Return the first mismatch of a text with the grammar; None if the text is a complete sentence."""
    inner = text.strip(grammar.ignored_outer_whitespace)
    data = inner.encode(errors="surrogatepass")  # half of a surrogate pair matches nothing
    matching_grammar = grammar.text_matching_grammar
    tokens = matching_grammar.vocabulary.tokenize(data, special=grammar.has_token_references)
    state = matching_grammar.start()
    count = state.accept_prefix(tokens)
    if count == len(tokens) and state.is_complete:
        return None
    # The mismatch may be in a later byte of a character. The description is of the state before the character.
    matched = data[: len(b"".join(matching_grammar.vocabulary.pieces[token] for token in tokens[:count]))]
    before = matched.decode(errors="ignore")
    state = matching_grammar.start()
    state.accept_prefix(
        matching_grammar.vocabulary.tokenize(before.encode(), special=grammar.has_token_references)
    )
    character = inner[len(before)] if len(before) < len(inner) else None
    before = text[: len(text) - len(text.lstrip(grammar.ignored_outer_whitespace))] + before
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    return Mismatch(len(before), line, column, character, describe_expected(state))


def describe_expected(state: GrammarState) -> str:
    """Return a description of the text or the characters that are allowed next."""
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


def _describe_characters(allowed: set[str], allows_non_ascii: bool) -> list[str]:
    """Return descriptions of the allowed characters.

    Args:
        allowed: the allowed ASCII characters.
        allows_non_ascii: True if other characters are allowed, too.
    """
    forbidden = [character for character in _PRINTABLE if character not in allowed]
    if len(forbidden) <= len(_PRINTABLE) // 4:
        exceptions = f" except {' '.join(map(_character_name, forbidden))}" if forbidden else ""
        return [f"any{'' if allows_non_ascii else ' ASCII'} character{exceptions}"]
    ranges: list[str] = []
    for run in _CHARACTER_RUNS:
        ranges += _ranges([character for character in run if character in allowed])
    single = [_character_name(character) for character in sorted(allowed - set("".join(_CHARACTER_RUNS)))]
    return [*single, *ranges, "a non-ASCII character"] if allows_non_ascii else [*single, *ranges]


def _character_name(character: str) -> str:
    return _NAMED_CHARACTERS.get(character) or repr(character)


def _ranges(characters: list[str]) -> list[str]:
    """Return the names of sorted characters. Consecutive characters become a range such as ``a-f``."""
    if not characters:
        return []
    groups: list[list[str]] = [[characters[0]]]
    for previous, character in pairwise(characters):
        if ord(character) == ord(previous) + 1:
            groups[-1].append(character)
        else:
            groups.append([character])
    return [group[0] if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups]
