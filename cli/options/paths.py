"""Files that would be overwritten by mistake."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...common.errors import UsageError

NamedPath = tuple[str, Path | None]
"""A flag, and the path that it gives; None: it is not given."""


def refuse_same_file(written: Sequence[NamedPath], read: Sequence[NamedPath]) -> None:
    """Refuse to write a file that is also read, or written twice. Raises ``UsageError``."""
    for number, (flag, path) in enumerate(written):
        for other_flag, other_path in (*written[number + 1 :], *read):
            if path is not None and other_path is not None and _is_same(path, other_path):
                raise UsageError(f"{flag} and {other_flag} are one file, {other_path}; name another one")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist yet
        return os.path.realpath(one) == os.path.realpath(other)
