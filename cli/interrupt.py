"""Ctrl-C: the first one asks the run to end in order, the second one ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupt:
    """Whether the user asked the run to end.

    Attributes: ``requested``, true from the first Ctrl-C on.
    """

    def __init__(self) -> None:
        self.requested = False

    def raise_if_requested(self) -> None:
        """Raise ``KeyboardInterrupt`` after Ctrl-C, where nothing is to be kept."""
        if self.requested:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """While inside, the first Ctrl-C only sets ``requested``; the second raises ``KeyboardInterrupt``."""
    interrupt = Interrupt()

    def on_signal(_number: int, _frame: object) -> None:
        interrupt.raise_if_requested()
        interrupt.requested = True

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """While inside, Ctrl-C does nothing in this process."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
