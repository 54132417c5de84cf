"""Reads what a list of models shows of a GGUF's header, in about a millisecond."""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter

from ..gguf_header import TENSOR_TYPES, DamagedError, HeaderReader

_KEY_START = b"tokenizer."
"""The keys behind the long lists of strings begin with it: the lists are those of the tokenizer."""
_KEY = re.compile(rb"[a-z0-9_.]+")
_LONG_LIST = 2000
"""Strings; a shorter list is read one by one."""
_LENGTH_BYTES = 8
_MAX_KEY_BYTES = 256
_MAX_VALUE_TYPE = 12
_MAX_LIST_BYTES = 1 << 26
"""Of a vocabulary's texts or merges; the largest of today have ten megabytes. The tensors are not searched."""
_U64, _U32 = struct.Struct("<Q").unpack_from, struct.Struct("<I").unpack_from
_SHAPES = [struct.Struct(f"<{dimensions}QIQ") for dimensions in range(5)]
"""What follows the number of dimensions: the extents, the type, the offset."""


class QuickHeaderReader(HeaderReader):
    """A header reader that finds the end of a long list of strings by the key behind it.

    A list of strings has no length in bytes, so that reading it takes a step for each of some hundred thousand
    strings. Attributes: ``elements_by_type``, how many weights each ggml type has; ``has_chat_template``.
    """

    def __init__(self, data: mmap.mmap) -> None:
        super().__init__(data)
        self.elements_by_type: Counter[int] = Counter()
        self._jumps = True

    @property
    def has_chat_template(self) -> bool:
        """True if the file holds a template for chats."""
        return bool(self.values.get("tokenizer.chat_template"))

    def bytes_needed(self) -> int:
        """How many bytes the file must have at least. Raises ``DamagedError``."""
        try:
            return self._bytes_needed()
        except DamagedError:  # the file is damaged, or a string of the vocabulary looked like a key
            self._jumps = False
            self._offset = 4
            self.values.clear()
            self.elements_by_type.clear()
            return self._bytes_needed()

    def _bytes_needed(self) -> int:
        self._read_counts_and_metadata()
        needed = self._file_bytes(self._tensor_ends())
        if self._jumps and needed > len(self._data):
            raise DamagedError("it is not whole")
        return needed

    def _skip_strings(self, key: str, count: int) -> None:
        if not self._jumps or count < _LONG_LIST or not self._jump(self._offset + count * _LENGTH_BYTES):
            super()._skip_strings(key, count)

    def _jump(self, start: int) -> bool:
        """Go to the next key from ``start`` on; False, and no step, if there is none."""
        data, end = self._data, min(len(self._data), start + _MAX_LIST_BYTES)
        found = data.find(_KEY_START, start, end)
        while found >= 0:
            (length,) = _U64(data, found - _LENGTH_BYTES)
            behind = found + length
            if len(_KEY_START) < length <= _MAX_KEY_BYTES and behind + 4 <= end:
                is_key = _KEY.fullmatch(data, found, behind) is not None
                if is_key and _U32(data, behind)[0] <= _MAX_VALUE_TYPE:
                    self._offset = found - _LENGTH_BYTES
                    return True
            found = data.find(_KEY_START, found + 1, end)
        return False

    def _tensor_ends(self) -> int:
        """Read all tensor descriptions; returns where the last one's data end, from the start of all data.

        Tensors that do not follow each other show, after a jump, that it went to a wrong place.
        """
        data, offset, end = self._data, self._offset, 0
        elements_by_type, alignment = self.elements_by_type, self._alignment_bytes()
        try:
            for _ in range(self.tensor_count):
                offset += _LENGTH_BYTES + _U64(data, offset)[0]
                shape = _SHAPES[_U32(data, offset)[0]]
                *extents, type_number, start = shape.unpack_from(data, offset + 4)
                if self._jumps and start != -(-end // alignment) * alignment:
                    raise DamagedError("its tensors do not follow each other")
                offset += 4 + shape.size
                elements = 1
                for extent in extents:
                    elements *= extent
                elements_by_type[type_number] += elements
                block_elements, block_bytes = TENSOR_TYPES.get(type_number, (1, 0))
                end = max(end, start + elements // block_elements * block_bytes)
        except (struct.error, IndexError, OverflowError):
            raise DamagedError("the descriptions of its tensors are broken") from None
        self._offset = offset
        return end
