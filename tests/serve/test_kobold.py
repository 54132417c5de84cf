"""KoboldAI's routes, with the requests that SillyTavern, mikupad and KoboldAI Lite build."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from .clients import CLASSIC, LITE, MIKUPAD_TO_KOBOLDCPP
from .gen_serve import GenServe, parts_of_stream


def generate(http, **fields):
    """Return the first result, and the facts about the answer."""
    response = http.post("/api/v1/generate", json=fields)
    assert response.status_code == 200, response.text
    body = response.json()
    return body["results"][0], body["x_gen"]


def stream(http, **fields):
    """Return the messages of a stream, read as a browser does."""
    with http.stream("POST", "/api/extra/generate/stream", json=fields) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        text = "".join(response.iter_text())
    *events, rest = text.split("\n\n")
    assert rest == ""
    lines = [event.split("\n") for event in events]
    assert all(event == "event: message" for event, _ in lines)
    return [json.loads(data.removeprefix("data: ")) for _, data in lines]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("v1/info/version", {"result": "1.2.5"}),
        ("latest/info/version", {"result": "1.2.5"}),
        ("extra/version", {"result": "KoboldCpp", "llm": True, "vision": False}),
        ("v1/model", {"result": "pruned"}),
        ("v1/config/max_length", {"value": 256}),
        ("v1/config/max_context_length", {"value": 4096}),
        ("extra/true_max_context_length", {"value": 4096}),
    ],
)
def test_what_clients_ask_first(http, path, expected):
    found = http.get(f"/api/{path}").json()
    assert found.items() >= expected.items()
    if path == "extra/version":  # SillyTavern's minimum for grammars
        assert tuple(map(int, found["version"].split("."))) >= (1, 44)


@pytest.mark.parametrize("body", [CLASSIC, MIKUPAD_TO_KOBOLDCPP, LITE], ids=["classic", "mikupad", "lite"])
def test_a_stream_says_what_the_whole_answer_says(http, body):
    body = {"sampler_seed": 1, **body}
    result, facts = generate(http, **body)
    messages = stream(http, **body)
    assert facts["ignored"] == []
    assert facts["seed"] == body["sampler_seed"]
    assert "".join(message["token"] for message in messages) == result["text"]
    assert [message["finish_reason"] for message in messages[:-1]] == [None] * (len(messages) - 1)
    assert messages[-1]["finish_reason"] == result["finish_reason"]
    assert messages[-1]["x_gen"] == facts
    assert result["completion_tokens"] == body["max_length"]
    assert result["prompt_tokens"] > 0


def test_mikupad_finds_each_token_among_the_alternatives(http):
    """mikupad makes the text of the tokens, and an alternative is selected by its text."""
    result, _ = generate(http, **MIKUPAD_TO_KOBOLDCPP)
    content = result["logprobs"]["content"]
    assert "".join(token["token"] for token in content) == result["text"]
    assert len(content) == result["completion_tokens"]
    messages = stream(http, **MIKUPAD_TO_KOBOLDCPP)
    for token in (*content, *messages[:-1]):
        assert len(token["top_logprobs"]) >= 10
        assert token["logprob"] in [
            other["logprob"] for other in token["top_logprobs"] if other["token"] == token["token"]
        ]


def test_mikupad_drops_the_first_token(http):
    text = "The sea was calm"
    for path in ("tokencount", "tokenize"):
        found = http.post(f"/api/extra/{path}", json={"prompt": text}).json()
        ids = found["ids"]
        assert found["value"] == len(ids)
        detokenized = http.post("/api/extra/detokenize", json={"ids": ids[1:]}).json()
        assert detokenized == {"result": text, "success": True}


def test_control_tokens_are_written_if_special(http):
    ids = http.post("/api/extra/tokencount", json={"prompt": "<|im_start|>user", "special": False}).json()["ids"]
    for special, text in ((True, "<|im_start|>user"), (False, "user")):
        found = http.post("/api/extra/detokenize", json={"ids": ids, "special": special}).json()
        assert found["result"] == text


def test_the_lists_of_logprobs(http):
    result, _ = generate(http, prompt="The sea was", max_length=5, logprobs=True, sampler_seed=2)
    logprobs = result["logprobs"]
    lists = ("content", "tokens", "token_ids", "token_logprobs", "top_logprobs", "text_offset")
    assert [len(logprobs[name]) for name in lists] == [5] * 6
    assert all(len(top) >= 5 for top in logprobs["top_logprobs"])
    assert "".join(logprobs["tokens"]) == result["text"]


@pytest.mark.parametrize("trims", [None, True, False])
def test_a_stop_string_is_left_out_unless_asked_for(http, trims):
    body = {"prompt": "The sea was", "max_length": 20, "sampler_seed": 4, "temperature": 0}
    text = generate(http, **body)[0]["text"]
    stop = text[8:11]
    result, _ = generate(http, **body, stop_sequence=[stop], trim_stop=trims)
    expected = text[: text.index(stop)] + (stop if trims is False else "")
    assert result["text"] == expected
    assert result["finish_reason"] == "stop"
    messages = stream(http, **body, stop_sequence=[stop], trim_stop=trims)
    assert "".join(message["token"] for message in messages) == expected


def test_ends_of_texts(http):
    """The end is banned, or is passed, or ends the text."""
    phases = [{"max_tokens": 3, "chain": "greedy"}, {"chain": "logit_bias(2=100) > greedy"}]
    body = {"prompt": "The sea", "max_length": 48, "phases": phases}
    ended, _ = generate(http, **body)
    passed, facts = generate(http, **body, bypass_eos=True)
    banned, _ = generate(http, **body, use_default_badwordsids=True)
    also_banned, _ = generate(http, **body, ban_eos_token=True)
    assert ended["finish_reason"] == "stop"
    assert 1 < ended["completion_tokens"] < 48
    assert passed["finish_reason"] == "length"
    assert passed["text"].startswith(ended["text"])
    assert "ignore_eos" not in facts["chain"]
    assert banned == also_banned
    assert banned["completion_tokens"] == 48
    assert banned["text"] != passed["text"]


def test_a_single_line(http):
    grammar = 'root ::= "a\\nb"'
    result, _ = generate(http, prompt="A list:", max_length=30, grammar=grammar, singleline=True)
    assert result["text"] == "a"


def test_grammars(http):
    for grammar in ('root ::= "yes" | "no"', '{"enum": ["yes", "no"]}', "yes_no"):
        result, facts = generate(http, prompt="Is the sea wet?", max_length=20, grammar=grammar, sampler_seed=1)
        assert result["text"].strip('"\n').lower() in ("yes", "no"), grammar
        assert facts["ignored"] == []


def test_memory_precedes_the_prompt(http):
    body = {"max_length": 6, "sampler_seed": 9}
    together, _ = generate(http, prompt="A man at the sea. He was", **body)
    apart, _ = generate(http, memory="A man at the sea.", prompt=" He was", **body)
    assert apart == together


def test_the_memory_replaces_that_of_other_settings(http):
    body = {"max_length": 6, "sampler_seed": 9}
    settings = {"memory": "A hill.", "authors_note": {"text": "sad", "depth": 1}}
    found, _ = generate(http, memory="A man at the sea.", prompt="He was", set=settings, **body)
    whole = "A man at the sea.\n[Author's note: sad]\nHe was"
    assert found == generate(http, prompt=whole, **body)[0]


def test_a_long_prompt_loses_its_beginning_but_not_the_memory(http):
    words = " ".join(f"word{number}" for number in range(200))
    body = {"max_length": 10, "max_context_length": 100, "sampler_seed": 9}
    result, facts = generate(http, memory="Remember this.", prompt=words, **body)
    assert result["prompt_tokens"] == 90
    whole = http.post("/api/extra/tokencount", json={"prompt": "Remember this." + words, "special": False}).json()
    assert facts["dropped_prompt_tokens"] == whole["value"] - 90
    assert "Remember this." in facts["command"]
    assert "word0 " not in facts["command"]
    assert facts["command"].endswith("word199'")
    messages = stream(http, memory="Remember this.", prompt=words, **body)
    assert "".join(message["token"] for message in messages) == result["text"]
    assert messages[-1]["x_gen"] == facts


LENGTHS = {
    "one token more than fits": {"count": 245},
    "one token less than the context": {"count": 255},
    "the context": {"count": 256},
    "more than the context": {"count": 257},
    "far more": {"count": 20_000},
    "a shorter context": {"count": 256, "max_context_length": 100},
    "a context of few tokens": {"count": 256, "max_context_length": 8},
    "a context beyond the server's": {"count": 300, "max_context_length": 100_000},
    "an answer as long as the context": {"count": 256, "max_length": 256},
    "no answer": {"count": 256, "max_length": 0},
    "with a memory": {"count": 300, "memory": "Remember the sea. "},
    "with a memory as long as the context": {"count": 10, "memory": "sea " * 300},
    "several results": {"count": 300, "n": 2},
}


@pytest.fixture(scope="module")
def short_server(pruned_model):
    """A server whose context has 256 tokens."""
    with GenServe("--slots", "2", "-c", "256", model=pruned_model) as server:
        yield server


@pytest.mark.parametrize("fields", LENGTHS.values(), ids=LENGTHS)
def test_a_prompt_of_any_length_is_answered(short_server, fields):
    """Its beginning is left out, as in KoboldCpp, so that the answer fits, and the answer says how much."""
    count, memory = fields["count"], fields.get("memory", "")
    prompt = [3426] * count if not memory else " sea" * count
    body = {"prompt": prompt, "max_length": 12, "ban_eos_token": True, **fields}
    del body["count"]
    whole = count
    if memory:
        counted = {"prompt": memory + prompt, "special": False}
        whole = short_server.post("/api/extra/tokencount", counted)[1]["value"]
    status, answer = short_server.post("/api/v1/generate", body)
    assert status == 200, answer
    result, dropped = answer["results"][0], answer["x_gen"].get("dropped_prompt_tokens", 0)
    length = min(body.get("max_context_length", 256), 256)
    most = length - max(min(length - 4, 16), length // 5)
    assert result["prompt_tokens"] + result["completion_tokens"] <= length
    assert result["completion_tokens"] == min(body["max_length"], most)
    assert dropped == whole - result["prompt_tokens"] > 0
    status, events = short_server.post("/api/extra/generate/stream", body)
    assert status == 200, events
    assert parts_of_stream(events)[-1]["x_gen"]["dropped_prompt_tokens"] == dropped
    if memory and len(memory) < 100:
        assert memory.strip() in answer["x_gen"]["command"]


def test_several_results(http):
    response = http.post("/api/v1/generate", json={"prompt": "The", "n": 3, "max_length": 4, "sampler_seed": 5})
    results = response.json()["results"]
    alone = [generate(http, prompt="The", max_length=4, sampler_seed=seed)[0] for seed in (5, 6, 7)]
    assert results == alone
    assert stream(http, prompt="The", max_length=2, n=2)[-1]["x_gen"]["ignored"] == ["n"]


@pytest.mark.parametrize(
    "media_type",
    ["application/json", "text/plain", "application/x-www-form-urlencoded"],
    ids=["JSON", "text", "form"],
)
def test_an_answer_is_checked_and_aborted_by_its_key(http, media_type):
    key = {"genkey": f"key {media_type}"}
    body = {"prompt": "Once upon a time", "max_length": 900, "ban_eos_token": True, "logprobs": 1, **key}
    answers = []
    thread = threading.Thread(target=lambda: answers.append(generate(http, **body)))
    thread.start()
    text = ""
    while not text:
        text = http.post("/api/extra/generate/check", json=key).json()["results"][0]["text"]
    other = {"genkey": "another"}
    assert http.post("/api/extra/abort", json=other).json()["success"] == "false"
    assert http.post("/api/extra/generate/check", json=other).json() == {"results": [{"text": ""}]}
    assert http.get("/api/extra/perf").json()["idle"] == 0
    response = http.post("/api/extra/abort", content=json.dumps(key), headers={"content-type": media_type})
    assert response.json() == {"success": "true", "done": "true"}
    thread.join()
    result, _ = answers[0]
    assert result["text"].startswith(text)
    assert result["completion_tokens"] < 900
    assert len(result["logprobs"]["content"]) == result["completion_tokens"]
    assert http.post("/api/extra/last_logprobs", json=key).json()["logprobs"] == result["logprobs"]
    perf = http.get("/api/extra/perf").json()
    assert perf["last_token_count"] == result["completion_tokens"]
    assert perf["stop_reason"] == -1


def test_an_abort_of_a_request_that_waits(server):
    server.wait_until_no_text_runs()
    with ThreadPoolExecutor(1) as pool:
        stream = server.start_stream(n=4)
        body = {"prompt": "Once", "max_length": 4, "genkey": "waits"}
        waiting = pool.submit(server.post, "/api/v1/generate", body)
        server.wait_until(lambda: server.counts_of_texts() == (4, 1))
        assert server.post("/api/extra/abort", {"genkey": "waits"})[1]["success"] == "true"
        status, answer = waiting.result()
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        stream.close()
        server.wait_until_idle()


def test_an_abort_without_a_body_ends_a_stream_without_a_key(http):
    """SillyTavern and mikupad send neither a body nor its type."""
    body = {"prompt": "Once upon a time", "max_length": 900, "ban_eos_token": True}
    with http.stream("POST", "/api/extra/generate/stream", json=body) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        assert json.loads(first.removeprefix("data: "))["token"]
        assert http.get("/api/extra/generate/check").json()["results"][0]["text"]
        assert http.post("/api/extra/abort").json()["success"] == "true"
        last = [line for line in lines if line.startswith("data: ")][-1]
    assert json.loads(last.removeprefix("data: "))["finish_reason"] == "length"
    assert http.get("/api/extra/last_logprobs").json() == {"logprobs": None}
