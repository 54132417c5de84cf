"""Ctrl-C: the first one asks for an end in order, the second one breaks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """While inside, the first Ctrl-C only fills the list, so that the run can end in order; the second breaks."""
    pressed: list[int] = []

    def on_interrupt(number: int, _frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
