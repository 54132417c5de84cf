"""`gen inspect`: a look at a run that was written as jsonl."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import typer

from . import flags as o
from .errors import fail, reported


def inspect(file: o.StreamFile = None, top: o.Alternatives = None, source: o.InspectFrom = None) -> None:
    """Show a run of gen --format jsonl: its tokens tinted by probability, their surprise and entropy.

    Reads along while a run is written: gen "..." --format jsonl | gen inspect
    """
    with reported():
        from ..logprobs import StreamError, read_stream
        from .render.inspection import show

        with _opened(file) as lines:
            try:
                show(read_stream(lines), top, None if source is None else source.value)
            except StreamError as error:
                fail(f"{file or 'stdin'}: {error}")


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
    yield sys.stdin.buffer
