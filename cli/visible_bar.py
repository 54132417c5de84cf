"""Whether a progress bar is on the terminal: a process that ends at once erases it first."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_ERASE_LINE, _ERASE_LINE_ABOVE, _SHOW_CURSOR = b"\r\x1b[2K", b"\x1b[1A\x1b[2K", b"\x1b[?25h"
_visible: list[Callable[[], int]] = []
"""The bars that are shown now: functions that return how many lines they have."""


@contextmanager
def visible_bar(count_lines: Callable[[], int] = lambda: 1) -> Iterator[None]:
    """While inside, a bar is on the terminal; ``count_lines``: how many lines it has."""
    _visible.append(count_lines)
    try:
        yield
    finally:
        _visible.remove(count_lines)


def erase_bar() -> None:
    """Erase the bar and show the cursor again, if a bar is on the terminal. Called before ``os._exit``."""
    if _visible:
        lines_above = max(count_lines() for count_lines in _visible) - 1
        erased = _ERASE_LINE + lines_above * _ERASE_LINE_ABOVE + _SHOW_CURSOR
        with suppress(OSError, ValueError, AttributeError):
            os.write(sys.__stderr__.fileno(), erased)  # type: ignore[union-attr]
