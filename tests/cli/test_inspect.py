"""`gen inspect`: runs read back, whole and cut off."""

import json

import pytest

RUN = [
    {"event": "start", "model": "m\x1b[2J", "seed": 3},
    {"event": "prompt", "index": 0, "id": 1, "token": "Hi", "bytes": [72, 105], "logprob": None, "text": "Hi"},
    {
        "event": "token",
        "index": 0,
        "id": 2,
        "token": " a",
        "bytes": [32, 97],
        "logprobs_from": "model",
        "logprob": -0.5,
        "entropy": 1.5,
        "top_logprobs": [{"id": 2, "token": " a", "bytes": [32, 97], "logprob": -0.5}],
        "text": " a",
        "chain": {"logprob": None, "entropy": 0.25, "top_logprobs": []},
    },
    {
        "event": "token",
        "index": 1,
        "id": 3,
        "token": "\x1b[31m",
        "bytes": [27, 91],
        "logprobs_from": "model",
        "logprob": -1.5,
        "entropy": 0.5,
        "top_logprobs": [{"id": 9, "token": "b", "bytes": [98], "logprob": -0.25}],
        "text": "\x1b[",
    },
    {"event": "done", "finish_reason": "length"},
]


@pytest.fixture
def stream(home):
    path = home / "work" / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in RUN))
    return path


def test_text_and_means(gen, stream):
    out = gen("inspect", "run.jsonl").out
    assert out.startswith("Hi a")
    assert "\x1b" not in out
    assert "3 tokens (length), m\u241b[2J, seed 3, logprobs of the model" in out
    assert "surprise  1.000 nats (1.443 bits), perplexity 2.718" in out
    assert "entropy   1.000 nats" in out
    assert gen("inspect", stdin=stream.read_bytes()).out == out


def test_a_table(gen, stream):
    rows = [line.split() for line in gen("inspect", "run.jsonl", "--top", "1").out.splitlines()]
    assert ["1", "'", "a'", "0.6065", "0.500", "1.500", "'", "a'", "0.607"] in rows
    assert ["2", r"'\x1b['", "0.2231", "1.500", "0.500", "'b'", "0.779"] in rows
    of_chain = gen("inspect", "run.jsonl", "--top", "0", "--logprobs-from", "chain").out
    assert "0.250" in of_chain
    assert "logprobs of the chain" in of_chain


def test_cut_off(gen, stream):
    data = stream.read_bytes()
    half = gen("inspect", stdin=data[: data.rindex(b"done") - 5])
    assert "3 tokens (cut off)" in half.out
    assert "2 tokens (cut off)" in gen("inspect", stdin=data[: data.rindex(b'"entropy"')]).out


WRONG = {
    "no JSON": (b'{"event": "start"}\nfoo\n', "stdin: line 2: not JSON"),
    "nothing": (b"", "stdin: there is no run in it"),
    "one word": (b"garbage", "stdin: line 1: not JSON"),
    "a beginning": (b'{"event": "sta', "stdin: there is no run in it"),
    "other JSON": (b'{"a": 1}\n', "line 1: it is no event of a jsonl stream"),
    "a wrong field": (b'{"event": "token", "bytes": [300], "logprob": 0}\n', "line 1: "),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_run(gen, data, message):
    assert message in gen("inspect", stdin=data, code=1).err


def test_good_lines_come_out_beside_wrong_ones(gen, stream):
    lines = stream.read_bytes().splitlines(keepends=True)
    result = gen(
        "inspect", "--top", "0", stdin=b"\xef\xbb\xbf" + b"".join([*lines[:2], b"foo\n", *lines[2:]]), code=1
    )
    assert "3 tokens (length)" in result.out
    assert "stdin: line 3: not JSON" in result.err


def test_numbers_beyond_what_can_be_added(gen):
    far = '{"event": "token", "bytes": [65], "logprob": -1e308, "entropy": 1e308, "text": "A"}\n'
    assert "perplexity inf" in gen("inspect", stdin=far * 2).out
    assert "perplexity inf" in gen("inspect", stdin=far.replace("-1e308", "-800")).out


def test_a_source_that_the_run_has_not(gen):
    run = '{"event": "token", "bytes": [65], "logprob": -1, "text": "A", "logprobs_from": "model"}\n'
    assert "this run has no logprobs of the chain" in gen("inspect", "--logprobs-from", "chain", stdin=run).err


def test_what_gen_writes_is_read(gen):
    run = gen("The sea was", "-t", "1", "-n", "3", "--format", "jsonl", "--logprobs", "2", "--echo").out
    out = gen("inspect", "--top", "2", stdin=run).out
    assert out.startswith("The sea was")
    assert "prompt    surprise" in out
    assert "written   entropy" in out
    scored = gen("score", "The sea was calm.", "-t", "1", "--format", "jsonl").out
    assert gen("inspect", stdin=scored).out.startswith("The sea was calm.")


def test_no_such_file(gen):
    assert "none.jsonl: there is no such file" in gen("inspect", "none.jsonl", code=1).err


def test_color_is_written_when_it_is_asked_for(gen):
    run = gen("The sea was", "-n", "2", "--seed", "7", "--format", "jsonl", "--logprobs", "0").out
    plain = gen("inspect", stdin=run).out
    assert "\x1b" not in plain
    assert gen("inspect", "--color", "never", stdin=run).out == plain
    assert gen("inspect", "--color", "always", stdin=run).out.startswith("\x1b[30;48;2;")
