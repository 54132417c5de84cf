"""`gen inspect`: a look at a run that was written as jsonl."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import typer

from ..errors import FAILED, fail, report_failures, say
from ..options import flags as o

_MOST = 20
"""How many wrong lines are told of."""


def inspect(file: o.StreamFile = None, top: o.Alternatives = None, source: o.InspectFrom = None) -> None:
    """Show a run of gen --format jsonl: its tokens tinted by probability, their surprise and entropy.

    Reads along while a run is written: gen "..." --format jsonl | gen inspect
    """
    with report_failures():
        from ...logprobs import StreamError, read_stream
        from ..render.inspection import show

        problems: list[StreamError] = []
        with _opened(file) as lines:
            found = show(read_stream(lines, problems.append), top, None if source is None else source.value)
        name = "stdin" if file is None or str(file) == "-" else str(file)
        for problem in problems[:_MOST]:
            say(f"gen: {name}: {problem}")
        if len(problems) > _MOST:
            say(f"gen: {name}: and {len(problems) - _MOST:,} further lines that are no events")
        if problems:
            raise typer.Exit(FAILED)
        if not found:
            fail(f"{name}: there is no run in it")


@contextmanager
def _opened(file: o.StreamFile) -> Iterator[BinaryIO]:
    if file is not None and str(file) != "-":
        with file.open("rb") as stream:
            yield stream
        return
    if sys.stdin is None or (file is None and sys.stdin.isatty()):
        raise typer.BadParameter(
            "there is no run: give a file, or pipe one in (gen ... --format jsonl | gen inspect)"
        )
    # Ctrl-C is for the one that writes; it then ends the stream in order.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield sys.stdin.buffer
    finally:
        signal.signal(signal.SIGINT, before)
