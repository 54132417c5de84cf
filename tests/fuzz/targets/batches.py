"""What `gen batch` reads: requests as JSON lines and as CSV, and its own results when it goes on."""

from __future__ import annotations

import io
from dataclasses import replace

from logitsmith.common.journal import JournalError
from logitsmith.grammars import GrammarError
from logitsmith.jobs.journal import ResultJournal
from logitsmith.jobs.lines import InvalidLineError, PromptTemplate, read_csv_lines, read_json_lines
from logitsmith.presets import PresetError
from logitsmith.requests.lines import find_request_id, read_request_line
from logitsmith.requests.resolve import RequestDefaults, RequestResolver
from logitsmith.samplers import SamplingError, build

from ..target import Target
from .files import contents, file


def _request(content: object, number: int) -> None:
    find_request_id(content)
    if isinstance(content, InvalidLineError):
        raise content
    asked = read_request_line(content, number).asked
    resolver = RequestResolver(RequestDefaults(), {}, lambda _: None)
    settings = resolver.settings(replace(asked, preset=None), [])
    build(settings.steps, seed=1)
    resolver.grammar(settings)


def json_lines(data: bytes) -> None:
    """Requests, one a line; a wrong one does not end the others."""
    first: Exception | None = None
    for line in read_json_lines(io.BytesIO(data)):
        try:
            _request(line.content, line.number)
        except (InvalidLineError, PresetError, SamplingError, GrammarError) as error:
            first = first or error
    if first:
        raise first


def csv_lines(data: bytes) -> None:
    """The first line is a template, the others are CSV."""
    template, _, rows = data.partition(b"\n")
    for line in read_csv_lines(io.BytesIO(rows), PromptTemplate(template.decode(errors="surrogateescape"))):
        if not isinstance(line.content, InvalidLineError):
            _request(line.content, line.number)


def journal(data: bytes) -> None:
    """Results to go on with. Nothing is lost but a torn last line."""
    for is_openai in (False, True):
        path = file("results.jsonl", data)
        try:
            ResultJournal(path, should_resume=True, is_openai=is_openai).close()
        except JournalError:
            assert path.read_bytes() == data
            if is_openai:
                raise
            continue
        kept = path.read_bytes()
        assert data.startswith(kept)
        assert kept == data[: data.rfind(b"\n") + 1]


RESULTS = [
    *contents("tests/recorded/inputs/torn-results.jsonl", "tests/recorded/inputs/wrong/results.jsonl"),
    b'{"id": "a", "line": 1, "seed": 1, "text": "x", "usage": {}, "error": null}\n'
    b'{"id": "b", "line": 2, "error": {"code": "c", "message": "m", "line": 2, "digest": "d"}}\n',
    b'{"id": "batch_req_1", "custom_id": "a", "response": {"status_code": 200, "body": {}}, "error": null}\n',
]

TARGETS = (
    Target(
        "batch lines",
        json_lines,
        (InvalidLineError, PresetError, SamplingError, GrammarError),
        contents(
            "tests/recorded/inputs/*requests.jsonl",
            "tests/recorded/inputs/openai.jsonl",
            "tests/recorded/inputs/wrong/requests.jsonl",
        ),
        [
            b'"prompt": ',
            b'"messages": ',
            b'"set": ',
            b'"chain": ',
            b'"grammar": ',
            b'"json_schema": ',
            b'"body": ',
            b'"custom_id": ',
            b'"stop": ',
            b'"logprobs": ',
        ],
    ),
    Target(
        "csv",
        csv_lines,
        (InvalidLineError,),
        [
            b"Say {text}!\n" + data
            for data in contents("tests/recorded/inputs/*.csv", "tests/recorded/inputs/wrong/*.csv")
        ]
        + [b'{a} {{b}}\na,id\n1,2\n"x ""y""\nz",3\n'],
        [b"{a}", b"{", b"}", b"{{", b",", b'"', b"\r\n", b"\n", b"id", b"custom_id", b"text"],
    ),
    Target(
        "journals",
        journal,
        (JournalError,),
        RESULTS,
        [b'{"id": ', b'"error": ', b'"line": ', b'"digest": ', b'"text": ', b'"response": ', b"\n"],
    ),
)
