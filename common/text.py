"""Text: bytes to text, counts and choices in words, and the known name that is most similar to a mistyped one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from reprlib import Repr
from typing import Any

_MAX_VALUE_CHARACTERS = 60
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_MIN_SIMILARITY = 0.7
"""Minimum similarity of two names, 0 to 1. A lower value would match short words with three equal letters, such as
``top_p`` and ``stop``."""


class _ReprInWords(Repr):
    """A ``Repr`` that writes values as Python does, but true, false and null as JSON and YAML do."""

    def repr_bool(self, value: bool, _level: int) -> str:
        return "true" if value else "false"

    def repr_NoneType(self, _value: None, _level: int) -> str:  # noqa: N802 - named after the type
        return "null"


_REPR = _ReprInWords()
_REPR.maxstring = _REPR.maxother = _MAX_VALUE_CHARACTERS


class NotUTF8Error(ValueError):
    """Bytes that are not UTF-8.

    Attributes:
        offset: offset of the first wrong byte, counted from 0.
        line: number of the line with this byte, counted from 1.
        byte: value of this byte.
    """

    def __init__(self, offset: int, line: int, byte: int) -> None:
        super().__init__(f"not UTF-8: byte 0x{byte:02x} at offset {offset}")
        self.offset = offset
        self.line = line
        self.byte = byte


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8 and drop a byte order mark. Raises ``NotUTF8Error``."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        # The codec drops the byte order mark first, and counts bytes after the mark.
        offset = error.start + len(data) - len(error.object)
        raise NotUTF8Error(offset, line, error.object[error.start]) from None


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are complete UTF-8 characters."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """Return a text with U+FFFD instead of each half of a surrogate pair, which cannot be printed."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun, as in ``1 token`` and ``2,000 tokens``. The plural is formed with an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_alternatives(choices: Iterable[str]) -> str:
    """Return choices as words: ``a, b or c``."""
    names = list(choices)
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def nearest_name(name: str, known_names: Iterable[str], min_similarity: float = _MIN_SIMILARITY) -> str | None:
    """Return the known name that is most similar to ``name``; None if no name is similar enough.

    A name in which only two adjacent letters are swapped takes precedence.

    Args:
        name: the mistyped name.
        known_names: the names to choose from.
        min_similarity: the minimum similarity, 0 to 1, see `difflib`.
    """
    names = list(known_names)
    swapped_name = next((candidate for candidate in names if _has_two_swapped_letters(name, candidate)), None)
    matches = (
        [swapped_name] if swapped_name else difflib.get_close_matches(name, names, n=1, cutoff=min_similarity)
    )
    return matches[0] if matches else None


def _has_two_swapped_letters(name: str, known_name: str) -> bool:
    """Return whether two names differ only in the order of two adjacent letters."""
    if len(name) != len(known_name):
        return False
    differing_indices = [
        index for index, pair in enumerate(zip(name, known_name, strict=True)) if pair[0] != pair[1]
    ]
    if len(differing_indices) != 2 or differing_indices[1] != differing_indices[0] + 1:
        return False
    first, second = differing_indices
    return (name[first], name[second]) == (known_name[second], known_name[first])


def without_error_number(text: str) -> str:
    """Return an error's message without the ``[Errno 111]`` that Python puts before it."""
    return _ERROR_NUMBER.sub("", text)


def short_repr(value: Any) -> str:
    """Return Python's ``repr`` of a value, but with true, false and null; a long one is shortened."""
    return _REPR.repr(value)
