"""Handling of Ctrl-C, SIGTERM and SIGHUP: the first signal ends a run gracefully, the second one immediately."""

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
"""Shells report a process that a signal ended with this number plus the number of the signal."""
_SECONDS_TO_END = 2.0
"""Time that a run gets to end after the second signal, before the process exits. llama.cpp needs less."""
_SECONDS_TO_RAISE_AGAIN = 0.02
"""Delay before a signal whose exception was lost is sent again. A callback of llama.cpp ends sooner."""
_SECONDS_TO_FLUSH = 0.5
"""Time for writing buffered output to stdout before the process exits."""


class Interrupt:
    """The state of a run that the user or the system may interrupt by a signal.

    Attributes:
        requested: whether a signal has arrived.
        exit_code: exit code for the first signal: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.
        abort_exception: the exception that a call raises after it was aborted.
    """

    def __init__(self) -> None:
        self.requested = False
        self.exit_code = _FIRST_SIGNAL_CODE + signal.SIGINT
        self._is_shutdown_graceful = False
        self._signal_count = 0
        """Number of signals that arrived. Python merges signals that arrive while a C function runs."""
        self._abort: Callable[[], object] | None = None
        self.abort_exception: type[BaseException] = KeyboardInterrupt

    @property
    def is_repeated(self) -> bool:
        """True after the second signal."""
        return self._signal_count > 1

    def abort_with(self, abort: Callable[[], object], abort_exception: type[Exception]) -> None:
        """Register a function that ends a long call of C code whose result is no longer needed.

        Args:
            abort: the function. It is called in another thread, at the second signal, or at the first signal
                inside `graceful_shutdown`.
            abort_exception: the exception that the aborted call raises. It may be raised before the exception of
                the signal, and is treated as that exception.
        """
        self._abort = abort
        self.abort_exception = abort_exception

    def raise_if_requested(self) -> None:
        """Raise ``KeyboardInterrupt`` after Ctrl-C, or ``SystemExit`` after another signal.

        Called where the command has no result that should be saved.
        """
        if self.requested:
            _raise_exit(self.exit_code)

    @contextmanager
    def graceful_shutdown(self) -> Iterator[None]:
        """Inside the block, raise nothing at the second signal, because the run already ends after the first one.

        So the end of the run can be written. If the run does not end, the process exits after `_SECONDS_TO_END`; a
        third signal raises an exception.
        """
        self._is_shutdown_graceful = True
        try:
            yield
        finally:
            self._is_shutdown_graceful = False

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        is_first = not self.requested
        if is_first:
            self.requested = True
            self.exit_code = _FIRST_SIGNAL_CODE + number
        if is_first and self._signal_count < 2:
            return
        if self._is_shutdown_graceful:
            self._is_shutdown_graceful = False
        else:
            self.raise_if_requested()

    def _count_signals(self, signal_count: int) -> None:
        """Store the number of signals, and abort the current call of C code if its result is no longer needed.

        Called in another thread after each signal, even while the main thread is in a C function.
        """
        self._signal_count = signal_count
        if self._abort is not None and (self._is_shutdown_graceful or signal_count > 1):
            self._abort()


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Inside the block, the first signal only sets ``requested``; the second one raises an exception.

    Python calls no signal handler while a C function runs. If a C function does not return after the second
    signal, the process exits. A ``KeyboardInterrupt`` that other packages raise becomes the exception of the
    signal.

    The garbage collector is started if it is still off, because long work begins here.
    """
    start_collector()
    interrupt = Interrupt()
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in previous.items():
        # Ignored signals stay ignored, as nohup needs for SIGHUP. SIGINT is an exception: some shells ignore it
        # for background jobs, but a user may still send it.
        if handler != signal.SIG_IGN or number == signal.SIGINT:
            signal.signal(number, interrupt._handle_signal)
    with _lost_signals_sent_again(interrupt):  # outermost, until the handlers are removed
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
def _lost_signals_sent_again(interrupt: Interrupt) -> Iterator[None]:
    """Inside the block, the second signal is sent again if its exception is lost.

    Python may call a signal handler inside a callback of llama.cpp or inside a destructor. Exceptions cannot leave
    these: Python passes them to ``sys.unraisablehook``, and the run would continue.
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
    """Send a signal to this process after a delay, when the callback in which it was lost has ended."""
    timer = Timer(_SECONDS_TO_RAISE_AGAIN, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
    return timer


def _send_lost_signal_again(unraisable: Any) -> None:
    """Send a signal again whose exception was lost in a callback of importlib, while modules are imported."""
    number = _signal_that_raised(unraisable.exc_value)
    if number is None:
        sys.__unraisablehook__(unraisable)
    else:
        _send_later(number)


def exit_code_of_cause(error: RuntimeError) -> int | None:
    """Return the exit code for the signal that caused an error; None if no signal caused it.

    Before Python 3.12, an exception in ``__set_name__``, while a class is created, is raised as the cause of a
    ``RuntimeError``.
    """
    number = _signal_that_raised(error.__cause__)
    return None if number is None else _FIRST_SIGNAL_CODE + number


def _signal_that_raised(error: BaseException | None) -> int | None:
    """Return the number of the signal whose handler raised this exception; None if none did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        number = error.code - _FIRST_SIGNAL_CODE
        return number if number in _SIGNALS else None
    return None


@contextmanager
def _process_ended_by_second_signal(interrupt: Interrupt) -> Iterator[None]:
    """Inside the block, exit the process soon after the second signal, unless the block ends before."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    has_left = Event()

    def watch() -> None:
        # Python's C code writes a byte for each signal, even while the main thread is in a C function.
        numbers: list[int] = []
        while len(numbers) < 2:
            received = os.read(reading, 64)
            if not received:
                return
            numbers += [number for number in received if number in _SIGNALS]
            if numbers:
                interrupt._count_signals(len(numbers))
        if not has_left.wait(_SECONDS_TO_END):
            # In a thread, because flushing would wait forever if stdout is a full pipe without a reader.
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
    """Inside the block, this process ignores Ctrl-C."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP end the command by an exception, as Ctrl-C does, without a traceback."""
    atexit.register(_ignore_signals)
    sys.unraisablehook = _send_lost_signal_again
    for number in _SIGNALS:
        if number != signal.SIGINT:
            _set_handler_unless_ignored(number, lambda number, _frame: _raise_exit(_FIRST_SIGNAL_CODE + number))


def exit_immediately_on_signals() -> None:
    """Make signals end the process immediately. While Python shuts down, an exception would only be printed."""

    def leave(number: int, _frame: FrameType | None) -> None:
        _flush_stdout()
        erase_bar()
        os._exit(_FIRST_SIGNAL_CODE + number)

    for number in _SIGNALS:
        _set_handler_unless_ignored(number, leave)


def _ignore_signals() -> None:
    """Ignore signals while Python removes its handlers: a signal would then change the exit code."""
    _flush_stdout()  # while Ctrl-C still works, because this may wait for the reader of a pipe
    for number in _SIGNALS:
        _set_handler_unless_ignored(number, signal.SIG_IGN)


def _flush_stdout() -> None:
    with suppress(Exception):
        sys.stdout.flush()


def _set_handler_unless_ignored(number: int, handler: signal._HANDLER) -> None:
    if current_thread() is main_thread() and signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, handler)


def _raise_exit(exit_code: int) -> NoReturn:
    if exit_code == _FIRST_SIGNAL_CODE + signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(exit_code)
