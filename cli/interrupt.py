"""Ctrl-C, SIGTERM and SIGHUP: the first one asks the run to end in order, the second one ends it at once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread, Timer, current_thread, main_thread
from types import FrameType
from typing import Any, NoReturn

from .messages import erase_bar
from .startup import start_collector

_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
_FIRST_SIGNAL_CODE = 128
"""Added to a signal's number, it is the exit code by which shells name the signal."""
_SECONDS_TO_END = 2.0
"""How long the second signal waits for the run to end. llama.cpp takes less; a call that hangs takes more."""
_SECONDS_TO_RAISE_AGAIN = 0.02
"""After this time a signal whose exception was lost is sent again: a callback of llama.cpp's takes less."""
_SECONDS_TO_FLUSH = 0.5
"""How long the end waits for what is still to be written to stdout."""


class Interrupt:
    """Whether the user or the system asked the run to end.

    Attributes: ``requested``, true from the first signal on; ``exit_code``: 130 for Ctrl-C, 143 for SIGTERM, 129
    for SIGHUP; ``abort_exception``, the exception of a call that was aborted.
    """

    def __init__(self) -> None:
        self.requested = False
        self.exit_code = _FIRST_SIGNAL_CODE + signal.SIGINT
        self._ends_soon = False
        self._signal_count = 0
        """How many signals C saw. While a C function runs, Python makes one of several."""
        self._abort: Callable[[], object] | None = None
        self.abort_exception: type[BaseException] = KeyboardInterrupt

    @property
    def is_repeated(self) -> bool:
        """True from the second signal on."""
        return self._signal_count > 1

    def abort_with(self, abort: Callable[[], object], abort_exception: type[Exception]) -> None:
        """Call ``abort`` when what is being computed is not needed any more: it ends a long call into C.

        Args:
            abort: called in a separate thread: at the second signal, inside `graceful_shutdown` at the first one.
            abort_exception: the exception that the aborted call raises. It may be raised before the exception of
                the signal, and is treated as that exception.
        """
        self._abort = abort
        self.abort_exception = abort_exception

    def raise_if_requested(self) -> None:
        """End the command if a signal came, where nothing is to be kept.

        Raises ``KeyboardInterrupt`` for Ctrl-C, ``SystemExit`` for the other signals.
        """
        if self.requested:
            _raise(self.exit_code)

    @contextmanager
    def graceful_shutdown(self) -> Iterator[None]:
        """While inside, the second signal does nothing: the first one ends the work soon, and its end is written.

        If the work goes on all the same, the process ends a moment later; a third signal ends it at once.
        """
        self._ends_soon = True
        try:
            yield
        finally:
            self._ends_soon = False

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        is_first = not self.requested
        if is_first:
            self.requested = True
            self.exit_code = _FIRST_SIGNAL_CODE + number
        if is_first and self._signal_count < 2:
            return
        if self._ends_soon:
            self._ends_soon = False
        else:
            self.raise_if_requested()

    def _watch(self, signal_count: int) -> None:
        """Called in a thread after each signal, also while the main thread is in a C function."""
        self._signal_count = signal_count
        if self._abort is not None and (self._ends_soon or signal_count > 1):
            self._abort()


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """While inside, the first signal only sets ``requested``; the second one raises as `raise_if_requested`.

    Python calls no signal handler while a C function runs. If one does not return, the second ends the process.
    A ``KeyboardInterrupt`` that another room raises becomes the exit code of the signal that came.

    Work that may take long begins here: the garbage collector is started if it is still off.
    """
    start_collector()
    interrupt = Interrupt()
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in previous.items():
        # nohup ignores SIGHUP. Some shells ignore SIGINT in the background, but a person may send it all the same.
        if handler != signal.SIG_IGN or number == signal.SIGINT:
            signal.signal(number, interrupt._receive)
    with _raised_again_when_lost(interrupt):  # until the handlers are gone
        try:
            with _process_ended_by_second_signal(interrupt):
                yield interrupt
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, interrupt.abort_exception)):
                interrupt.raise_if_requested()
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def _raised_again_when_lost(interrupt: Interrupt) -> Iterator[None]:
    """While inside, the second signal is sent again if its exception is lost.

    Python calls a signal handler inside a callback of llama.cpp's too, or inside a destructor. No exception leaves
    these: Python passes it to ``sys.unraisablehook``, and the work would go on.
    """
    previous = sys.unraisablehook
    timers: list[Timer] = []

    def send_again(unraisable: Any) -> None:
        if not (interrupt.requested and isinstance(unraisable.exc_value, (KeyboardInterrupt, SystemExit))):
            previous(unraisable)
            return
        number = interrupt.exit_code - _FIRST_SIGNAL_CODE
        timers.append(_send_later(number))

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = previous
        for timer in timers:
            timer.cancel()


def _send_later(number: int) -> Timer:
    """Send a signal to this process, but not at once: the callback in which it was lost still runs."""
    timer = Timer(_SECONDS_TO_RAISE_AGAIN, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
    return timer


def _send_lost_signal_again(unraisable: Any) -> None:
    """Send a signal again whose exception was lost while modules are imported: importlib has callbacks, too."""
    number = _signal_that_raised(unraisable.exc_value)
    if number is None:
        sys.__unraisablehook__(unraisable)
    else:
        _send_later(number)


def exit_code_of_cause(error: RuntimeError) -> int | None:
    """The exit code of the signal that caused this error; None if no signal did.

    Before Python 3.12, what leaves a `__set_name__` while a class is made becomes the cause of a ``RuntimeError``.
    """
    number = _signal_that_raised(error.__cause__)
    return None if number is None else _FIRST_SIGNAL_CODE + number


def _signal_that_raised(error: BaseException | None) -> int | None:
    """The number of the signal whose handler raised this; None if none did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        number = error.code - _FIRST_SIGNAL_CODE
        return number if number in _SIGNALS else None
    return None


@contextmanager
def _process_ended_by_second_signal(interrupt: Interrupt) -> Iterator[None]:
    """While inside, the second signal ends the process if Python does not leave in time."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    has_left = Event()

    def watch() -> None:
        # Python writes a byte for each signal, from C: also while the main thread is in a C function.
        numbers: list[int] = []
        while len(numbers) < 2:
            received = os.read(reading, 64)
            if not received:
                return
            numbers += [number for number in received if number in _SIGNALS]
            if numbers:
                interrupt._watch(len(numbers))
        if not has_left.wait(_SECONDS_TO_END):
            # In a thread: it would wait forever if the main thread waits for the reader of a full pipe.
            flusher = Thread(target=_flush_stdout, daemon=True)
            flusher.start()
            flusher.join(_SECONDS_TO_FLUSH)
            erase_bar()
            os._exit(_FIRST_SIGNAL_CODE + numbers[0])

    watcher = Thread(target=watch, name="signals", daemon=True)
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


def exit_on_signals() -> None:
    """From now on SIGTERM and SIGHUP end the command in order, as Ctrl-C does; none of them prints a traceback."""
    atexit.register(_ignore_signals)
    sys.unraisablehook = _send_lost_signal_again
    for number in _SIGNALS:
        if number != signal.SIGINT:
            _handle(number, lambda number, _frame: _raise(_FIRST_SIGNAL_CODE + number))


def exit_immediately_on_signals() -> None:
    """From now on a signal ends the process at once: Python is ending, and an exception would only be printed."""

    def leave(number: int, _frame: FrameType | None) -> None:
        _flush_stdout()
        erase_bar()
        os._exit(_FIRST_SIGNAL_CODE + number)

    for number in _SIGNALS:
        _handle(number, leave)


def _ignore_signals() -> None:
    """Ignore signals in the last moments: Python gives up its handlers there, and one would change the code."""
    _flush_stdout()  # it may wait for a reader, and Ctrl-C has to end that
    for number in _SIGNALS:
        _handle(number, signal.SIG_IGN)


def _flush_stdout() -> None:
    with suppress(Exception):
        sys.stdout.flush()


def _handle(number: int, handler: signal._HANDLER) -> None:
    if current_thread() is main_thread() and signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, handler)


def _raise(exit_code: int) -> NoReturn:
    if exit_code == _FIRST_SIGNAL_CODE + signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(exit_code)
