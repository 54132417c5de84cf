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
_SIGNAL_EXIT_BASE = 128  # the exit code after a signal is this number plus the number of the signal, as in shells
# Time that a run gets to end after the second signal, before the process exits. llama.cpp needs less.
_SECONDS_TO_END = 2.0
# Delay before a signal whose exception was lost is sent again. A callback of llama.cpp ends sooner.
_SECONDS_TO_RAISE_AGAIN = 0.02
_SECONDS_TO_FLUSH = 0.5  # time for writing buffered output to stdout before the process exits


class Interrupt:
    """The state of a run that the user or the system may interrupt by a signal."""

    def __init__(self) -> None:
        self.requested = False  # whether a signal has arrived
        # the exit code for the first signal: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP
        self.exit_code = _SIGNAL_EXIT_BASE + signal.SIGINT
        self._is_shutdown_graceful = False
        # Number of signals after which the process exits, if the run does not end by itself.
        self._signals_to_end = 2
        # Number of signals that arrived. Python merges signals that arrive while a C function runs.
        self._signal_count = 0
        self._abort: Callable[[], object] | None = None
        self.abort_exception: type[BaseException] = KeyboardInterrupt  # raised by a call after it was aborted

    @property
    def is_repeated(self) -> bool:
        """True after the second signal."""
        return self._signal_count > 1

    def abort_with(self, abort: Callable[[], object], abort_exception: type[Exception]) -> None:
        """Register a function that ends a long call of C code whose result is no longer needed."""
        # ``abort`` is called in another thread, at the second signal, or at the first signal inside
        # `graceful_shutdown`. ``abort_exception`` is raised by the aborted call, maybe before the exception of the
        # signal, and is treated as that exception.
        self._abort = abort
        self.abort_exception = abort_exception

    def raise_if_requested(self) -> None:
        """Raise ``KeyboardInterrupt`` after Ctrl-C, or ``SystemExit`` after another signal."""
        # Called where the command has no result that should be saved.
        if self.requested:
            _raise_exit(self.exit_code)

    @contextmanager
    def graceful_shutdown(self) -> Iterator[None]:
        """Inside the block, the second signal raises no exception, so that the end of the run can be written."""
        # The run ends after the first signal. If it does not end after the second one, the process exits after
        # `_SECONDS_TO_END`. A third signal raises an exception.
        self._is_shutdown_graceful = True
        try:
            yield
        finally:
            self._is_shutdown_graceful = False

    @contextmanager
    def ended_by_first_signal(self) -> Iterator[None]:
        """Inside the block, the process exits soon after the first signal, unless the run ends before."""
        # For a call of C code that nothing can stop. There must be no begun work that a signal would lose.
        self._signals_to_end = 1
        try:
            yield
        finally:
            self._signals_to_end = 2

    def _handle_signal(self, signal_number: int, _frame: FrameType | None) -> None:
        is_first = not self.requested
        if is_first:
            self.requested = True
            self.exit_code = _SIGNAL_EXIT_BASE + signal_number
        if is_first and self._signal_count < 2:
            return
        if self._is_shutdown_graceful:
            self._is_shutdown_graceful = False
        else:
            self.raise_if_requested()

    def _count_signals(self, signal_count: int) -> None:
        """Store the number of signals, and abort the current call of C code if its result is no longer needed."""
        # Called in another thread after each signal, even while the main thread is in a C function.
        self._signal_count = signal_count
        if self._abort is not None and (self._is_shutdown_graceful or signal_count > 1):
            self._abort()


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Inside the block, the first signal only sets ``requested``; the second one raises an exception."""
    # Python calls no signal handler while a C function runs. If a C function does not return after the second
    # signal, the process exits. A ``KeyboardInterrupt`` that other packages raise becomes the exception of the
    # signal.
    # The garbage collector is started if it is still off, because long work begins here.
    start_collector()
    interrupt = Interrupt()
    previous_handlers = {signal_number: signal.getsignal(signal_number) for signal_number in _SIGNALS}
    for signal_number, handler in previous_handlers.items():
        # Ignored signals stay ignored, as nohup needs for SIGHUP. SIGINT is an exception: some shells ignore it
        # for background jobs, but a user may still send it.
        if handler != signal.SIG_IGN or signal_number == signal.SIGINT:
            signal.signal(signal_number, interrupt._handle_signal)
    with _lost_signals_sent_again(interrupt):  # outermost, until the handlers are removed
        try:
            with _process_ended_by_second_signal(interrupt):
                yield interrupt
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, interrupt.abort_exception)):
                interrupt.raise_if_requested()
            raise
        finally:
            for signal_number, handler in previous_handlers.items():
                signal.signal(signal_number, handler)


@contextmanager
def interruptible_turn() -> Iterator[Interrupt]:
    """Do as `interruptible` does for a part of a dialog, which goes on after Ctrl-C only."""
    # A terminal that was closed fails all reading and writing after its SIGHUP. So other signals end the command
    # whatever failed inside the block.
    with interruptible() as interrupt:
        try:
            yield interrupt
        finally:
            if interrupt.exit_code != _SIGNAL_EXIT_BASE + signal.SIGINT:
                interrupt.raise_if_requested()


@contextmanager
def _lost_signals_sent_again(interrupt: Interrupt) -> Iterator[None]:
    """Inside the block, the second signal is sent again if its exception is lost."""
    # Python may call a signal handler inside a callback of llama.cpp or inside a destructor. Exceptions cannot
    # leave these: Python passes them to ``sys.unraisablehook``, and the run would continue.
    previous_hook = sys.unraisablehook
    timers: list[Timer] = []

    def send_again(unraisable: Any) -> None:
        is_exception_of_signal = isinstance(unraisable.exc_value, (KeyboardInterrupt, SystemExit))
        if interrupt.requested and is_exception_of_signal:
            signal_number = interrupt.exit_code - _SIGNAL_EXIT_BASE
            timers.append(_send_signal_later(signal_number))
        else:
            previous_hook(unraisable)

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        for timer in timers:
            timer.cancel()


def _send_signal_later(signal_number: int) -> Timer:
    """Send a signal to this process after a delay, when the callback in which it was lost has ended."""
    timer = Timer(_SECONDS_TO_RAISE_AGAIN, os.kill, (os.getpid(), signal_number))
    timer.daemon = True
    timer.start()
    return timer


def _send_lost_signal_again(unraisable: Any) -> None:
    """Send a signal again whose exception was lost in a callback of importlib, while modules are imported."""
    signal_number = _signal_that_raised(unraisable.exc_value)
    if signal_number is None:
        sys.__unraisablehook__(unraisable)
    else:
        _send_signal_later(signal_number)


def exit_code_of_cause(error: RuntimeError) -> int | None:
    """Return the exit code for the signal that caused an error; None if no signal caused it."""
    # Before Python 3.12, an exception in ``__set_name__``, while a class is created, is raised as the cause of a
    # ``RuntimeError``.
    signal_number = _signal_that_raised(error.__cause__)
    return None if signal_number is None else _SIGNAL_EXIT_BASE + signal_number


def _signal_that_raised(error: BaseException | None) -> int | None:
    """Return the number of the signal whose handler raised this exception; None if no signal did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        signal_number = error.code - _SIGNAL_EXIT_BASE
        return signal_number if signal_number in _SIGNALS else None
    return None


@contextmanager
def _process_ended_by_second_signal(interrupt: Interrupt) -> Iterator[None]:
    """Inside the block, exit the process soon after the second signal, unless the block ends before."""
    # `Interrupt.ended_by_first_signal` makes the first signal enough.
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    block_ended = Event()

    def watch() -> None:
        # Python's C code writes a byte for each signal, even while the main thread is in a C function.
        signal_numbers: list[int] = []
        while len(signal_numbers) < interrupt._signals_to_end:
            received_bytes = os.read(read_end, 64)  # each byte is the number of a signal
            is_pipe_closed = not received_bytes
            if is_pipe_closed:
                return
            signal_numbers += [number for number in received_bytes if number in _SIGNALS]
            if signal_numbers:
                interrupt._count_signals(len(signal_numbers))
        if not block_ended.wait(_SECONDS_TO_END):
            # In a thread, because flushing would wait forever if stdout is a full pipe without a reader.
            flusher = Thread(target=_flush_stdout, daemon=True)
            flusher.start()
            flusher.join(_SECONDS_TO_FLUSH)
            erase_bar()
            os._exit(_SIGNAL_EXIT_BASE + signal_numbers[0])

    watcher = Thread(target=watch, name="signals", daemon=True)
    watcher.start()
    previous_wakeup_end = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield
    finally:
        block_ended.set()
        signal.set_wakeup_fd(previous_wakeup_end)
        os.close(write_end)
        watcher.join()
        os.close(read_end)


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP end the command by an exception, as Ctrl-C does, without a traceback."""
    atexit.register(_ignore_signals)
    sys.unraisablehook = _send_lost_signal_again

    def leave(signal_number: int, _frame: FrameType | None) -> None:
        _raise_exit(_SIGNAL_EXIT_BASE + signal_number)

    for signal_number in _SIGNALS:
        if signal_number != signal.SIGINT:
            _set_handler_unless_ignored(signal_number, leave)


def exit_immediately_on_signals() -> None:
    """Make signals end the process immediately. While Python shuts down, an exception would only be printed."""

    def leave(signal_number: int, _frame: FrameType | None) -> None:
        _flush_stdout()
        erase_bar()
        os._exit(_SIGNAL_EXIT_BASE + signal_number)

    for signal_number in _SIGNALS:
        _set_handler_unless_ignored(signal_number, leave)


def _ignore_signals() -> None:
    """Ignore signals while Python removes its handlers: a signal would then change the exit code."""
    _flush_stdout()  # while Ctrl-C still works, because this may wait for the reader of a pipe
    for signal_number in _SIGNALS:
        _set_handler_unless_ignored(signal_number, signal.SIG_IGN)


def _flush_stdout() -> None:
    with suppress(Exception):
        sys.stdout.flush()


def _set_handler_unless_ignored(signal_number: int, handler: signal._HANDLER) -> None:
    if current_thread() is main_thread() and signal.getsignal(signal_number) != signal.SIG_IGN:
        signal.signal(signal_number, handler)


def _raise_exit(exit_code: int) -> NoReturn:
    if exit_code == _SIGNAL_EXIT_BASE + signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(exit_code)
