"""Checks a GGUF file before llama.cpp opens it, since llama.cpp can crash on a damaged one.

The ``gguf`` package would build an object for every token of the vocabulary, which takes seconds. Reading the
header here takes some hundredths of a second. The format: ggml's docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from .errors import ModelError

_STRING, _ARRAY = 8, 9
"""Types of metadata values, by their numbers in the format."""
# Bytes of each scalar type, by its number.
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
# ggml tensor types, from ggml.c: elements per block, bytes per block. llama.cpp itself refuses unknown types.
TENSOR_TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
    29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
    42: (64, 18),
}  # fmt: skip
# The struct format of each scalar type.
_SCALAR_FORMATS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
# Tensor names have at most 64 bytes (GGML_MAX_NAME), keys hardly more. A message with 256 is still readable.
_MAX_NAME_BYTES = 256
# LLAMA_MAX_LAYERS in llama.cpp.
_MAX_LAYERS = 512
# More than any vocabulary's text; a longer string means that the file is damaged.
_MAX_STRING_BYTES = 1 << 30
# GGML_MAX_DIMS in ggml.
_MAX_DIMENSIONS = 4
# What general.alignment is without an entry, by the format.
_DEFAULT_ALIGNMENT_BYTES = 32
_LOOKS_LIKE = {
    b"version https://git-lfs": "a Git LFS pointer; fetch the real file with `git lfs pull`",
    b"PK\x03\x04": "a zip archive",
    b"<!DOCTYPE": "a web page; the download link was not the file's own",
    b"<html": "a web page; the download link was not the file's own",
    b"ggml": "an old GGML file; convert it to GGUF",
    b"ggjt": "an old GGML file; convert it to GGUF",
}


def check_gguf(path: Path) -> None:
    """Raise ``ModelError`` unless ``path`` is a GGUF file with all the bytes that its tensors need."""
    try:
        with path.open("rb") as file:
            head = file.read(64)  # enough for each beginning in _LOOKS_LIKE
            if not head:
                raise ModelError(f"{path}: the file is empty")
            if not head.startswith(b"GGUF"):
                raise ModelError(f"{path}: not a GGUF file{_describe_format(head)}")
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


def _describe_format(head: bytes) -> str:
    return next(
        (f"; it looks like {description}" for start, description in _LOOKS_LIKE.items() if head.startswith(start)),
        "",
    )


class _DamagedError(Exception):
    pass


class _Header:
    """Reads the header from the start: magic, version, counts, metadata, tensor descriptions."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 4
        self._values: dict[str, int | float | bytes] = {}

    def bytes_needed(self) -> int:
        """How many bytes the file must have at least. Raises ``_DamagedError``."""
        version = self._number("<I")
        if version not in (2, 3):
            big_endian = version and version & 0xFFFF == 0
            raise _DamagedError("it is big-endian" if big_endian else f"version {version} is not 2 or 3")
        tensors, pairs = self._number("<Q"), self._number("<Q")
        for _ in range(pairs):
            self._metadata()
        if tensors:
            self._check_values()
        ends = [self._tensor() for _ in range(tensors)]
        alignment = int(self._values.get("general.alignment", _DEFAULT_ALIGNMENT_BYTES))
        start = -(-self._offset // alignment) * alignment
        return start + max(ends, default=0) if ends else self._offset

    def _number(self, format_: str) -> int:
        start = self._offset
        self._skip(struct.calcsize(format_), "the header")
        (value,) = struct.unpack_from(format_, self._data, start)
        return int(value)

    def _skip(self, count: int, item: str) -> None:
        if count > len(self._data) - self._offset:
            raise _DamagedError(f"{item} runs past the end of the file, which has {len(self._data):,} bytes")
        self._offset += count

    def _string(self, item: str, max_bytes: int = _MAX_STRING_BYTES) -> bytes:
        length = self._number("<Q")
        if length > max_bytes:
            raise _DamagedError(f"{item} is {length:,} bytes long")
        start = self._offset
        self._skip(length, item)
        return self._data[start : self._offset]

    def _metadata(self) -> None:
        key = self._string("a metadata key", _MAX_NAME_BYTES).decode("utf-8", "replace")
        value_type = self._number("<I")
        start = self._offset
        if value_type == _STRING:
            self._values[key] = self._string(f"the value of {key!r}")
        elif value_type == _ARRAY:
            self._array(key)
        else:
            self._skip(self._scalar_bytes(value_type, key), f"the value of {key!r}")
            if value_type in _SCALAR_FORMATS:
                (self._values[key],) = struct.unpack_from(_SCALAR_FORMATS[value_type], self._data, start)

    def _check_values(self) -> None:
        """Refuse values with which llama.cpp would end the process instead of returning an error."""
        for key, value in self._values.items():
            if key.endswith(".block_count") and not (isinstance(value, int) and 1 <= value <= _MAX_LAYERS):
                raise _DamagedError(f"{key} is {value!r}, not within 1..{_MAX_LAYERS}")
            if key.endswith("epsilon") and not (isinstance(value, float) and 0 <= value < float("inf")):
                raise _DamagedError(f"{key} is {value!r}, not a finite number ≥ 0")
            if key == "general.alignment" and not (isinstance(value, int) and value.bit_count() == 1):
                raise _DamagedError(f"general.alignment is {value!r}, not a power of two")
        if self._values.get("general.type", b"model") == b"model":
            tokenizer = self._values.get("tokenizer.ggml.model")
            if tokenizer in (None, b"none", b"no_vocab"):
                raise _DamagedError(
                    "it holds no tokenizer (tokenizer.ggml.model), so it can neither read nor write"
                )

    def _array(self, key: str) -> None:
        value_type, count = self._number("<I"), self._number("<Q")
        if value_type != _STRING:
            self._skip(self._scalar_bytes(value_type, key) * count, f"the list {key!r}")
            return
        # This loop takes most of the time: a vocabulary has a hundred thousand strings.
        data, offset, length_of = self._data, self._offset, struct.Struct("<Q").unpack_from
        end = len(data) - 8
        for _ in range(count):
            if offset > end:
                raise _DamagedError(f"the list {key!r} runs past the end of the file")
            offset += 8 + length_of(data, offset)[0]
        self._offset = offset
        self._skip(0, f"the list {key!r}")

    def _scalar_bytes(self, value_type: int, key: str) -> int:
        if value_type not in _SCALAR_BYTES:
            raise _DamagedError(f"{key!r} has the unknown type {value_type}")
        return _SCALAR_BYTES[value_type]

    def _tensor(self) -> int:
        """Read one description; returns where its data end, counted from the start of all tensor data."""
        name = self._string("a tensor's name", _MAX_NAME_BYTES).decode("utf-8", "replace")
        dimensions = self._number("<I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise _DamagedError(f"the tensor {name!r} has {dimensions} dimensions")
        shape = [self._number("<Q") for _ in range(dimensions)]
        type_number, offset = self._number("<I"), self._number("<Q")
        elements = 1
        for extent in shape:
            elements *= extent
        block_elements, block_bytes = TENSOR_TYPES.get(type_number, (1, 0))
        return offset + elements // block_elements * block_bytes
