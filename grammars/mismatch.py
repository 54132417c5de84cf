"""The first character of a text that does not match a grammar, and the characters that would match there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..common.text import join_alternatives
from .errors import line_and_column
from .grammar import Grammar, GrammarState

_NAMED_CHARACTERS = {" ": "a space", "\n": "a newline", "\t": "a tab", "\r": "a carriage return"}
_CHARACTER_RUNS = ("0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_PRINTABLE_ASCII = [chr(code) for code in range(0x20, 0x7F)]


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
    spelled = grammar.spell_text(text)
    stripped_text = spelled.text.strip(grammar.ignored_outer_whitespace)
    data = stripped_text.encode(errors="surrogatepass")  # half of a surrogate pair matches nothing
    matching_grammar = grammar.text_matching_grammar
    tokens = matching_grammar.vocabulary.tokenize(data, special=grammar.has_token_references)
    state = matching_grammar.start()
    matched_token_count = state.accept_prefix(tokens)
    if matched_token_count == len(tokens) and state.is_complete:
        return None
    if grammar.in_key_order(stripped_text) is not None:
        return None
    if matched_token_count < len(tokens):
        state.check_limits()
    # The mismatch may be in a later byte of a character. The state before the character is described.
    pieces = matching_grammar.vocabulary.pieces
    matched_byte_count = sum(len(pieces[token]) for token in tokens[:matched_token_count])
    text_before = data[:matched_byte_count].decode(errors="ignore")
    state = matching_grammar.start()
    state.accept_prefix(
        matching_grammar.vocabulary.tokenize(text_before.encode(), special=grammar.has_token_references)
    )
    character = stripped_text[len(text_before)] if len(text_before) < len(stripped_text) else None
    left_stripped_text = spelled.text.lstrip(grammar.ignored_outer_whitespace)
    stripped_count = len(spelled.text) - len(left_stripped_text)
    offset = spelled.original_offset(stripped_count + len(text_before))
    line, column = line_and_column(text, offset)
    return Mismatch(offset, line, column, character, describe_expected(state))


def describe_expected(state: GrammarState) -> str:
    """Return a description of the text or the characters that are allowed next."""
    forced_text = state.forced_text.decode(errors="ignore")
    if len(forced_text) > 1:
        return f"{forced_text!r}"
    pieces = state.grammar.vocabulary.pieces
    eog = state.grammar.vocabulary.eog
    tokens = np.flatnonzero(state.mask()).tolist()
    first_bytes = {pieces[token][0] for token in tokens if token not in eog and pieces[token]}
    ascii_characters = {chr(byte) for byte in first_bytes if byte < 0x80}
    descriptions = ["the end of the text"] if state.is_complete else []
    allows_non_ascii = any(byte >= 0x80 for byte in first_bytes)
    descriptions += _describe_characters(ascii_characters, allows_non_ascii)
    return join_alternatives(descriptions) or "nothing"


def _describe_characters(allowed_ascii: set[str], allows_non_ascii: bool) -> list[str]:
    forbidden_ascii = [character for character in _PRINTABLE_ASCII if character not in allowed_ascii]
    are_most_allowed = len(forbidden_ascii) <= len(_PRINTABLE_ASCII) // 4
    if are_most_allowed:
        subject = "any character" if allows_non_ascii else "any ASCII character"
        forbidden_names = " ".join(map(_character_name, forbidden_ascii))
        return [f"{subject} except {forbidden_names}" if forbidden_ascii else subject]
    signs = allowed_ascii - set("".join(_CHARACTER_RUNS))
    names = [_character_name(character) for character in sorted(signs)]
    for run in _CHARACTER_RUNS:
        names += _range_names([character for character in run if character in allowed_ascii])
    if allows_non_ascii:
        names.append("a non-ASCII character")
    return names


def _character_name(character: str) -> str:
    return _NAMED_CHARACTERS.get(character) or repr(character)


def _range_names(characters: list[str]) -> list[str]:
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
