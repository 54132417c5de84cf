"""Near names in words, for messages. It imports little: a search for presets needs it."""

from __future__ import annotations

from collections.abc import Iterable

from ..common import nearest_name

_SIMILARITY = 0.6
"""From this similarity on, a known name is suggested (see `difflib`)."""


def name_hint(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean X?`` if a known name is similar, else ``known: A, B``."""
    names = list(known)
    near = nearest_name(name.lower(), names, _SIMILARITY)
    return f"did you mean {near}?" if near else f"known: {', '.join(names) or 'none'}"
