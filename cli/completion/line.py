"""The words of a command line that is still being typed."""

from __future__ import annotations

from typing import NamedTuple

_BREAKS = "=:><;|&("
"""Characters at which readline begins a word, save blanks and quotes; Bash has them in COMP_WORDBREAKS."""


class TypedWord(NamedTuple):
    """A word as a shell passes it on.

    Attributes:
        text: the word without its quotes and backslashes.
        quote: the quote that is still open; empty: none.
        last_part: where the part begins in the text that readline replaces: behind an open quote, else behind the
            last of the characters that break words.
    """

    text: str
    quote: str = ""
    last_part: int = 0


def split_line(line: str) -> list[TypedWord]:
    """Return the words of a line; the last one is the word at its end, empty behind a blank.

    Quotes and backslashes are those of POSIX shells. A quote that is not closed holds the rest of the line.
    """
    words, text, quote, last_part, is_word = [], "", "", 0, False
    characters = iter(line)
    for character in characters:
        if quote:
            if character == quote:
                quote = ""
            elif character == "\\" and quote == '"':
                text += _escaped_in_quotes(next(characters, ""))
            else:
                text += character
        elif character.isspace():
            if is_word:
                words.append(TypedWord(text))
            text, last_part, is_word = "", 0, False
            continue
        elif character in "'\"":
            quote, last_part = character, len(text)
        elif character == "\\":
            text += next(characters, "")
        else:
            text += character
            if character in _BREAKS:
                last_part = len(text)
        is_word = True
    return [*words, TypedWord(text, quote, last_part)]


def _escaped_in_quotes(character: str) -> str:
    return character if character in '"\\$`' else f"\\{character}"
