"""`gen inspect`: runs read back, whole and cut off."""

import json
import math
import os
import re

import pytest

from ..traced_runs import jsonl, traced_events

pytestmark = pytest.mark.usefixtures("with_pruned_model")

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
    assert ["prompt", "0", "'Hi'", "-", "-", "-"] in rows
    assert ["0", "'", "a'", "0.6065", "0.500", "1.500", "'", "a'", "0.607"] in rows
    assert ["1", r"'\x1b['", "0.2231", "1.500", "0.500", "'b'", "0.779"] in rows
    of_chain = gen("inspect", "run.jsonl", "--top", "0", "--logprobs-from", "chain").out
    assert "0.250" in of_chain
    assert "logprobs of the chain" in of_chain


WRONG = {
    "no JSON": (b'{"event": "start"}\nfoo\n', "line 2: "),
    "nothing": (b"", ""),
    "one word": (b"garbage", ""),
    "a beginning": (b'{"event": "sta', ""),
    "other JSON": (b'{"a": 1}\n', ""),
    "a wrong field": (b'{"event": "token", "bytes": [300], "logprob": 0}\n', ""),
}


@pytest.mark.parametrize(("data", "place"), WRONG.values(), ids=WRONG)
def test_an_input_that_is_not_a_run(gen, data, place):
    assert f"stdin: {place}" in gen("inspect", stdin=data, code=1).err


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


def test_color_is_written_when_it_is_asked_for(gen, stream):
    plain = gen("inspect", "run.jsonl").out
    assert "\x1b" not in plain
    assert gen("inspect", "run.jsonl", "--color", "never").out == plain
    assert TINT.search(gen("inspect", "run.jsonl", "--color", "always").out)


TINT = re.compile(r"\x1b\[([\d;]*?)(30|97);48;2;(\d+);(\d+);(\d+)m")


def test_tints_are_brighter_for_likelier_tokens_and_mark_the_unlikely_ones(gen):
    probabilities = [0.0005, 0.005, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    lines = [
        {"event": "token", "bytes": [65], "logprob": math.log(p), "text": "A", "logprobs_from": "model"}
        for p in probabilities
    ]
    tints = TINT.findall(gen("inspect", "--color", "always", stdin=jsonl(lines)).out)
    assert [styles for styles, *_ in tints] == ["1;4;", "1;4;", "4;", *[""] * 6]
    linear = [[(int(part) / 255) ** 2.2 for part in color] for _, _, *color in tints]
    luminances = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in linear]
    assert luminances == sorted(set(luminances))
    for (_, ink, *_), luminance in zip(tints, luminances, strict=True):
        text = 1.0 if ink == "97" else 0.0
        bright, dark = max(text, luminance), min(text, luminance)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_the_most_surprising_tokens_are_listed(gen):
    events = traced_events(40)
    out = gen("inspect", stdin=jsonl(events)).out
    listed = out[out.index("most surprising") :].splitlines()[3:13]
    order = sorted(enumerate(events[1:-1]), key=lambda item: item[1]["logprob"])[:10]
    assert [int(line.split()[0]) for line in listed] == [index for index, _ in order]
    first = order[0][1]["top_logprobs"][0]
    assert listed[0].rstrip().endswith(f"{first['token']!r} {math.exp(first['logprob']):.4f}")


def test_tokens_are_marked_if_the_most_likely_one_was_dropped(gen):
    events = traced_events(40)
    expected, stages = "", []
    for line in events[1:-1]:
        first = max(line["trace"]["candidates"], key=lambda candidate: candidate["probs"][0])
        expected += line["text"] + ("" if first["dropped_by"] is None else "▾")
        stages += [] if first["dropped_by"] is None else [first["dropped_by"]]
    out = gen("inspect", stdin=jsonl(events)).out
    assert stages
    assert out.startswith(expected + "\n\n")
    assert (
        f"▾ {len(stages)} tokens for which a step dropped the most likely one: temperature {len(stages)}\n" in out
    )
    assert "▾" not in gen("inspect", stdin=jsonl(traced_events(40, traced=False))).out


def test_a_trace_without_logprobs_has_them(gen):
    events = traced_events(12)
    bare = [
        {**line, "logprob": None, "top_logprobs": [], "logprobs_from": None, "entropy": None}
        if line["event"] == "token" else line for line in events
    ]  # fmt: skip
    assert gen("inspect", stdin=jsonl(bare)).out.replace(", logprobs of the model", "") == gen(
        "inspect", stdin=jsonl(events)
    ).out.replace(", logprobs of the model", "")
    last = [candidate for candidate in events[1]["trace"]["candidates"] if candidate["id"] == events[1]["id"]]
    table = gen("inspect", "--top", "0", "--logprobs-from", "chain", stdin=jsonl(events)).out
    row = next(line for line in table.splitlines() if line.startswith("0 "))
    assert f" {last[0]['probs'][-1]:.4f} " in row


def batch_lines(*runs):
    """The results of a batch."""
    for number, events in enumerate(runs, 1):
        tokens = [{key: value for key, value in line.items() if key != "event"} for line in events[1:-1]]
        yield {
            "id": f"r{number}", "line": number, "seed": number, "finish_reason": "length", "text": "",
            "tokens": tokens, "error": None,
        }  # fmt: skip


def test_answers_of_a_batch(gen):
    runs = [traced_events(5, seed) for seed in (1, 2)]
    lines = jsonl(batch_lines(*runs))
    texts = ["".join(line["text"] for line in run[1:-1]) for run in runs]
    out = gen("inspect", "--color", "never", stdin=lines).out.replace("▾", "")
    assert [text in out for text in (f"==> r1 <==\n{texts[0]}", f"==> r2 <==\n{texts[1]}")] == [True, True]
    only = gen("inspect", "--id", "r2", stdin=lines).out.replace("▾", "")
    assert only.startswith(f"==> r2 <==\n{texts[1]}")
    assert "r1" not in only
    assert "no answer to r22; did you mean r2?" in gen("inspect", "--id", "r22", stdin=lines, code=1).err


def test_a_batch_with_a_failed_request_becomes_a_report(gen, home):
    requests = [
        {"id": "one", "prompt": "The sea", "seed": 1},
        {"id": "two", "prompt": "The sea", "seed": 2},
        {"id": "bad", "prompt": "The sea", "seed": "x"},
    ]
    (home / "work" / "in.jsonl").write_text(jsonl(requests))
    gen("batch", "in.jsonl", "-n", "3", "--format", "jsonl", "--trace", "5", "-o", "out.jsonl", "-t", "1", code=1)
    page = gen("inspect", "out.jsonl", "--html", "out.html", code=1)
    assert "out.html: 2 runs, 6 tokens" in page.err
    assert "request bad" in page.err
    token = gen("inspect", "out.jsonl", "--id", "two", "--token", "2")
    assert ("u = " in token.out, token.err) == (True, "")
    assert "request bad" in gen("inspect", "out.jsonl", "--id", "bad", code=1).err
    assert "pruned, seed 1" in gen("inspect", "out.jsonl", "--id", "one").out


def test_no_color_keeps_the_marks(start_gen, environment, home):
    (home / "work" / "run.jsonl").write_text(jsonl([
        {"event": "token", "bytes": [65], "logprob": -9.0, "text": "A", "logprobs_from": "model"},
    ]))  # fmt: skip
    environment["TERM"] = "xterm-256color"
    leader, follower = os.openpty()
    command = start_gen("inspect", "run.jsonl", stdin=follower, stdout=follower, stderr=follower)
    assert command.wait() == 0
    os.close(follower)
    screen = os.read(leader, 4096)
    os.close(leader)
    assert screen.startswith(b"\x1b[1;4mA\x1b[0m")


CUT_OFF = {
    "before the last line": (lambda data: data[: data.rindex(b'{"event": "done"')], "3 tokens"),
    "inside the last line": (lambda data: data[: data.rindex(b"finish_reason")], "3 tokens"),
    "inside a token": (lambda data: data[: data.rindex(b'"entropy"')], "2 tokens"),
}


@pytest.mark.parametrize(("cut", "tokens"), CUT_OFF.values(), ids=CUT_OFF)
def test_a_run_that_was_cut_off_is_named(gen, stream, cut, tokens):
    stream.with_name("cut.jsonl").write_bytes(cut(stream.read_bytes()))
    shown = gen("inspect", "cut.jsonl", "run.jsonl").out
    assert f"{tokens} (cut off)" in shown
    assert shown.count("cut off") == 1
    assert shown.index("==> cut.jsonl <==") < shown.index("==> run.jsonl <==")
    for target in ("out.html", "-"):
        err = gen("inspect", "cut.jsonl", "run.jsonl", "--html", target).err
        assert err.splitlines()[-1].startswith(f"gen: note: cut.jsonl: the run was cut off after {tokens}: ")
        assert err.count("cut off") == 1


REFUSED_WITH_HTML = {
    "--top": ["--top", "3", "run.jsonl"],
    "--color": ["--color", "always", "run.jsonl"],
    "the run itself": ["run.jsonl", "--html", "run.jsonl"],
}


@pytest.mark.parametrize("words", REFUSED_WITH_HTML.values(), ids=REFUSED_WITH_HTML)
def test_what_a_report_has_no_use_for_is_refused(gen, stream, words):
    before = stream.read_bytes()
    gen("inspect", "--html", "out.html", *words, code=2)
    assert stream.read_bytes() == before
    assert not stream.with_name("out.html").exists()


def test_a_page_on_stdout_is_that_of_a_file(gen, stream):
    printed = gen("inspect", "run.jsonl", "--html", "-")
    gen("inspect", "run.jsonl", "--html", "out.html")
    assert printed.out == stream.with_name("out.html").read_text()
    assert printed.err == ""
    assert not stream.with_name("-").exists()
