"""Errors of presets, and hints to similar names.

The module imports little, because completion in shells needs it to find presets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..common.errors import LogitsmithError
from ..common.text import nearest_name


class PresetError(LogitsmithError, ValueError):
    """A preset, a setting or a configuration that cannot be used.

    The message names the file or the flag, the place in it, the value, and the allowed values.
    """

    exit_code: ClassVar[int] = 2


_MIN_KEY_SIMILARITY = 0.6
"""Minimum similarity, from 0 to 1, of a key that is suggested (see `difflib`)."""
_MIN_NAME_SIMILARITY = 0.7
"""Minimum similarity, from 0 to 1, of the name of a preset or a section that is suggested.

Users choose these names, so a merely similar name is less likely to be meant than with keys.
"""


def name_hint(name: str, known_names: Iterable[str]) -> str:
    """Return ``did you mean X?`` if a known name is similar, otherwise ``known: A, B``."""
    names = list(known_names)
    nearest = nearest_name(name.lower(), names, _MIN_KEY_SIMILARITY)
    return f"did you mean {nearest}?" if nearest else f"known: {', '.join(names) or 'none'}"


def preset_hint(name: str, known_names: Iterable[str]) -> str:
    """Return ``did you mean X? (known: A, B)`` if a known name is similar, otherwise ``known: A, B``.

    The names are those of presets or sections; case is ignored.
    """
    names = list(known_names)
    by_folded_name = {known.casefold(): known for known in reversed(names)}
    nearest = nearest_name(name.casefold(), by_folded_name, _MIN_NAME_SIMILARITY)
    name_list = f"known: {', '.join(names) or 'none'}"
    return f"did you mean {by_folded_name[nearest]}? ({name_list})" if nearest else name_list
