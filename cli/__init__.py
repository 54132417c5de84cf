"""The command `gen`."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Sequence

__all__ = ["main"]

# What is imported at the start is no garbage: to look through it again and again would take a tenth of the start.
_BETWEEN_COLLECTIONS = 200_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `gen` with these arguments (default: those of the process), and exit."""
    # The process gives all back at once; to look for garbage before that would take a tenth of a short run.
    atexit.register(gc.freeze)
    before = gc.get_threshold()
    gc.set_threshold(_BETWEEN_COLLECTIONS, *before[1:])
    try:
        from .app import start

        start(arguments)
    except KeyboardInterrupt:  # before a command could listen to it
        from .errors import INTERRUPTED

        raise SystemExit(INTERRUPTED) from None
    finally:
        gc.set_threshold(*before)
