"""Ctrl-C: the first one asks the run to end in order, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from .errors import INTERRUPTED

_SECONDS_TO_END = 2.0
"""How long the second Ctrl-C waits for the run to end. A token takes less; a call that hangs takes more."""


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
    """While inside, the first Ctrl-C only sets ``requested``; the second raises ``KeyboardInterrupt``.

    Python calls no signal handler while a C function runs. If one does not return, the second ends the process.
    """
    interrupt = Interrupt()

    def on_signal(_number: int, _frame: object) -> None:
        interrupt.raise_if_requested()
        interrupt.requested = True

    previous = signal.signal(signal.SIGINT, on_signal)
    with _ended_by_the_second_signal():
        try:
            yield interrupt
        finally:
            signal.signal(signal.SIGINT, previous)


@contextmanager
def _ended_by_the_second_signal() -> Iterator[None]:
    """While inside, the second SIGINT ends the process if Python does not leave in time."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    has_left = Event()

    def watch() -> None:
        # Python writes a byte for each signal, from C: also while the main thread is in a C function.
        remaining = 2
        while remaining:
            received = os.read(reading, 64)
            if not received:
                return
            remaining -= min(remaining, received.count(signal.SIGINT))
        if not has_left.wait(_SECONDS_TO_END):
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(INTERRUPTED)

    watcher = Thread(target=watch, name="ctrl-c", daemon=True)
    watcher.start()
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        has_left.set()
        signal.set_wakeup_fd(previous)
        os.close(writing)
        watcher.join()
        os.close(reading)


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """While inside, Ctrl-C does nothing in this process."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
