"""The known name that a mistyped one probably means. This room imports no other, so it has its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str], similarity: float) -> str | None:
    """Return the known name most like ``name``; None if none is at least this similar (0 to 1, see `difflib`).

    A name in which only two neighbouring letters are swapped goes before all others.
    """
    names = list(known)
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
