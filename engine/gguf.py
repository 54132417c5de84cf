"""A look at a GGUF file before llama.cpp sees it, since llama.cpp can crash on a damaged one.

The `gguf` package reads this too, but builds an object for every token of the vocabulary: seconds, where a
walk over the header takes some hundredths of one.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from .errors import ModelError

_STRING, _ARRAY = 8, 9
# Bytes of each scalar kind of metadata value, by its number in the format.
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
# ggml tensor types: elements in a block, bytes of a block. An unknown one is left to llama.cpp to refuse.
TENSOR_TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
    29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
    42: (64, 18),
}  # fmt: skip
# What of it can be read as one number, and how.
_FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
# Far above what any file has, far below what would fill a screen.
_LONGEST_NAME = 256
# llama.cpp's own limit.
_MOST_LAYERS = 512
_LOOKS_LIKE = {
    b"version https://git-lfs": "a Git LFS pointer; fetch the real file with `git lfs pull`",
    b"PK\x03\x04": "a zip archive",
    b"<!DOCTYPE": "a web page; the download link was not the file's own",
    b"<html": "a web page; the download link was not the file's own",
    b"ggml": "an old GGML file; convert it to GGUF",
    b"ggjt": "an old GGML file; convert it to GGUF",
}


def check_gguf(path: Path) -> None:
    """Raise ``ModelError`` unless ``path`` is a GGUF file that holds all the bytes that its tensors need."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if not head:
                raise ModelError(f"{path}: the file is empty")
            if not head.startswith(b"GGUF"):
                raise ModelError(f"{path}: not a GGUF file{_guess(head)}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                needed = _Header(data).bytes_needed()
                size = len(data)
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ModelError(f"{path}: this is a folder; give the .gguf file in it") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a path with a NUL in it
        raise ModelError(f"{str(path)!r}: no file can have this name: {error}") from None
    except _DamagedError as error:
        raise ModelError(f"{path}: damaged GGUF file: {error}") from None
    if size < needed:
        raise ModelError(
            f"{path}: truncated: its tensors need {needed:,} bytes, the file has {size:,}; download it again"
        )


def _guess(head: bytes) -> str:
    return next((f"; it looks like {what}" for start, what in _LOOKS_LIKE.items() if head.startswith(start)), "")


class _DamagedError(Exception):
    pass


class _Header:
    """A cursor over the header: magic, version, counts, metadata, tensor descriptions."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 4
        self._facts: dict[str, int | float | bytes] = {}

    def bytes_needed(self) -> int:
        """The size that the file must have at least."""
        version = self._number("<I")
        if version not in (2, 3):
            big_endian = version and version & 0xFFFF == 0
            raise _DamagedError("it is big-endian" if big_endian else f"version {version} is not 2 or 3")
        tensors, pairs = self._number("<Q"), self._number("<Q")
        for _ in range(pairs):
            self._metadata()
        if tensors:
            self._check_facts()
        ends = [self._tensor() for _ in range(tensors)]
        alignment = int(self._facts.get("general.alignment", 32))
        start = -(-self._at // alignment) * alignment
        return start + max(ends, default=0) if ends else self._at

    def _number(self, form: str) -> int:
        start = self._at
        self._skip(struct.calcsize(form), "the header")
        (value,) = struct.unpack_from(form, self._data, start)
        return int(value)

    def _skip(self, count: int, what: str) -> None:
        if count > len(self._data) - self._at:
            raise _DamagedError(f"{what} runs past the end of the file, which has {len(self._data):,} bytes")
        self._at += count

    def _string(self, what: str, most: int = 1 << 30) -> bytes:
        length = self._number("<Q")
        if length > most:
            raise _DamagedError(f"{what} is {length:,} bytes long")
        start = self._at
        self._skip(length, what)
        return self._data[start : self._at]

    def _metadata(self) -> None:
        key = self._string("a metadata key", _LONGEST_NAME).decode("utf-8", "replace")
        kind = self._number("<I")
        start = self._at
        if kind == _STRING:
            self._facts[key] = self._string(f"the value of {key!r}")
        elif kind == _ARRAY:
            self._array(key)
        else:
            self._skip(self._width(kind, key), f"the value of {key!r}")
            if kind in _FORMS:
                (self._facts[key],) = struct.unpack_from(_FORMS[kind], self._data, start)

    def _check_facts(self) -> None:
        """Refuse the values on which llama.cpp stops the process instead of returning an error."""
        for key, value in self._facts.items():
            if key.endswith(".block_count") and not (isinstance(value, int) and 1 <= value <= _MOST_LAYERS):
                raise _DamagedError(f"{key} is {value!r}, not within 1..{_MOST_LAYERS}")
            if key.endswith("epsilon") and not (isinstance(value, float) and 0 <= value < float("inf")):
                raise _DamagedError(f"{key} is {value!r}, not a finite number ≥ 0")
            if key == "general.alignment" and not (isinstance(value, int) and value.bit_count() == 1):
                raise _DamagedError(f"general.alignment is {value!r}, not a power of two")
        if self._facts.get("general.type", b"model") == b"model":
            tokenizer = self._facts.get("tokenizer.ggml.model")
            if tokenizer in (None, b"none", b"no_vocab"):
                raise _DamagedError(
                    "it holds no tokenizer (tokenizer.ggml.model), so it can neither read nor write"
                )

    def _array(self, key: str) -> None:
        kind, count = self._number("<I"), self._number("<Q")
        if kind != _STRING:
            self._skip(self._width(kind, key) * count, f"the list {key!r}")
            return
        # The hot spot of the whole walk: a vocabulary has a hundred thousand strings.
        data, at, length_of = self._data, self._at, struct.Struct("<Q").unpack_from
        end = len(data) - 8
        for _ in range(count):
            if at > end:
                raise _DamagedError(f"the list {key!r} runs past the end of the file")
            at += 8 + length_of(data, at)[0]
        self._at = at
        self._skip(0, f"the list {key!r}")

    def _width(self, kind: int, key: str) -> int:
        if kind not in _SCALARS:
            raise _DamagedError(f"{key!r} has the unknown type {kind}")
        return _SCALARS[kind]

    def _tensor(self) -> int:
        """Read one description; return where its data end, counted from the start of all data."""
        name = self._string("a tensor's name", _LONGEST_NAME).decode("utf-8", "replace")
        dimensions = self._number("<I")
        if not 1 <= dimensions <= 4:
            raise _DamagedError(f"the tensor {name!r} has {dimensions} dimensions")
        shape = [self._number("<Q") for _ in range(dimensions)]
        kind, offset = self._number("<I"), self._number("<Q")
        elements = 1
        for extent in shape:
            elements *= extent
        block, width = TENSOR_TYPES.get(kind, (1, 0))
        return offset + elements // block * width
