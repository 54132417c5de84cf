"""The routes that the page needs: lines of a run, chains with their parameters, texts of presets, reports."""

import json
import re

import yaml
from logitsmith.serve.security import Access

from .gen_serve import parts_of_stream, post_bytes


def lines_of(server, **fields):
    """The lines of an answer of `/gen/generate`."""
    status, answer = server.post("/gen/generate", {"prompt": "The sea", "seed": 7, "max_tokens": 4} | fields)
    assert status == 200, answer
    return [json.loads(line) for line in answer.splitlines()]


def test_lines_are_those_of_a_run(server):
    start, *tokens, done = lines_of(server, trace=5, logprobs=True)
    assert [line["event"] for line in (start, *tokens, done)] == ["start", *["token"] * 4, "done"]
    assert start["command"] == done["x_gen"]["command"]
    assert "".join(line["text"] for line in tokens) == done["text"]
    assert all(line["trace"]["draw"] and line["entropy"] is not None for line in tokens)
    status, whole = server.post(
        "/gen/generate",
        {"prompt": "The sea", "seed": 7, "max_tokens": 4, "trace": 5, "logprobs": True, "stream": False},
    )
    assert status == 200
    assert whole["lines"][1:-1] == tokens


def test_a_stream_under_bans_is_the_whole_answer(server):
    """The text that has arrived at any time has no banned phrase, and begins the text of the answer."""
    fields = {"prompt": "The sea", "seed": 7, "max_tokens": 40, "bans": [{"regex": "[aeo]"}, "th"]}
    _, whole = server.post("/v1/completions", fields)
    client = server.connect()
    client.sendall(post_bytes(fields | {"stream": True}))
    data = b""
    while not data.endswith(b"\r\n0\r\n\r\n"):
        data += client.recv(1)
        if data.endswith(b"\n\n"):
            text = "".join(part["choices"][0]["text"] for part in parts_of_stream(data.decode()))
            assert whole["choices"][0]["text"].startswith(text)
            assert not re.search("[aeo]|th", text)
    client.close()
    assert text == whole["choices"][0]["text"]
    assert whole["usage"]["discarded_tokens"] > 0


def test_a_grammar_reads_the_beginning_of_the_answer(server):
    grammar = {"gbnf": 'root ::= "(" [ab] ")"'}
    *_, done = lines_of(server, prompt="x(a", beginning="(a", grammar=grammar)
    assert done["text"] == ")"
    assert done["complete"]
    assert done["x_gen"]["command"] is None
    status, answer = server.post("/gen/next", {"prompt": "x(a", "beginning": "(a", "grammar": grammar})
    assert status == 200
    assert [item["token"] for item in answer["candidates"] if item["probs"][-1]] == [")"]
    status, _ = server.post("/gen/next", {"prompt": "xy", "beginning": "y", "grammar": grammar})
    assert status == 400


def test_chains_have_all_parameters(server):
    _, answer = server.post("/gen/chain", {"chain": 'logit_bias(5=-1, "5"=2, "a b"=3) > min_p0.2'})
    assert [step["name"] for step in answer["steps"]] == ["logit_bias", "min_p", "dist"]
    assert answer["steps"][0]["parameters"] == {"bias": {"5": -1, '"5"': 2, '"a b"': 3}}
    assert answer["steps"][1]["parameters"] == {"p": 0.2, "min_keep": 1}
    _, again = server.post("/gen/chain", {"chain": answer["chain"]})
    assert again == answer
    _, preset = server.post("/gen/chain", {"preset": "creative"})
    assert preset["chain"].startswith("penalties(")
    assert preset["settings"]["seed"] is None


def test_texts_of_presets_keep_what_is_not_changed(server):
    base = "description: mine\nsystem: Be brief.\nseed: 3\nstop: [a]\nchain: top_k5\n"
    fields = {
        "base": base,
        "chain": 'logit_bias(5=-1, "5"=2) > temp',
        "settings": {"stop": ["\n", "b"], "seed": None},
    }
    _, answer = server.post("/gen/presets/text", fields)
    assert yaml.safe_load(answer["preset"]) == {
        "description": "mine",
        "system": "Be brief.",
        "stop": ["\n", "b"],
        "chain": [{"logit_bias": {"bias": {5: -1, "5": 2}}}, "temperature"],
    }
    assert server.post("/gen/presets/text", {"chain": "dist", "settings": {"seed": 2**64}})[0] == 400


def test_reports_are_made_of_lines(server):
    lines = lines_of(server, trace=5, logprobs=True)
    status, html = server.post("/gen/report", "".join(json.dumps(line) + "\n" for line in lines))
    assert status == 200
    assert html.startswith("<!doctype html>")
    status, answer = server.post("/gen/report", '\n{"event": "token", "id": "x"}\n')
    assert status == 400
    assert answer["error"]["message"].startswith("line 2: ")
    assert server.post("/gen/report", "\n")[0] == 400
    # It may be larger than other bodies.
    traced = next(json.dumps(line) for line in lines if line["event"] == "token")
    count = Access().max_body_bytes // len(traced) + 1
    body = "\n".join([json.dumps(lines[0]), *[traced] * count, json.dumps(lines[-1])])
    status, html = server.post("/gen/report", body)
    assert (status, html[:15]) == (200, "<!doctype html>")


def test_successive_requests_for_the_health_are_one_line_of_the_log():
    from logitsmith.serve.request_log import RequestLog, RequestRecord

    written = []
    log = RequestLog("json", write=written.append)
    for route, status in [("/health", 503), ("/health", 503), ("/health", 200), ("/health", 200), ("/docs", 200)]:
        record = RequestRecord("GET", route, route=route)
        record.status = status
        log(record)
    log.flush(5)
    assert [json.loads(line)["status"] for line in written] == [503, 200, 200]
