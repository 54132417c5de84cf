"""Sets of small numbers as the bits of an int: number i is in the set if bit i is 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def bit_indices(bits: int) -> Iterator[int]:
    """The numbers in a set, from low to high."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def union(sets: Iterable[int]) -> int:
    """The numbers that are in any of these sets."""
    bits = 0
    for one in sets:
        bits |= one
    return bits
