"""Token ids as bytes."""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterable


def pack_tokens(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian 32-bit numbers, compressed."""
    numbers = array("I", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return zlib.compress(numbers.tobytes(), 1)


def unpack_tokens(data: bytes) -> tuple[int, ...]:
    """The token ids that `pack_tokens` packed. Raises ``ValueError`` for other bytes."""
    numbers = array("I")
    try:
        numbers.frombytes(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)
