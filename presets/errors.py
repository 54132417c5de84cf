"""Errors of presets, and the names that are near a wrong one. It imports little: a search for presets needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..common.errors import LogitsmithError
from ..common.text import nearest_name


class PresetError(LogitsmithError, ValueError):
    """A preset, a setting or a configuration that cannot be used.

    The message names the file or the flag, the place in it, what is allowed, and what came.
    """

    exit_code: ClassVar[int] = 2


_KEY_SIMILARITY = 0.6
"""Least similarity of a key that is suggested (see `difflib`)."""
_NAME_SIMILARITY = 0.7
"""Least similarity of the name of a preset or a section that is suggested: users choose these names, and unlike
words must not be taken for typing errors."""


def name_hint(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean X?`` if a known key is similar, else ``known: A, B``."""
    names = list(known)
    near = nearest_name(name.lower(), names, _KEY_SIMILARITY)
    return f"did you mean {near}?" if near else f"known: {', '.join(names) or 'none'}"


def preset_hint(name: str, known_names: Iterable[str]) -> str:
    """Return ``did you mean X? (known: A, B)`` if a preset or section has a similar name, else ``known: A, B``.

    The case of letters is ignored.
    """
    names = list(known_names)
    by_folded_name = {known.casefold(): known for known in reversed(names)}
    near = nearest_name(name.casefold(), by_folded_name, _NAME_SIMILARITY)
    listed = f"known: {', '.join(names) or 'none'}"
    return f"did you mean {by_folded_name[near]}? ({listed})" if near else listed
