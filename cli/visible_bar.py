"""Whether a progress bar is on the terminal: a process that ends at once erases it first."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_ERASE_LINE_AND_SHOW_CURSOR = b"\r\x1b[2K\x1b[?25h"
_visible: list[object] = []
"""The bars that are shown now."""


@contextmanager
def visible_bar() -> Iterator[None]:
    """While inside, a bar is on the terminal."""
    bar = object()
    _visible.append(bar)
    try:
        yield
    finally:
        _visible.remove(bar)


def erase_bar() -> None:
    """Erase the bar and show the cursor again, if a bar is on the terminal. Called before ``os._exit``."""
    if _visible:
        with suppress(OSError, ValueError, AttributeError):
            os.write(sys.__stderr__.fileno(), _ERASE_LINE_AND_SHOW_CURSOR)  # type: ignore[union-attr]
