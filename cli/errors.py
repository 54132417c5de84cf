"""Every named failure becomes one sentence on stderr and an exit code, here and nowhere else."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130

# By name, so that a command need not import a room (and llama.cpp with it) only to catch its exception.
_CODES = {
    "ModelError": FAILED,
    "RecoverError": FAILED,
    "SamplingError": FAILED,
    "StepError": BAD_USAGE,
    "PresetError": BAD_USAGE,
    "GrammarError": BAD_USAGE,
    "WrongLineError": FAILED,
}


@contextmanager
def reported() -> Iterator[None]:
    """Turn the rooms' exceptions into a message and an exit code: 1 a failure, 2 bad usage, 130 Ctrl-C.

    A closed pipe (`gen … | head -1`) ends quietly, with code 0.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain at exit when it flushes what can no longer be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        fail(f"{error.filename or 'output'}: {error.strerror}")
    except Exception as error:
        code = _CODES.get(type(error).__name__)
        if code is None:
            raise
        fail(str(error), code)


def prepare_streams() -> None:
    """Make the streams writable for any text: UTF-8 whatever the locale, and a sink where one is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            sink = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            setattr(sys, name, sink)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Say what is wrong on stderr and leave."""
    say(f"gen: {message}")
    raise typer.Exit(code)


def give_up(reason: str) -> NoReturn:
    """Leave at once, since llama.cpp is about to end the process; nothing may run after it but this."""
    say(f"gen: llama.cpp gave up: {reason.strip()}")
    sys.stderr.flush()
    os._exit(FAILED)


def note(message: str) -> None:
    """Say something on stderr and go on."""
    say(f"gen: note: {message}")


def say(line: str) -> None:
    """Print a line on stderr; names of files and what a GGUF says of itself are data: a terminal obeys none."""
    from .render.text import fit

    print(fit(line, sys.stderr), file=sys.stderr)
