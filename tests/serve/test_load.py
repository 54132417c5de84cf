"""A server with many clients: the answers are those of `gen batch`, and nothing is left of requests that ended."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from .gen_serve import GenServe, run_async
from .load import BEGINNINGS, LoadRequest, ProcessUse, RequestMaker, read_answers, send_all

pytestmark = pytest.mark.slow

REQUESTS, CLIENTS, SLOTS = 1_000, 64, 4
FLAGS = ("-c", "1024")
REASONS = {"stop": "stop", "grammar": "stop", "length": "length", "context": "length"}


@pytest.fixture
def server(pruned_model):
    flags = ("--slots", str(SLOTS), "--queue", "4096", "--log-format", "none", *FLAGS)
    with GenServe(*flags, model=pruned_model) as server:
        yield server


def batch(model, lines, folder):
    """Return the results of `gen batch` by id."""
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [sys.executable, "-m", "logitsmith.cli", "batch", "in.jsonl", "-m", str(model), "-t", "1"]
    words += ["--format", "jsonl", "--parallel", str(SLOTS), *FLAGS]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {result["id"]: result for result in map(json.loads, done.stdout.splitlines())}


def test_answers_under_load_are_those_of_a_batch(server, pruned_model, tmp_path):
    maker = RequestMaker(seed=40, max_tokens=40, leaving_share=0.2, beginnings=BEGINNINGS)
    requests = [maker.make(number) for number in range(REQUESTS)]
    counts, finished = run_async(send_all(server.port, requests, CLIENTS))
    server.assert_all_slots_are_free(SLOTS)
    assert counts["left"] > 50
    assert counts["finished"] > REQUESTS // 2
    expected = batch(pruned_model, [line for request, _, _ in finished for line in request.lines], tmp_path)
    for request, status, content in finished:
        assert status == 200, content
        for line, answer in zip(request.lines, read_answers(request, content), strict=True):
            assert_equal(answer, expected[line["id"]], request)
    texts = sum(len(request.lines) for request, _, _ in finished)
    exact = sum(result["batch_exactness"] == "exact" for result in expected.values())
    print(f"{counts['finished']} answers finished, {counts['left']} clients left; {texts} texts compared with")
    print(f"those of a batch, {exact} of them exact and {texts - exact} exact among themselves")


def assert_equal(answer, result, request):
    """Compare a text of the server with the result of a batch."""
    assert result["error"] is None
    tokens = result["tokens"]
    logprobs = [token["logprob"] for token in tokens]
    place = (request, answer, result)
    assert answer.text == result["text"], place
    assert answer.reason == REASONS[result["finish_reason"]], place
    # The server lists the tokens of the text: no end of generation, and nothing of a stop string.
    assert answer.logprobs == logprobs[: len(answer.logprobs)], place
    if result["finish_reason"] == "length" and request.body.get("n_probs") != 0:
        assert len(answer.logprobs) == len(logprobs), place
    if answer.ids is not None:
        assert answer.ids == [token["id"] for token in tokens][: len(answer.ids)], place
    assert answer.exactness == result["batch_exactness"], place
    assert answer.exactness in ("exact", "exact among themselves")


def has_connections(port):
    """Return whether the server has open connections. Listening and closed sockets do not count."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return any(local.endswith(f":{port:04X}") and state not in ("0A", "06") for _, local, _, state, *_ in fields)


SHORT_REQUESTS = 10_000
WARM_REQUESTS = 1_000
MAX_GROWTH = 0.02


def short_requests(count):
    """Return short requests of all kinds, a tenth of them wrong."""
    maker, choose = RequestMaker(seed=7, max_tokens=6, leaving_share=0.1), random.Random(9)
    for number in range(count):
        if choose.random() < 0.7:
            yield maker.make(number)
        else:
            path, body, status = choose.choice(OTHER_REQUESTS)
            if callable(body):
                body = body(choose)
            yield LoadRequest(path, body, status=status, keeps_connection=choose.random() < 0.8)


SHORT = {"prompt": "a", "max_tokens": 2}
OTHER_REQUESTS = (
    ("/v1/completions", {"prompt": "a", "temprature": 1}, 400),
    ("/v1/completions", {"prompt": "a", "grammar": "root ::= ("}, 400),
    ("/v1/completions", b'{"prompt": ', 400),
    ("/v1/completions", lambda choose: SHORT | {f"x{choose.random()}": 1}, 200),
    ("/v1/completions", lambda choose: SHORT | {"regex": f"[a-z]{{1,{choose.randint(1, 99)}}}"}, 200),
    ("/v1/chat/completions", {"messages": []}, 400),
    ("/nowhere", None, 404),
    ("/tokenize", lambda choose: {"content": f"The sea {choose.random()}"}, 200),
    ("/gen/next", lambda choose: {"prompt": f"The sea {choose.randrange(9)}", "top": 3}, 200),
    ("/gen/samplers", None, 200),
    ("/metrics", None, 200),
    ("/health", None, 200),
    ("/api/extra/generate/check", lambda choose: {"genkey": f"K{choose.randrange(40)}"}, 200),
    ("/api/extra/abort", lambda choose: {"genkey": f"K{choose.randrange(40)}"}, 200),
)
"""Paths, bodies, and the statuses of their answers."""


def test_ten_thousand_requests_leave_nothing(server):
    requests = list(short_requests(SHORT_REQUESTS))
    uses = []
    for part in (requests[:WARM_REQUESTS], requests[WARM_REQUESTS:]):
        counts, finished = run_async(send_all(server.port, part, CLIENTS))
        for request, status, content in finished:
            is_stopped = b"was stopped before it began" in content  # by a request to /api/extra/abort
            assert status == (503 if is_stopped else request.status), (request, content)
        server.assert_all_slots_are_free(SLOTS)
        server.wait_until(lambda: not has_connections(server.port))
        uses.append(ProcessUse.of(server.process.pid))
        print(f"{counts['finished']} requests answered, {counts['left']} clients left: {uses[-1]}")
    before, after = uses
    assert (after.threads, after.files) == (before.threads, before.files)
    growth = after.memory / before.memory - 1
    print(f"memory grew by {growth:.2%} after the first {WARM_REQUESTS} of {SHORT_REQUESTS} requests")
    assert growth < MAX_GROWTH
