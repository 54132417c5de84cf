"""Text: bytes to text, counts and choices in words, and the sentence about an unknown name."""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Iterable
from reprlib import Repr
from typing import Any

_MAX_VALUE_CHARACTERS = 60
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
# Minimum similarity of two names, 0 to 1. A lower value would match short words with three equal letters, such as
# ``top_p`` and ``stop``.
_MIN_SIMILARITY = 0.7


class _ReprInWords(Repr):
    """A ``Repr`` that writes values as Python does, but true, false and null as JSON and YAML do."""

    def repr_bool(self, value: bool, _level: int) -> str:
        return "true" if value else "false"

    def repr_NoneType(self, _value: None, _level: int) -> str:  # noqa: N802 - named after the type
        return "null"


_REPR = _ReprInWords()
_REPR.maxstring = _REPR.maxother = _MAX_VALUE_CHARACTERS


# The encodings that a byte order mark names. PowerShell's ``>`` writes UTF-16.
_ENCODING_OF_MARK = {
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF16_LE: "UTF-16-LE",
    codecs.BOM_UTF16_BE: "UTF-16-BE",
}


class UndecodableTextError(ValueError):
    """Bytes that are not text in their encoding."""

    def __init__(self, encoding: str, offset: int, line: int, byte: int) -> None:
        super().__init__(f"not {encoding}: byte 0x{byte:02x} at offset {offset}")
        self.encoding = encoding  # the encoding that the byte order mark names; ``UTF-8`` without a mark
        self.offset = offset  # offset of the first wrong byte, counted from 0
        self.line = line  # number of the line with this byte, counted from 1
        self.byte = byte  # value of this byte


def decode_text(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark, and drop the mark. Raises ``UndecodableTextError``."""
    mark, encoding = _byte_order_mark(data)
    encoded_text = data.removeprefix(mark)
    try:
        return encoded_text.decode(encoding)
    except UnicodeDecodeError as error:
        text_before = encoded_text[: error.start].decode(encoding, "replace")
        raise UndecodableTextError(
            encoding=encoding.removesuffix("-LE").removesuffix("-BE"),
            offset=len(mark) + error.start,
            line=text_before.count("\n") + 1,
            byte=encoded_text[error.start],
        ) from None


def encode_as_utf8(data: bytes) -> bytes:
    """Return the bytes of a text as UTF-8 without a byte order mark."""
    # Bytes without a mark of UTF-16 are not checked. Raises ``UndecodableTextError`` for broken UTF-16.
    mark, encoding = _byte_order_mark(data)
    return data.removeprefix(mark) if encoding == "UTF-8" else decode_text(data).encode()


def is_utf16(data: bytes) -> bool:
    _, encoding = _byte_order_mark(data)
    return encoding != "UTF-8"


def _byte_order_mark(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark, which may be empty, and the encoding."""
    for mark, encoding in _ENCODING_OF_MARK.items():
        if data.startswith(mark):
            return mark, encoding
    return b"", "UTF-8"


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def without_last_line_end(text: str) -> str:
    # Editors and ``echo`` end the last line of a file. This line end is not part of the text that a person wrote.
    if text.endswith("\r\n"):
        return text.removesuffix("\r\n")
    return text.removesuffix("\n")


def replace_surrogates(text: str) -> str:
    """Return a text with U+FFFD instead of each half of a surrogate pair, which cannot be printed."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun, as in ``1 token`` and ``2,000 tokens``. The plural is formed with an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_alternatives(choices: Iterable[str]) -> str:
    """Return choices as words: ``a, b or c``."""
    names = list(choices)
    if len(names) <= 1:
        return "".join(names)
    return f"{', '.join(names[:-1])} or {names[-1]}"


_MAX_LISTED_NAMES = 100


def unknown_name(kind: str, name: object, known_names: Iterable[str], *, aliases: Iterable[str] = ()) -> str:
    """Return ``unknown KIND 'NAME'; did you mean A?``, or ``…; known: A, B`` if no known name is similar."""
    # ``aliases`` are names that are suggested, but not listed.
    names = list(known_names)
    hint = did_you_mean(str(name), [*names, *aliases]) or f"known: {_list_names(names)}"
    return f"unknown {kind} {short_repr(name)}; {hint}"


def _list_names(names: list[str]) -> str:
    shown_names = ", ".join(names[:_MAX_LISTED_NAMES]) or "none"
    hidden_count = len(names) - _MAX_LISTED_NAMES
    return f"{shown_names} and {hidden_count:,} more" if hidden_count > 0 else shown_names


def did_you_mean(name: str, known_names: Iterable[str], min_similarity: float = _MIN_SIMILARITY) -> str:
    """Return ``did you mean A?`` for the most similar known name; empty if no name is similar enough."""
    # Names that differ only in capitals, dashes and underscores count as equal.
    known_by_folded_name: dict[str, str] = {}
    for known_name in known_names:
        known_by_folded_name.setdefault(_fold(known_name), known_name)
    nearest = nearest_name(_fold(name), known_by_folded_name, min_similarity)
    return f"did you mean {known_by_folded_name[nearest]}?" if nearest else ""


def _fold(name: str) -> str:
    return name.casefold().replace("-", "_")


def nearest_name(name: str, known_names: Iterable[str], min_similarity: float = _MIN_SIMILARITY) -> str | None:
    """Return the known name that is most similar to ``name``; None if no name is similar enough."""
    # ``min_similarity`` is difflib's, 0 to 1. A name with two adjacent letters swapped takes precedence.
    names = list(known_names)
    for known_name in names:
        if _has_two_swapped_letters(name, known_name):
            return known_name
    matches = difflib.get_close_matches(name, names, n=1, cutoff=min_similarity)
    return matches[0] if matches else None


def _has_two_swapped_letters(name: str, known_name: str) -> bool:
    """Return whether two names differ only in the order of two adjacent letters."""
    if len(name) != len(known_name):
        return False
    differing_indices = [index for index in range(len(name)) if name[index] != known_name[index]]
    if len(differing_indices) != 2:
        return False
    first, second = differing_indices
    are_adjacent = second == first + 1
    return are_adjacent and name[first] == known_name[second] and name[second] == known_name[first]


def without_error_number(text: str) -> str:
    """Return an error's message without the ``[Errno 111]`` that Python puts before it."""
    return _ERROR_NUMBER.sub("", text)


def short_repr(value: Any) -> str:
    """Return Python's ``repr`` of a value, but with true, false and null; a long one is shortened."""
    return _REPR.repr(value)
