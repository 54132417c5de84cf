"""Recorded runs: what `gen inspect` reads."""

from __future__ import annotations

import contextlib
import io

from logitsmith.cli.render.inspection import show
from logitsmith.logprobs import StreamError, read_stream

from ..target import Target
from .files import contents


def recorded(data: bytes) -> None:
    """A stream of jsonl: all of its events are shown, and each wrong line has its number."""
    problems: list[StreamError] = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        show(read_stream(io.BytesIO(data), problems.append), 3, None)
    assert all(str(problem).startswith("line ") for problem in problems)
    if problems:
        raise problems[0]


TARGETS = (
    Target(
        "recorded runs",
        recorded,
        (StreamError,),
        contents("tests/recorded/inputs/run.jsonl", "tests/recorded/inputs/wrong/*run.jsonl"),
        [
            b'"event": ',
            b'"token"',
            b'"start"',
            b'"done"',
            b'"prompt"',
            b'"logprob": ',
            b'"bytes": ',
            b'"chain": ',
            b'"entropy": ',
        ],
    ),
)
