"""What is fuzzed, and what counts as a finding."""

from __future__ import annotations

import resource
import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

MAX_SECONDS = 2.0
"""Processor seconds for one input."""
TOO_SLOW = f"more than {MAX_SECONDS:g} seconds"
MAX_MEGABYTES = 500
"""What one input may add to the process's peak."""
TOP = Path(__file__).parents[2]


class HangError(BaseException):
    """An input that takes too long. No `Exception`, so that nothing under test catches it."""


@dataclass(frozen=True)
class Target:
    """Something that reads input.

    Attributes:
        name: its name on the command line, and that of its folder in ``regressions/``.
        check: reads an input. It may raise ``errors``; an AssertionError is a finding.
        errors: the room's own errors.
        seeds: valid inputs, from which others are made.
        words: pieces that mean something in such an input.
        is_text: True if inputs are UTF-8 mostly.
    """

    name: str
    check: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: Sequence[bytes]
    words: Sequence[bytes] = field(default=())
    is_text: bool = True


@dataclass(frozen=True)
class Finding:
    """An input that does what none may. ``key``: alike for inputs with the same cause."""

    key: str
    detail: str


def examine(target: Target, data: bytes) -> Finding | None:
    """Give the target one input; None if it ends as it should: in a value, or in an error of the room."""
    memory, start = _peak_megabytes(), process_time()
    try:
        finding = _run(target, data)
    except HangError:
        finding = Finding(TOO_SLOW, "".join(traceback.format_exc().splitlines(True)[-12:]))
    seconds, megabytes = process_time() - start, _peak_megabytes() - memory
    if finding is None and seconds > MAX_SECONDS:
        finding = Finding(TOO_SLOW, f"{seconds:.1f} s, outside of Python")
    if finding is None and megabytes > MAX_MEGABYTES:
        finding = Finding(f"more than {MAX_MEGABYTES} MB", f"{megabytes} MB")
    return finding


def _run(target: Target, data: bytes) -> Finding | None:
    previous = signal.signal(signal.SIGPROF, _interrupt)
    try:
        # Measures processor time, so that a busy machine gives no findings.
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS + 0.5)
        target.check(data)
    except target.errors as error:
        return _fault_of(error)
    except Exception as error:
        return Finding(_cause(error), "".join(traceback.format_exception(error))[-3000:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    return None


def _interrupt(*_: object) -> None:
    raise HangError


def _fault_of(error: Exception) -> Finding | None:
    """What is wrong with the message of an error of the room: it is one sentence that can be printed."""
    message = str(error)
    try:
        message.encode()
    except UnicodeEncodeError:
        return Finding(f"{type(error).__name__} that cannot be printed", ascii(message))
    if not message.strip():
        return Finding(f"{type(error).__name__} without a message", "".join(traceback.format_exception(error)))
    return None


def _cause(error: Exception) -> str:
    """The exception's name, and where in this project it came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "logitsmith" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    reason = f": {(str(error).splitlines() or [''])[-1][:80]}" if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} in {place}{reason}"


def _peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
