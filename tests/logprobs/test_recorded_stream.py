"""A jsonl stream read back: complete, incomplete, and input that is not a stream."""

import io
import json
from contextlib import suppress
from math import isfinite

import pytest
from hypothesis import example, given, strategies as st
from logitsmith.common.strict_json import encode_json, json_line
from logitsmith.logprobs import RecordedDone, RecordedStart, RecordedTokenLine, StreamError, read_stream

from ..traced_runs import jsonl, traced_events
from .steps import NO_NUMBERS, STEPS, TEXTS, likely, prompt_line, said, step, token_line

START = json_line(
    {"event": "start", "model": "tiny 😀", "seed": 7, "chain": [{"greedy": {}}], "logprobs": {"from": ["model"]}}
)
DONE = json_line({"event": "done", "finish_reason": "length", "text": "é中", "usage": {"total_tokens": 3}})
RICH = step(
    "é中".encode() + b"\xf0",
    said(-0.5, ("é".encode(), -0.5), (b"\x80", -1e-7), named=likely((b"no", None)), entropy=1.25, row=b"\0\0\0\0"),
    said(None, ("é".encode(), -0.25), source="chain", entropy=0.5),
    text='é"中\n',
)
LINES = {
    "start": START,
    "prompt": prompt_line(step(b"a")),
    "token": token_line(step(b"b", said(-1e-7, (b"b", -1e-7), entropy=1e-6))),
    "token of both": token_line(RICH),
    "done": DONE,
}

GOOD = token_line(step(b"a", said(-0.5))).encode()


def read(text):
    """The events of a stream that stands in a file."""
    return [*read_stream(io.BytesIO(text if isinstance(text, bytes) else text.encode()))]


def number(value):
    return value if value is not None and isfinite(value) else None


def token_of(**fields):
    return encode_json({"event": "token", "bytes": [97], "logprob": -0.5, **fields}).encode()


def assert_same(seen, distribution):
    """Seen is what was said of a distribution."""
    assert seen.logprob == number(distribution.logprob)
    assert seen.entropy == number(distribution.entropy)
    assert [(bytes(token.data), token.logprob) for token in seen.top_logprobs] == [
        (token.data, number(token.logprob)) for token in distribution.top
    ]


@given(st.lists(st.tuples(st.sampled_from([prompt_line, token_line]), STEPS), max_size=4), TEXTS)
def test_what_is_written_is_read_back(written, text):
    lines = [
        json_line({"event": "start", "model": text, "seed": 3}),
        *(write(one) for write, one in written),
        json_line({"event": "done", "finish_reason": "stop", "text": text}),
    ]
    start, *tokens, done = read("".join(lines))
    assert (type(start), start.model, start.seed) == (RecordedStart, text, 3)
    assert (type(done), done.finish_reason, done.model_extra) == (RecordedDone, "stop", {"text": text})
    assert len(tokens) == len(written)
    for seen, (write, one) in zip(tokens, written, strict=True):
        assert type(seen) is RecordedTokenLine
        assert seen.event == ("token" if write is token_line else "prompt")
        assert (bytes(seen.data), seen.text) == (one.data, one.text)
        told = {distribution.source: distribution for distribution in one.distributions}
        assert seen.logprobs_from == (one.distributions[0].source if one.distributions else None)
        for source in ("model", "chain"):
            assert (seen.distribution(source) is None) == (
                source not in told and (bool(told) or source != "model")
            )
            if source in told:
                assert_same(seen.distribution(source), told[source])


def test_the_chain_s_is_never_taken_for_the_model_s():
    (seen,) = read(token_of(logprobs_from="chain", chain={"logprob": -0.25}))
    assert seen.distribution("model") is None
    assert seen.distribution("chain").logprob == -0.5


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_no_number_is_read_as_none(value):
    (seen,) = read(token_line(step(b"a", said(value, (b"b", value), entropy=value))))
    assert (seen.logprob, seen.entropy, seen.top_logprobs[0].logprob) == (None, None, None)


@pytest.mark.parametrize("last", LINES.values(), ids=LINES)
def test_a_last_line_cut_off_anywhere_ends_the_stream(last):
    before = START + GOOD.decode() + token_line(RICH)
    events = read(before)
    assert len(events) == 3
    data = last.encode()
    for cut in range(len(data) - 1):
        assert read(before.encode() + data[:cut]) == events, data[:cut]


@pytest.mark.parametrize("last", LINES.values(), ids=LINES)
def test_a_last_line_without_its_line_end_is_whole(last):
    assert read(START + last.rstrip("\n")) == read(START + last)
    assert len(read(START + last)) == 2


@given(st.lists(STEPS, min_size=1, max_size=3), st.data())
def test_a_stream_cut_off_anywhere_is_read_as_far_as_it_goes(steps, data):
    lines = [START, *map(token_line, steps), DONE]
    whole = "".join(lines).encode()
    cut = data.draw(st.integers(0, len(whole)))
    found = read(whole[:cut])
    ends = [len("".join(lines[: count + 1]).encode()) - 1 for count in range(len(lines))]
    assert found == read(whole)[: sum(end <= cut for end in ends)]


def test_events_come_before_a_wrong_line_is_read():
    stream = read_stream([START.encode(), GOOD, b"{]\n"])
    assert isinstance(next(stream), RecordedStart)
    assert isinstance(next(stream), RecordedTokenLine)
    with pytest.raises(StreamError, match="line 3: "):
        next(stream)


# Each row: a line that is not an event, and the error message.
WRONG = {
    "no JSON": (b"hello", "not JSON"),
    "cut off": (GOOD[:20], "not JSON"),
    "cut off and gone on with": (GOOD[:20] + START.encode().strip(), "not JSON"),
    "two events": (GOOD.strip() * 2, "not JSON"),
    "a trailing comma": (GOOD.strip() + b",", "not JSON"),
    "bytes that are not UTF-8": (b'{"event": "\xff"}', "not JSON"),
    "UTF-16": ('{"event": "done"}'.encode("utf-16"), "not JSON"),
    "a logprob that JSON lacks": (b'{"event": "token", "bytes": [97], "logprob": NaN}', "logprob: nan"),
    "an entropy that JSON lacks": (
        b'{"event": "token", "bytes": [97], "logprob": -1, "entropy": -Infinity}',
        "entropy: -inf",
    ),
    "null": (b"null", "it is not an event of a jsonl stream"),
    "a number": (b"3", "it is not an event of a jsonl stream"),
    "a text": (b'"token"', "it is not an event of a jsonl stream"),
    "a list": (b"[]", "it is not an event of a jsonl stream"),
    "an empty object": (b"{}", "it is not an event of a jsonl stream"),
    "another format": (b'{"id": "cmpl-1", "object": "text_completion"}', "it is not an event of a jsonl stream"),
    "another event": (b'{"event": "ping"}', "it is not an event of a jsonl stream"),
    "an event that is not a string": (b'{"event": 3}', "it is not an event of a jsonl stream"),
    "a server-sent event": (b"data: [DONE]", "not JSON"),
    "no bytes": (b'{"event": "token", "logprob": -1}', "bytes: the field is missing"),
    "no logprob": (b'{"event": "prompt", "bytes": []}', "logprob: the field is missing"),
    "a byte too large": (token_of(bytes=[0, 256]), "bytes[1]: "),
    "a byte below 0": (token_of(bytes=[-1]), "bytes[0]: "),
    "bytes as text": (token_of(bytes="a"), "bytes: "),
    "a probability above 1": (token_of(logprob=0.5), "logprob: "),
    "a logprob that is a text": (token_of(logprob="likely"), "logprob: "),
    "another source": (token_of(logprobs_from="server"), "logprobs_from: "),
    "a likely token without bytes": (
        token_of(top_logprobs=[{"bytes": [], "logprob": -1}, {"logprob": -1}]),
        "top_logprobs[1].bytes: the field is missing",
    ),
    "a likely token above 1": (
        token_of(top_logprobs=[{"bytes": [], "logprob": 1}]),
        "top_logprobs[0].logprob: ",
    ),
    "the chain's above 1": (token_of(chain={"logprob": 1}), "chain.logprob: "),
    "an entropy that is a text": (token_of(entropy="high"), "entropy: "),
    "a model that is a number": (b'{"event": "start", "model": 3}', "model: "),
    "a seed that is a text": (b'{"event": "start", "seed": "x"}', "seed: "),
    "a reason that is a number": (b'{"event": "done", "finish_reason": 3}', "finish_reason: "),
}


@pytest.mark.parametrize(("line", "problem"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_in_the_middle_is_named(line, problem):
    with pytest.raises(StreamError) as error:
        [*read_stream([START.encode(), b"\n", GOOD, line + b"\n", GOOD])]
    said_of_it = str(error.value)
    assert said_of_it.startswith(f"line 4: {problem}")
    assert "\n" not in said_of_it
    assert "pydantic" not in said_of_it


WHOLE_BUT_WRONG = {name: row for name, row in WRONG.items() if row[1] != "not JSON"}


@pytest.mark.parametrize(("line", "problem"), WHOLE_BUT_WRONG.values(), ids=WHOLE_BUT_WRONG)
def test_a_whole_line_that_is_wrong_is_named_at_the_end_too(line, problem):
    with pytest.raises(StreamError, match=r"^line 2: ") as error:
        [*read_stream([START.encode(), line])]
    assert problem in str(error.value)


EMPTY_LINES = {"a newline": b"\n", "spaces": b"  \t\n", "a carriage return": b"\r\n", "nothing": b""}


@pytest.mark.parametrize("line", EMPTY_LINES.values(), ids=EMPTY_LINES)
def test_blank_lines_are_skipped(line):
    first, second = read_stream([line, START.encode(), line, line, DONE.encode(), line])
    assert (type(first), type(second)) == (RecordedStart, RecordedDone)


@pytest.mark.parametrize("stream", [b"", b"\n\n", b" "], ids=repr)
def test_an_empty_stream_has_no_events(stream):
    assert read(stream) == []


def test_line_ends_of_windows():
    events = read(START + GOOD.decode() + DONE)
    assert read((START + GOOD.decode() + DONE).replace("\n", "\r\n")) == events
    assert len(events) == 3


def test_a_separator_inside_a_text_ends_no_line():
    text = "a\u2028b\x85c\x1cd"
    (seen,) = read(token_line(step(text.encode(), text=text)))
    assert (seen.text, bytes(seen.data).decode()) == (text, text)


def test_fields_that_are_not_read_do_no_harm():
    (seen,) = read(token_of(index=3, id=7, token="a", row="AAAA", logprob_of=[], later={"x": [1]}))
    assert (bytes(seen.data), seen.logprob, seen.text) == (b"a", -0.5, "")


def test_the_ends_keep_what_they_hold():
    start, done = read(START + DONE)
    assert start.model_extra == {"chain": [{"greedy": {}}], "logprobs": {"from": ["model"]}}
    assert (start.model, start.seed) == ("tiny 😀", 7)
    assert done.model_extra == {"text": "é中", "usage": {"total_tokens": 3}}


def test_the_ends_need_nothing_but_their_name():
    start, done = read('{"event": "start"}\n{"event": "done"}\n')
    assert (start.model, start.seed, done.finish_reason) == ("?", None, None)


@pytest.mark.parametrize("value", [0.0, 1e-4, 1e-3], ids=str)
def test_a_logprob_may_round_to_a_little_above_0(value):
    (seen,) = read(token_of(logprob=value))
    assert seen.logprob == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-300, 300) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NAMES = ["bytes", "logprob", "top_logprobs", "entropy", "text", "logprobs_from", "chain", "model", "seed"]
EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from(["start", "prompt", "token", "done"]) | JSON},
    optional=dict.fromkeys(NAMES, JSON),
)


@given(
    st.lists(st.binary(max_size=20) | (JSON | EVENTS).map(lambda value: json.dumps(value).encode()), max_size=4)
)
@example([b"[" * 100_000])
@example([b'{"event": "done", "finish_reason": ' + b"1" * 10_000 + b"}"])
def test_any_lines_are_read_or_refused(lines):
    events = []
    with suppress(StreamError):
        events.extend(read_stream(io.BytesIO(b"\n".join(lines))))
    assert all(isinstance(event, RecordedStart | RecordedTokenLine | RecordedDone) for event in events)


def test_a_trace_is_read():
    line = traced_events(1)[1]
    trace = read(jsonl([line]))[0].trace
    written = line["trace"]
    assert [stage.model_dump(exclude={"roll"}) for stage in trace.stages] == written["stages"]
    assert [candidate.model_dump(by_alias=True) for candidate in trace.candidates] == [
        {key: value for key, value in candidate.items() if key != "token"} for candidate in written["candidates"]
    ]
    assert trace.draw.model_dump() == written["draw"]
    assert trace.candidate(line["id"]).data == line["bytes"]
    assert trace.candidate(-1) is None
    assert not trace.forced


def test_the_top_candidate_of_a_trace_and_whether_a_stage_dropped_it():
    for line in traced_events(40)[1:-1]:
        trace = read(jsonl([line]))[0].trace
        first = max(line["trace"]["candidates"], key=lambda candidate: candidate["probs"][0])
        fallen = trace.dropped_top_candidate()
        assert trace.top_candidate().id == first["id"]
        assert (None if fallen is None else fallen.dropped_by) == first["dropped_by"]


WRONG_TRACES = {
    "no stages": ({"stages": []}, "trace.stages: "),
    "a short column": (
        {"candidates": [{"id": 1, "bytes": [], "logits": [0], "probs": []}]},
        "candidate 1 does not have",
    ),
    "no such stage": (
        {"candidates": [{"id": 1, "bytes": [], "logits": [0], "probs": [1], "dropped_by": 1}]},
        "dropped_by is not the index of a stage",
    ),
    "no object": (5, "trace: 5 is not an object"),
}


@pytest.mark.parametrize(("change", "message"), WRONG_TRACES.values(), ids=WRONG_TRACES)
def test_a_wrong_trace_is_named(change, message):
    whole = {"stages": [{"name": "model", "kept": 2, "entropy": 0.5}], "candidates": [], "draw": None}
    trace = {**whole, **change} if isinstance(change, dict) else change
    line = {"event": "token", "bytes": [65], "logprob": -1, "text": "A", "trace": trace}
    with pytest.raises(StreamError, match=message):
        read(jsonl([line]))


def test_a_line_of_a_batch_is_a_run():
    tokens = [{key: value for key, value in line.items() if key != "event"} for line in traced_events(3)[1:-1]]
    line = {
        "id": "a",
        "line": 1,
        "seed": 4,
        "finish_reason": "length",
        "text": "x",
        "tokens": tokens,
        "error": None,
    }
    start, *lines, done = read(jsonl([line]))
    assert (start.id, start.seed, start.model) == ("a", 4, "?")
    assert [item.id for item in lines] == [item["id"] for item in tokens]
    assert done.finish_reason == "length"


WRONG_BATCH_LINES = {
    "an error": ({"error": {"message": "line 2: no"}}, "line 1: request a has no answer .line 2: no."),
    "no tokens": ({}, "line 1: the answer of a has no tokens; .* --logprobs N"),
    "a wrong token": ({"tokens": [{"bytes": [300], "logprob": 0}]}, r"line 1: tokens\[0\]\.bytes\[0\]: 300 "),
}


@pytest.mark.parametrize(("fields", "message"), WRONG_BATCH_LINES.values(), ids=WRONG_BATCH_LINES)
def test_a_line_of_a_batch_without_tokens_is_named(fields, message):
    with pytest.raises(StreamError, match=message):
        read(jsonl([{"id": "a", "line": 1, **fields}]))


def test_half_of_a_surrogate_pair_is_replaced():
    line = rb'{"event": "token", "bytes": [237, 160, 128], "logprob": -1, "text": "a\ud800b", "id": 3}'
    assert read(line + b"\n")[0].text == "a\ufffdb"
    assert read(line[:-4]) == []
    assert (
        read(rb'{"event": "token", "bytes": [1], "logprob": -1, "text": "\ud83d\ude00"}')[0].text == "\U0001f600"
    )
