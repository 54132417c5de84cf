"""Reads the header of a GGUF file.

The ``gguf`` package would build an object for every token of the vocabulary, which takes seconds. Reading the
header here takes some hundredths of a second. The format: ggml's docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

from ..common.text import count_noun
from .gguf_rules import faults, missing_bytes

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
# More than any vocabulary's text; a longer string means that the file is damaged.
_MAX_STRING_BYTES = 1 << 30
# GGML_MAX_DIMS in ggml.
_MAX_DIMENSIONS = 4
# What general.alignment is without an entry, by the format.
_DEFAULT_ALIGNMENT_BYTES = 32


class DamagedError(Exception):
    """The file is no GGUF file that llama.cpp can read; the text says why."""


class HeaderReader:
    """Reads the header from the start: magic, version, counts, metadata, tensor descriptions."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 4
        self.values: dict[str, int | float | bytes] = {}
        self.tensor_count = 0
        self._tokens = (0, 0, 0)
        """Where the list of tokens begins and ends, and how many there are."""

    def bytes_needed(self) -> int:
        """How many bytes the file must have at least. Raises ``DamagedError``."""
        self._read_counts_and_metadata()
        if self.tensor_count and (fault := next(faults(self.values), None)):
            raise DamagedError(fault)
        ends = [self._tensor() for _ in range(self.tensor_count)]
        return self._file_bytes(max(ends, default=0))

    def _file_bytes(self, data_bytes: int) -> int:
        """The header that was read, the padding behind it, and the tensors' data."""
        if not self.tensor_count:
            return self._offset
        alignment = self._alignment_bytes()
        return -(-self._offset // alignment) * alignment + data_bytes

    def _alignment_bytes(self) -> int:
        value = self.values.get("general.alignment")
        return value if isinstance(value, int) and value > 0 else _DEFAULT_ALIGNMENT_BYTES

    def _read_counts_and_metadata(self) -> None:
        version = self._number("<I")
        if version not in (2, 3):
            if version and version & 0xFFFF == 0:
                raise DamagedError("it is big-endian; convert it with `gguf-convert-endian FILE little`")
            advice = "convert the model again" if version < 2 else "another version of llama.cpp wrote it"
            raise DamagedError(f"version {version} is not 2 or 3; {advice}")
        self.tensor_count, pairs = self._number("<Q"), self._number("<Q")
        for _ in range(pairs):
            self._metadata()

    def _number(self, format_: str) -> int:
        start = self._offset
        self._skip(struct.calcsize(format_), "the header")
        (value,) = struct.unpack_from(format_, self._data, start)
        return int(value)

    def _skip(self, count: int, item: str) -> None:
        if count > len(self._data) - self._offset:
            raise DamagedError(
                f"{item} runs past the end of the file, which has {count_noun(len(self._data), 'byte')}"
            )
        self._offset += count

    def _string(self, item: str, max_bytes: int = _MAX_STRING_BYTES) -> bytes:
        length = self._number("<Q")
        if length > max_bytes:
            raise DamagedError(f"{item} is {count_noun(length, 'byte')} long")
        start = self._offset
        self._skip(length, item)
        return self._data[start : self._offset]

    def _metadata(self) -> None:
        key = self._string("a metadata key", _MAX_NAME_BYTES).decode("utf-8", "replace")
        value_type = self._number("<I")
        start = self._offset
        if value_type == _STRING:
            self.values[key] = self._string(f"the value of {key!r}")
        elif value_type == _ARRAY:
            self._array(key)
        else:
            self._skip(self._scalar_bytes(value_type, key), f"the value of {key!r}")
            if value_type in _SCALAR_FORMATS:
                (self.values[key],) = struct.unpack_from(_SCALAR_FORMATS[value_type], self._data, start)

    def missing_bytes(self) -> frozenset[int]:
        """The bytes that llama.cpp's tokenizer needs a token for and has none. Raises ``DamagedError``."""
        start, end, _ = self._tokens
        tokenizer = self.values.get("tokenizer.ggml.model")
        missing = missing_bytes(tokenizer, lambda run: self._data.find(run, start, end) >= 0, self.tokens)
        if missing and tokenizer == b"rwkv":
            raise DamagedError(
                "tokenizer.ggml.model is 'rwkv', but the vocabulary is another one: "
                f"it has no token for the byte 0x{min(missing):02X}"
            )
        return missing

    def tokens(self) -> Iterator[bytes]:
        """The texts of the tokens, as they are in the file. A large vocabulary takes hundredths of a second."""
        offset, _, count = self._tokens
        data, length_of = self._data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            start = offset + 8
            offset = start + length_of(data, offset)[0]
            yield data[start:offset]

    def _array(self, key: str) -> None:
        value_type, count = self._number("<I"), self._number("<Q")
        if value_type != _STRING:
            self._skip(self._scalar_bytes(value_type, key) * count, f"the list {key!r}")
            return
        start = self._offset
        self._skip_strings(key, count)
        if key == "tokenizer.ggml.tokens":
            self._tokens = (start, self._offset, count)

    def _skip_strings(self, key: str, count: int) -> None:
        # This loop takes most of the time: a vocabulary has a hundred thousand strings.
        data, offset, length_of = self._data, self._offset, struct.Struct("<Q").unpack_from
        end = len(data) - 8
        for _ in range(count):
            if offset > end:
                raise DamagedError(f"the list {key!r} runs past the end of the file")
            offset += 8 + length_of(data, offset)[0]
        self._offset = offset
        self._skip(0, f"the list {key!r}")

    def _scalar_bytes(self, value_type: int, key: str) -> int:
        if value_type not in _SCALAR_BYTES:
            raise DamagedError(f"{key!r} has the unknown type {value_type}")
        return _SCALAR_BYTES[value_type]

    def _tensor(self) -> int:
        """Read one description; returns where its data end, counted from the start of all tensor data."""
        name = self._string("a tensor's name", _MAX_NAME_BYTES).decode("utf-8", "replace")
        dimensions = self._number("<I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise DamagedError(f"the tensor {name!r} has {dimensions} dimensions")
        shape = [self._number("<Q") for _ in range(dimensions)]
        type_number, offset = self._number("<I"), self._number("<Q")
        # llama.cpp adds and multiplies such tensors in F32 only; on others it ends the process.
        if type_number != 0 and dimensions == 1 and name.endswith(("norm.weight", ".bias")):
            raise DamagedError(
                f"the tensor {name!r} has the type {type_number}, not 0 (F32); convert the model again"
            )
        elements = 1
        for extent in shape:
            elements *= extent
        block_elements, block_bytes = TENSOR_TYPES.get(type_number, (1, 0))
        return offset + elements // block_elements * block_bytes
