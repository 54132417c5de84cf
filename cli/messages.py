"""Notes and error messages on stderr. Only this module turns an exception into a message and an exit code.

A process that exits immediately erases the progress bar first. Otherwise the message would continue the bar's
line.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

import typer

from ..common.errors import LogitsmithError, Word
from ..common.extras import extra_of, install_command
from ..common.files import write_problem
from ..common.plugins import PluginWarning
from .text import terminal_safe, wrap_words

# exit codes
FAILED = 1
BAD_USAGE = 2
INTERRUPTED = 130  # after Ctrl-C

# The installed name of each package that differs from the name of its module.
_PACKAGES_BY_MODULE = {"yaml": "pyyaml", "llama_cpp": "llama-cpp-python", "array_api_compat": "array-api-compat"}

# The flag for each `Word` that the advice of a `LogitsmithError` may name, if the command has the flag
FLAGS: Mapping[str, str] = {
    Word.BASIS_FROM_ROWS: "--rows",
    Word.CHAIN: "--chain",
    Word.CHAT_TEMPLATE: "--chat-template",
    Word.CHECKPOINT: "--checkpoint",
    Word.GPU_LAYERS: "-ngl",
    Word.JSON_SCHEMA_FILE: "-jf",
    Word.LORA: "--lora",
    Word.MODEL: "-m",
    Word.MODEL_FILE: "-m FILE.gguf",
    Word.N_CTX: "-c",
    Word.RESUME: "--resume",
    Word.SCHEMA_LENIENT: "--schema-lenient",
    Word.SET: "--set",
    Word.WAIT_FOR_SERVER: "--wait",
}


# what advice says for each `Word`, such as ``--chain``; None: the advice is left out
Words = Mapping[str, str | None]


@contextmanager
def report_failures(find_words: Callable[[], Words] | None = None) -> Iterator[None]:
    """Turn an expected exception into a message on stderr and an exit code."""
    # ``find_words``: returns the words of the command. The code is 1 after a failure, 2 after wrong usage, 130
    # after Ctrl-C. A closed pipe (`gen … | head -1`) ends the command without a message, with code 0.
    try:
        with named_failures(fail, find_words):
            yield
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout at exit, and would print an error about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def named_failures(
    report: Callable[[str, int], object], find_words: Callable[[], Words] | None = None
) -> Iterator[None]:
    """Inside the block, pass the message and the exit code of an expected exception to ``report``."""
    # ``find_words``: see `flag_sentence`. Other exceptions, and the exception of a closed pipe, are raised.
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        sentence = _failure_sentence(error, find_words() if find_words else {})
        if sentence is None:
            raise
        report(sentence, getattr(error, "exit_code", FAILED))


def _failure_sentence(error: Exception, words: Words) -> str | None:
    """Return the message of an expected exception; None for an exception that is a bug of this program."""
    if _is_out_of_memory(error):
        return "memory ran out; try a smaller model or a smaller -c, or raise the limit (ulimit -v)"
    if isinstance(error, OSError):
        return _system_sentence(error)
    if isinstance(error, ModuleNotFoundError):
        return _missing_package_sentence(error)
    return flag_sentence(error, words) if isinstance(error, LogitsmithError) else None


def flag_sentence(error: Exception, words: Words | None = None) -> str:
    """Return the message of an error, whose advice names flags instead of Python parameters."""
    # ``words``: those of a line, of a chat, or of a command, which take precedence over the flags.
    if not isinstance(error, LogitsmithError):
        return str(error)
    return error.sentence({**FLAGS, **(words or {})})


# The field of a batch's line for each `Word`. Other words correspond to flags of `gen batch`.
_FIELDS_OF_LINE: Mapping[str, str] = {
    Word.CHAIN: "chain",
    Word.SET: "set",
    Word.CHAT_TEMPLATE: "chat_template",
    Word.JSON_SCHEMA_FILE: "json_schema_file",
}


def line_sentence(error: Exception) -> str:
    """Return the message of an error for the record of a line. The advice names fields of the line, or flags."""
    return flag_sentence(error, _FIELDS_OF_LINE)


def _missing_package_sentence(error: ModuleNotFoundError) -> str | None:
    """Return a message that names the package to install; None for a module of this program."""
    module = (error.name or "").partition(".")[0]
    if module in ("", __name__.partition(".")[0]):
        return None
    extra = extra_of(module)
    if extra is not None:
        return f"this needs the extra {extra}, which is not installed: {install_command(extra)}"
    package = _PACKAGES_BY_MODULE.get(module, module)
    return f"the Python package {package} is not installed here; pip install {package}"


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out. Python has three exceptions for it, one of them for the stack of a thread."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
    )


def _system_sentence(error: OSError) -> str:
    """Return the message of a system error."""
    # The system's own text is replaced by a clearer one. Code that raises an `OSError` may have its own text.
    has_own_text = error.errno is None or error.strerror != os.strerror(error.errno)
    if has_own_text or not isinstance(error.filename, str):
        return f"{error.filename or 'output'}: {error.strerror}"
    return f"{error.filename}: {write_problem(error, Path(error.filename))}"


# Replacements of closed streams. They are referenced here so that they stay open until the process ends.
_SINKS: list[TextIO] = []


class ClosedStdout(io.TextIOBase):
    """The replacement of a closed stdout. Writing raises ``OSError``."""

    def write(self, _text: str) -> NoReturn:
        """Raise ``OSError``."""
        raise OSError(errno.EBADF, "it is closed", "stdout")


def prepare_streams() -> None:
    """Make stdout and stderr accept any text, as UTF-8 in every locale, and replace closed streams."""
    # Text written to a closed stderr is discarded. A closed stdout becomes a `ClosedStdout`.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # The sink also occupies the free descriptor 1 or 2. Otherwise a file that is opened later would get
            # it, and would receive the output of C code that writes to stdout or stderr.
            sink = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            setattr(sys, name, ClosedStdout() if name == "stdout" else sink)
            _SINKS.append(sink)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def require_stdout() -> None:
    """Raise ``OSError`` if stdout is closed, so that the command fails before it does work."""
    if isinstance(sys.stdout, ClosedStdout):
        sys.stdout.write("")


def fail(message: str, exit_code: int = FAILED) -> NoReturn:
    """Print an error message on stderr, and end the command."""
    print_message(f"gen: {message}")
    raise typer.Exit(exit_code)


def end_open_line(text: str) -> None:
    """Write a newline to stderr if a message would continue a line of stdout in the same file or terminal."""
    # ``text`` was written to stdout. If stdout is a terminal, the renderer of the text has already ended the line.
    if not text or text.endswith("\n") or sys.stdout.isatty():
        return
    try:
        is_same_output = sys.stderr.isatty() or os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # a stream without a file descriptor
        is_same_output = False
    if is_same_output:
        print(file=sys.stderr)


def exit_after_abort(reason: str) -> NoReturn:
    """Exit immediately, because llama.cpp is about to abort the process. No other Python code may run."""
    erase_bar()
    print_message(f"gen: llama.cpp gave up: {reason.strip()}")
    sys.stderr.flush()
    os._exit(FAILED)


@contextmanager
def plugin_notes() -> Iterator[None]:
    """Inside the block, warnings about plug-ins are printed as notes."""
    with warnings.catch_warnings():
        show_warning = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, PluginWarning):
                print_note(str(message))
            else:
                show_warning(message, category, *place, **more)

        warnings.showwarning = show
        yield


def print_note(message: str) -> None:
    print_message(f"gen: note: {message}")


def print_message(line: str) -> None:
    """Print a line on stderr, wrapped between words on a terminal."""
    # Control characters are escaped, because names of files and strings of a GGUF could contain terminal commands.
    safe = terminal_safe(line, sys.stderr)
    if sys.stderr.isatty():
        safe = "\n".join(wrap_words(safe, shutil.get_terminal_size().columns))
    print(safe, file=sys.stderr)


_ERASE_LINE = b"\r\x1b[2K"
_ERASE_LINE_ABOVE = b"\x1b[1A\x1b[2K"
_SHOW_CURSOR = b"\x1b[?25h"
# The progress bars that are shown now, each as a function that returns the number of its lines.
_visible_bars: list[Callable[[], int]] = []


@contextmanager
def visible_bar(count_lines: Callable[[], int] = lambda: 1) -> Iterator[None]:
    """Inside the block, a progress bar is on the terminal. ``count_lines`` returns the number of its lines."""
    _visible_bars.append(count_lines)
    try:
        yield
    finally:
        _visible_bars.remove(count_lines)


def erase_bar() -> None:
    """Erase the progress bar and show the cursor again, if there is a bar. Called before ``os._exit``."""
    if _visible_bars:
        lines_above = max(count_lines() for count_lines in _visible_bars) - 1
        escape_sequences = _ERASE_LINE + lines_above * _ERASE_LINE_ABOVE + _SHOW_CURSOR
        with suppress(OSError, ValueError, AttributeError):
            os.write(sys.__stderr__.fileno(), escape_sequences)  # type: ignore[union-attr]
