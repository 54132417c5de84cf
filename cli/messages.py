"""Notes and failures on stderr. A failure becomes one sentence and an exit code, here and nowhere else.

A process that ends at once erases the progress bar first, so that the sentence does not continue its line.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TextIO

import typer

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes."""

_PACKAGES_BY_MODULE = {"yaml": "pyyaml", "llama_cpp": "llama-cpp-python", "array_api_compat": "array-api-compat"}
"""The packages that are installed under another name than they are imported."""

_FLAGS = {
    "basis_from_rows": "--rows",
    "chat_template=…": "--chat-template",
    "checkpoint=…": "--checkpoint",
    "json_schema_file=…": "-jf",
    "lora=…": "--lora",
    "n_ctx": "-c",
    "path=FILE.gguf": "-m FILE.gguf",
    "path=…": "-m",
    "resume=True": "--resume",
    "schema_lenient=True": "--schema-lenient",
}
"""Names of parameters and functions in the advice of the packages below, each with its flag."""


@contextmanager
def report_failures() -> Iterator[None]:
    """Turn a named failure into a message on stderr and an exit code: 1 a failure, 2 wrong usage, 130 Ctrl-C.

    A named failure is an exception with an ``exit_code``: a `LogitsmithError`, or one of samplers/, which imports
    no other room. A closed pipe (`gen … | head -1`) ends quietly, with code 0.
    """
    try:
        with named_failures(fail):
            yield
            sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain at exit when it flushes what can no longer be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def named_failures(report: Callable[[str, int], object]) -> Iterator[None]:
    """Call ``report`` with the sentence and the exit code of a named failure; other exceptions go on.

    So does a closed pipe: nobody reads any more.
    """
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        sentence = _failure_sentence(error)
        if sentence is None:
            raise
        report(sentence, getattr(error, "exit_code", FAILED))


def _failure_sentence(error: Exception) -> str | None:
    """What is wrong, as a sentence; None for an exception that is a fault of this program."""
    if _is_out_of_memory(error):
        return "memory ran out; try a smaller model or a smaller -c, or raise the limit (ulimit -v)"
    if isinstance(error, OSError):
        return _system_sentence(error)
    if isinstance(error, ModuleNotFoundError):
        return _missing_package_sentence(error)
    if getattr(error, "exit_code", None) is None:
        return None
    return flag_sentence(error)


def flag_sentence(error: Exception, line_fields: Mapping[str, str] | None = None) -> str:
    """Return what an error says, with flags in place of Python's parameters in its advice.

    Names and values of the user's are in the problem, which stays as it is. ``line_fields``: what a line of input
    calls a parameter, which takes precedence over the flag.
    """
    from ..common.errors import LogitsmithError

    if not isinstance(error, LogitsmithError) or not error.advice:
        return str(error)
    return f"{error.problem}; {with_flags(error.advice, line_fields)}"


_FIELDS_OF_LINE = {"chat_template=…": "chat_template", "json_schema_file=…": "json_schema_file"}
"""Names of parameters in lines of a batch; the other parameters are flags of `gen batch`."""


def line_sentence(error: Exception) -> str:
    """Return an error's sentence for the record of a line: advice names fields of the line, otherwise flags."""
    return flag_sentence(error, _FIELDS_OF_LINE)


def with_flags(advice: str, line_fields: Mapping[str, str] | None = None) -> str:
    """Return advice of the packages below with flags, or fields of a line, in place of Python's parameters.

    The advice must hold no names or values of the user's, which might read like a parameter.
    """
    words = {**_FLAGS, **(line_fields or {})}
    names = "|".join(map(re.escape, words))
    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", lambda name: words[name[0]], advice)


def _missing_package_sentence(error: ModuleNotFoundError) -> str | None:
    """The package to install; None for a module of this program."""
    module = (error.name or "").partition(".")[0]
    if module in ("", __name__.partition(".")[0]):
        return None
    package = _PACKAGES_BY_MODULE.get(module, module)
    return f"the Python package {package} is not installed here; pip install {package}"


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether the system gave no memory. Python says so in three ways, one of them for a thread's stack."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
    )


def _system_sentence(error: OSError) -> str:
    """What the system says, in words of ours where it has its own; a file that is read has them already."""
    is_in_words = error.errno is None or error.strerror != os.strerror(error.errno)
    if is_in_words or not isinstance(error.filename, str):
        return f"{error.filename or 'output'}: {error.strerror}"
    from ..common.files import write_problem

    return f"{error.filename}: {write_problem(error, Path(error.filename))}"


_SINKS: list[TextIO] = []
"""What stands in for closed streams; it stays open as long as the process lives."""


class ClosedStdout(io.TextIOBase):
    """In place of a stdout that is closed: to write to it is a failure."""

    def write(self, _text: str) -> NoReturn:
        """Raise ``OSError``."""
        raise OSError(errno.EBADF, "it is closed", "stdout")


def prepare_streams() -> None:
    """Make stdout and stderr take any text: UTF-8 whatever the locale.

    What is written to a closed stderr is lost. A closed stdout becomes a `ClosedStdout`.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # It takes the free number, too: a file that is opened later must not get what is meant for a stream.
            sink = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            setattr(sys, name, ClosedStdout() if name == "stdout" else sink)
            _SINKS.append(sink)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def require_stdout() -> None:
    """Raise ``OSError`` if stdout is closed, before work is done for nothing."""
    if isinstance(sys.stdout, ClosedStdout):
        sys.stdout.write("")


def fail(message: str, exit_code: int = FAILED) -> NoReturn:
    """Print what is wrong on stderr and end the command."""
    print_message(f"gen: {message}")
    raise typer.Exit(exit_code)


def end_open_line(text: str) -> None:
    """End the line of a text on stdout, before a message that would continue the line on the same screen or file.

    The renderer of the text ends the line on a terminal. ``text``: what was written to stdout.
    """
    if not text or text.endswith("\n") or sys.stdout.isatty():
        return
    try:
        is_in_one_place = sys.stderr.isatty() or os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # a stream without a file
        is_in_one_place = False
    if is_in_one_place:
        print(file=sys.stderr)


def exit_after_abort(reason: str) -> NoReturn:
    """End the process at once: llama.cpp is about to abort it, and no other Python code may run."""
    erase_bar()
    print_message(f"gen: llama.cpp gave up: {reason.strip()}")
    sys.stderr.flush()
    os._exit(FAILED)


def print_note(message: str) -> None:
    """Print a note on stderr."""
    print_message(f"gen: note: {message}")


def print_message(line: str) -> None:
    """Print a line on stderr. Names of files and the texts of a GGUF are data: a terminal must not obey them.

    On a terminal, a line that is too long is divided between words.
    """
    from .render.run import terminal_safe

    safe = terminal_safe(line, sys.stderr)
    if sys.stderr.isatty():
        safe = "\n".join(_wrapped(part) for part in safe.split("\n"))
    print(safe, file=sys.stderr)


def _wrapped(line: str) -> str:
    import shutil
    from textwrap import fill

    return fill(line, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)


_ERASE_LINE, _ERASE_LINE_ABOVE, _SHOW_CURSOR = b"\r\x1b[2K", b"\x1b[1A\x1b[2K", b"\x1b[?25h"
_visible: list[Callable[[], int]] = []
"""The bars that are shown now: functions that return how many lines they have."""


@contextmanager
def visible_bar(count_lines: Callable[[], int] = lambda: 1) -> Iterator[None]:
    """While inside, a bar is on the terminal; ``count_lines``: how many lines it has."""
    _visible.append(count_lines)
    try:
        yield
    finally:
        _visible.remove(count_lines)


def erase_bar() -> None:
    """Erase the bar and show the cursor again, if a bar is on the terminal. Called before ``os._exit``."""
    if _visible:
        lines_above = max(count_lines() for count_lines in _visible) - 1
        erased = _ERASE_LINE + lines_above * _ERASE_LINE_ABOVE + _SHOW_CURSOR
        with suppress(OSError, ValueError, AttributeError):
            os.write(sys.__stderr__.fileno(), erased)  # type: ignore[union-attr]
