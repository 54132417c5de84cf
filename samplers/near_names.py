"""The known name that a mistyped one probably means. This room imports no other, so it has its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str], similarity: float) -> str | None:
    """Return the known name most like ``name``; None if none is at least this similar (0 to 1, see `difflib`)."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=similarity)
    return matches[0] if matches else None
