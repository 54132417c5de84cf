"""Recorded runs: what `gen inspect` reads."""

from __future__ import annotations

import contextlib
import io

from logitsmith.cli.render.inspection import RunPrinter
from logitsmith.cli.render.report.report_page import page
from logitsmith.cli.render.report.run_data import RunReader
from logitsmith.logprobs import StreamError, read_stream, split_runs

from ..target import Target
from .files import contents


def recorded(data: bytes) -> None:
    """A stream of jsonl: all of its events are shown, on a page too, and each wrong line has its number."""
    problems: list[StreamError] = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for run in split_runs(read_stream(io.BytesIO(data), problems.append)):
            events = list(run)
            RunPrinter(3, None).show(events)
            packed = RunReader("run", None).read(events)
            assert packed is not None
            assert page([packed]).startswith("<!doctype html>")
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
            b'"tokens": [',
            b'"id": "a", "line": 1, ',
        ],
    ),
)
