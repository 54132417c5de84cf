"""Text: bytes to text, counts and choices in words, and the known name that is nearest to a mistyped one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from reprlib import Repr
from typing import Any

_MAX_VALUE_CHARACTERS = 60
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_SIMILARITY = 0.7
"""Below it, short words of three equal letters are similar: ``top_p`` and ``stop``."""


class _ReprInWords(Repr):
    """Writes values as Python does, but true, false and null as JSON and YAML do."""

    def repr_bool(self, value: bool, _level: int) -> str:
        return "true" if value else "false"

    def repr_NoneType(self, _value: None, _level: int) -> str:  # noqa: N802 - named after the type
        return "null"


_REPR = _ReprInWords()
_REPR.maxstring = _REPR.maxother = _MAX_VALUE_CHARACTERS


class NotUTF8Error(ValueError):
    """Bytes that are not UTF-8.

    Attributes: ``offset``, that of the first wrong byte, from 0; ``line``, its line, from 1; ``byte``, its value.
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
        # The codec drops the mark first and counts from behind it.
        offset = error.start + len(data) - len(error.object)
        raise NotUTF8Error(offset, line, error.object[error.start]) from None


def is_utf8(data: bytes) -> bool:
    """True if the bytes are whole UTF-8 characters."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each half of a surrogate pair, which cannot be printed."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count_noun(count: int, noun: str) -> str:
    """Return the number with its noun, as in ``1 token`` and ``2,000 tokens``. The plural is formed by an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_alternatives(choices: Iterable[str]) -> str:
    """Return the choices in words: ``a, b or c``."""
    names = list(choices)
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def nearest_name(name: str, known_names: Iterable[str], similarity: float = _SIMILARITY) -> str | None:
    """Return the known name most like ``name``; None if none is at least this similar (0 to 1, see `difflib`).

    A name in which only two neighbouring letters are swapped goes before all others.
    """
    names = list(known_names)
    swapped = next((candidate for candidate in names if _is_swapped(name, candidate)), None)
    matches = [swapped] if swapped else difflib.get_close_matches(name, names, n=1, cutoff=similarity)
    return matches[0] if matches else None


def _is_swapped(name: str, other: str) -> bool:
    """True if the names differ only in the order of two neighbouring letters."""
    if len(name) != len(other):
        return False
    differing = [index for index, pair in enumerate(zip(name, other, strict=True)) if pair[0] != pair[1]]
    if len(differing) != 2 or differing[1] != differing[0] + 1:
        return False
    first, second = differing
    return (name[first], name[second]) == (other[second], other[first])


def without_error_number(text: str) -> str:
    """Return the message of an error without the ``[Errno 111]`` that Python puts before it."""
    return _ERROR_NUMBER.sub("", text)


def short_repr(value: Any) -> str:
    """Return the value for a sentence: as Python writes it, but true, false, null; cut to a length that fits."""
    return _REPR.repr(value)
