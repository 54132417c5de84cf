"""Which ``multipleOf`` of a JSON Schema llguidance can follow: it keeps a state for each remainder, in 32 bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from .errors import GrammarError
from .schema_walk import SchemaPart, walk_from, walk_schema

_MAX_DIGITS = (2**32 - 10) // 10
"""The largest number, without its decimal point, of which llguidance's sums do not overflow."""
_MAX_STATES = 50_000
"""300,000 take seconds to follow, and 4 million a gigabyte."""


def multiple_of(schema: Mapping[str, Any]) -> Fraction | None:
    """The ``multipleOf`` of one schema; None if it has none, or one that is no positive number."""
    value = schema.get("multipleOf")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        return None
    return Fraction(str(value))  # a float as it is written: 0.1 is a tenth


def can_follow(multiples: Iterable[Fraction]) -> bool:
    """True if llguidance follows the multiples of all of these quickly, and without an overflow."""
    common: Fraction | None = None
    for multiple in multiples:
        common = multiple if common is None else _least_common_multiple(common, multiple)
        if not _is_small(common):
            return False
    return True


def check_common_multiples(root: dict[str, Any]) -> None:
    """Refuse schemas that hold together and whose multiples have a common one that is too large.

    Also those of properties of one name count together there.
    """
    if can_follow(_multiples(root, SchemaPart("", root))):
        return
    for part in walk_schema(root):
        is_joined = "allOf" in part.schema or ("$ref" in part.schema and len(part.schema) > 1)
        if is_joined and not can_follow(_multiples(root, part)):
            keyword = "allOf" if "allOf" in part.schema else "$ref"
            message = "the values of multipleOf below have a common multiple that cannot be followed"
            raise GrammarError(f"{part.pointer}/{keyword}: {message}")


def _multiples(root: dict[str, Any], start: SchemaPart) -> Iterator[Fraction]:
    for part in walk_from(root, start):
        multiple = multiple_of(part.schema)
        if multiple is not None:
            yield multiple


def _least_common_multiple(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))


def _is_small(multiple: Fraction) -> bool:
    """True for few remainders; a final zero adds fewer than another digit. The threefold was fitted to times."""
    digits, places = multiple.numerator, multiple.denominator
    while places % 10 == 0:
        places //= 10
    while places > 1:  # what is left is a power of 2 or of 5
        factor = 5 if places % 2 == 0 else 2
        digits, places = digits * factor, places // (10 // factor)
    rest, zeros = digits, 0
    while rest % 10 == 0:
        rest, zeros = rest // 10, zeros + 1
    return digits <= _MAX_DIGITS and rest * 3**zeros <= _MAX_STATES
