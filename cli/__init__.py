"""The command `gen`."""

from __future__ import annotations

from collections.abc import Sequence

from .startup import few_collections

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `gen` with these arguments (default: those of the process), and exit."""
    try:
        with few_collections():
            from .app import start

            start(arguments)
    except KeyboardInterrupt:  # before a command could handle it
        from .errors import INTERRUPTED

        raise SystemExit(INTERRUPTED) from None
