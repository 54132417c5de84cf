"""Recorded runs: what `gen inspect` reads."""

from __future__ import annotations

import contextlib
import io
import re

from logitsmith.cli.render.inspection import RunPrinter
from logitsmith.cli.render.trace import show_token
from logitsmith.logprobs import RecordedTokenLine, StreamError, read_stream
from logitsmith.logprobs.recorded import split_runs
from logitsmith.logprobs.report import page
from logitsmith.logprobs.report.run_data import RunReader

from ..target import Target
from .files import contents

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a terminal would obey instead of showing it."""


def recorded(data: bytes) -> None:
    """A stream of jsonl: all of its events are shown, traces and a page too; each wrong line has its number."""
    problems: list[StreamError] = []
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()):
        for run in split_runs(read_stream(io.BytesIO(data), problems.append)):
            events = list(run)
            RunPrinter(3, None).show(events)
            for event in events:
                if isinstance(event, RecordedTokenLine) and event.trace is not None:
                    show_token(event, event.trace, 0)
            packed = RunReader("run", None).read(events)
            assert packed is not None
            assert page([packed]).startswith("<!doctype html>")
    assert not OBEYED.search(shown.getvalue())
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
            b'"trace": {"stages": [{"name": "model", "kept": 2}], "candidates": []}',
            b'"trace": {"stages": [{"name": "\\u001b[2J", "kept": 1, "note": "\\u009b"}], "candidates": []}',
            b'"tokens": [',
            b'"id": "a", "line": 1, ',
        ],
    ),
)
