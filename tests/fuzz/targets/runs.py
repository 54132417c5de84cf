"""Recorded runs: what `gen inspect` and `gen detect` read."""

from __future__ import annotations

import contextlib
import io
import re

from logitsmith.cli.render.inspection import RunPrinter
from logitsmith.cli.render.trace import show_token
from logitsmith.jobs.detection import WatermarkDetector
from logitsmith.jobs.token_texts import guess_kind, read_token_texts
from logitsmith.logprobs import RecordedTokenLine, StreamError, read_stream
from logitsmith.logprobs.recorded import split_runs
from logitsmith.logprobs.report import page
from logitsmith.logprobs.report.run_data import RunReader
from logitsmith.requests.errors import InvalidLineError
from logitsmith.samplers.methods.synthid import Synthid

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


DETECTOR = WatermarkDetector(Synthid(keys=[3, 1, 4], ngram_len=3))


def detected(data: bytes) -> None:
    """Texts, ids and jsonl for `gen detect`: each text has ids and a p value, each wrong line has its number."""
    kind = guess_kind(data)
    for text in read_token_texts(data, kind, lambda text: [len(word) for word in text.split()]):
        score = DETECTOR.score(text.tokens, text.end_tokens)
        assert score.counted_count <= score.token_count == len(text.tokens)
        assert score.p_value is None or 0 <= score.p_value <= 1


TARGETS = (
    Target(
        "watermarked texts",
        detected,
        (InvalidLineError,),
        [*contents("tests/recorded/inputs/run.jsonl"), b"1 2 3, 4", b"[1, 2]\n[3]", b"The sea was"],
        [
            b'{"event": "token", "id": 7, "text": ""}\n',
            b'{"event": "start", "sample": 1}\n',
            b'{"event": "done", "finish_reason": "stop", "stop": null}\n',
            b'{"id": "a", "tokens": [1, {"id": 2}]}\n',
            b'{"id": "a", "text": "b"}\n',
            b'{"choices": [{"message": {"content": "a"}}]}\n',
            b'"error": {"message": "',
            b"[1, 2]",
        ],
    ),
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
