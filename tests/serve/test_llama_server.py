"""llama-server's routes: answers and streams say the same, and what they say is what was done."""

import json
import math

import httpx
import pytest

from .clients import MIKUPAD
from .gen_serve import GenServe, parts_of_stream
from .sillytavern_bodies import recorded_bodies

RECORDED = recorded_bodies()
STORY = {"prompt": "Once upon a time", "n_predict": 4, "seed": 5}
BESIDES_TEXT = ("content", "tokens", "completion_probabilities", "timings", "tokens_cached", "x_gen")


ENDLESS = {"n_predict": -1, "ignore_eos": True, "stream": True}


def post(http, body, path="/completion"):
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(http, body, path="/completion"):
    """Return the events of a stream."""
    answer = http.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = answer.text.split("\n\n")
    assert parts.pop() == ""
    return [json.loads(part.removeprefix("data: ")) for part in parts]


# Each row: what a request adds.
STREAMED = {
    "no logprobs": {},
    "logprobs": {"n_probs": 3},
    "probabilities": {"n_probs": 3, "post_sampling_probs": True},
    "a stop string inside a token": {"n_probs": 1, "grammar": 'root ::= " and the"', "stop": ["nd"]},
    "the end of the text": {"n_probs": 1, "grammar": 'root ::= " a"'},
    "characters of several tokens": {"n_probs": 1, "n_predict": 12, "grammar": 'root ::= "🦜🦉🐢"'},
    "nothing": {"n_predict": 0, "n_probs": 1},
}


@pytest.mark.parametrize("added", STREAMED.values(), ids=STREAMED)
def test_a_stream_says_what_the_answer_says(http, added):
    body = STORY | added
    whole = post(http, body)
    *chunks, last = events(http, body)
    assert "".join(chunk["content"] for chunk in [*chunks, last]) == whole["content"]
    found = [token for chunk in chunks for token in chunk.get("completion_probabilities", [])]
    assert found == whole.get("completion_probabilities", [])
    assert not any(chunk["stop"] for chunk in chunks)
    last["generation_settings"]["stream"] = False
    assert {key: last[key] for key in last if key not in BESIDES_TEXT} == {
        key: whole[key] for key in whole if key not in BESIDES_TEXT
    }
    assert last["x_gen"] == whole["x_gen"]


def test_every_token_has_its_logprobs(http):
    answer = post(http, STORY | {"n_predict": 9, "n_probs": 2, "return_tokens": True})
    tokens = answer["completion_probabilities"]
    assert "".join(token["token"] for token in tokens) == answer["content"]
    assert [token["id"] for token in tokens] == answer["tokens"]
    assert len(tokens) == answer["tokens_predicted"] == answer["timings"]["predicted_n"]
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)


def test_ids_only_if_they_are_asked_for(http):
    assert post(http, STORY)["tokens"] == []
    assert len(post(http, STORY | {"return_tokens": True})["tokens"]) == 4


# Each row: the prompt of llama-server, then the prompts one by one.
PROMPTS = {
    "a text": ("The", ["The"]),
    "ids": ([504], ["The"]),
    "texts and ids": ([504, " sea", 436], [[504, 3426, 436]]),
    "a list with one text": (["The"], ["The"]),
    "texts": (["The", "A man"], ["The", "A man"]),
    "lists of ids, and texts": ([[504], "A man"], ["The", "A man"]),
    "lists of texts and ids": ([[504, " sea"], [436]], [[504, 3426], [436]]),
    "an object": ({"prompt_string": "The"}, ["The"]),
    "objects": ([{"prompt_string": "The"}, "A man"], ["The", "A man"]),
}


@pytest.mark.parametrize(("prompt", "single"), PROMPTS.values(), ids=PROMPTS)
def test_forms_of_prompts(http, prompt, single):
    body = STORY | {"n_predict": 2, "return_tokens": True}
    answers = post(http, body | {"prompt": prompt})
    assert isinstance(answers, list) == (len(single) > 1)
    answers = answers if isinstance(answers, list) else [answers]
    assert [answer["index"] for answer in answers] == [*range(len(single))]
    alone = [post(http, body | {"prompt": one}) for one in single]
    for key in ("tokens", "content", "tokens_evaluated"):
        assert [answer[key] for answer in answers] == [answer[key] for answer in alone]


@pytest.mark.parametrize("name", ["n", "n_cmpl"])
def test_several_answers_have_seeds_in_a_row(http, name):
    answers = post(http, STORY | {name: 3})
    assert [answer["generation_settings"]["seed"] for answer in answers] == [5, 6, 7]
    assert [answer["x_gen"]["seed"] for answer in answers] == [5, 6, 7]
    alone = [post(http, STORY | {"seed": seed})["content"] for seed in (5, 6, 7)]
    assert [answer["content"] for answer in answers] == alone
    texts = ["", "", ""]
    for chunk in events(http, STORY | {name: 3}):
        texts[chunk["index"]] += chunk["content"]
    assert texts == alone


BIASES = {
    "pairs": ([[260, 1.5], [281, False]], {260: 1.5, 281: False}),
    "an object": ({"260": 1.5, "281": False}, {260: 1.5, 281: False}),
    "a text": ([[" the", 1.5]], {260: 1.5}),
    "a text in an object": ({" the": -1}, {260: -1.0}),
    "a text of several tokens": ([["The sea", 2]], {504: 2.0, 3426: 2.0}),
    "digits in a pair are a text": ([["7", 2]], {39: 2.0}),
    "a token twice": ([[260, 1.5], [" the", 1]], {260: 2.5}),
    "a token banned once": ([[260, False], [260, 1]], {260: False}),
}


@pytest.mark.parametrize(("value", "biases"), BIASES.values(), ids=BIASES)
def test_forms_of_biases(http, value, biases):
    settings = post(http, STORY | {"n_predict": 1, "logit_bias": value})["generation_settings"]
    assert {entry["token"]: entry["bias"] for entry in settings["logit_bias"]} == biases


# Each row: what a request sets, and the settings that applied.
VALUES = {"top_k": 7, "min_p": 0.2, "typical_p": 0.9}
ORDER = {"samplers": ["top_k", "typical", "top_p", "min_p", "temperature", "dist"]}
APPLIED = {
    "names of samplers": (
        VALUES | {"samplers": ["top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]},
        VALUES | ORDER,
    ),
    "letters of samplers": (VALUES | {"samplers": "kypmxt"}, VALUES | ORDER),
    "an order that leaves out top_k": (
        {"samplers": ["temperature"], "top_k": 9},
        {"top_k": 0, "temperature": 0.8},
    ),
    "greedy": ({"temperature": 0}, {"temperature": 0.0}),
    "a random seed": ({"seed": -1}, {"n_predict": 1}),
    "mirostat": ({"mirostat": 2, "mirostat_tau": 4}, {"mirostat": 2, "mirostat_tau": 4.0, "top_k": 0}),
    "penalties": (
        {"repeat_penalty": 1.2, "repeat_last_n": 32, "presence_penalty": 0.5},
        {"repeat_penalty": 1.2, "repeat_last_n": 32, "presence_penalty": 0.5},
    ),
    "the end of the text is banned": ({"ignore_eos": True}, {"ignore_eos": True}),
}


@pytest.mark.parametrize(("fields", "applied"), APPLIED.values(), ids=APPLIED)
def test_settings_that_applied(http, fields, applied):
    settings = post(http, STORY | {"n_predict": 1} | fields)["generation_settings"]
    assert {key: settings[key] for key in applied} == applied
    assert 0 <= settings["seed"] < 2**32


def test_selected_fields(http):
    paths = ["content", "generation_settings/n_predict", "x_gen/seed", "nothing", "content/deeper"]
    whole = post(http, STORY | {"response_fields": paths})
    assert whole == {"content": whole["content"], "generation_settings/n_predict": 4, "x_gen/seed": 5}
    *chunks, last = events(http, STORY | {"response_fields": paths})
    assert len(chunks) == 4
    assert last == whole | {"content": ""}


def test_a_schema(http):
    schema = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}
    schema["additionalProperties"] = False
    answer = post(http, STORY | {"n_predict": 60, "json_schema": schema, "temperature": 0})
    assert set(json.loads(answer["content"])) == {"n"}
    assert answer["stop_type"] == "eos"


def test_properties(http):
    answer = http.get("/props", params={"model": "undefined"})
    found = answer.json()
    settings = found["default_generation_settings"]
    assert settings["n_ctx"] == 4096
    assert {key: settings["params"][key] for key in ("temperature", "top_k", "seed")} == {
        "temperature": 0.8,
        "top_k": 40,
        "seed": 2**32 - 1,
    }
    assert found["total_slots"] == 4
    assert "{% for message in messages %}" in found["chat_template"]
    assert found["modalities"] == {"vision": False, "video": False, "audio": False}
    assert found["model_path"] == "pruned.gguf"
    assert "/" not in answer.text.replace(json.dumps(found["chat_template"]), "")


def test_slots(http, server):
    server.wait_until_no_text_runs()
    assert http.get("/slots").json() == [
        {"id": number, "n_ctx": 4096, "speculative": False, "is_processing": False} for number in range(4)
    ]
    with http.stream("POST", "/completion", json=STORY | ENDLESS) as answer:
        lines = answer.iter_lines()  # httpx closes the answer with its iterator
        next(lines)
        assert [slot["is_processing"] for slot in http.get("/slots").json()] == [True, False, False, False]


@pytest.mark.parametrize("waiting", [0, 6])
def test_stopped_answers_have_the_text_so_far(http, waiting):
    with http.stream("POST", "/completion", json=STORY | ENDLESS | {"n": 1 + waiting}) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        first = next(lines)
        assert http.post("/v1/internal/stop-generation").json() == "OK"
        parts = [json.loads(line.removeprefix("data: ")) for line in [first, *lines] if line]
    if waiting:
        # The stream ends with the error of an answer that had no slot yet.
        assert parts[-1]["error"]["message"] == "the request was stopped before it began"
    else:
        assert parts[-1]["stop_type"] == "none"
        assert parts[-1]["tokens_predicted"] == len(parts) - 1 < 1000
    post(http, STORY)


@pytest.mark.parametrize("kind", ["llamacpp", "ooba", "tabby", "koboldcpp"])
def test_sillytavern_writes(http, kind):
    """Its page reads the alternatives of each part."""
    path, body = "/completion" if kind == "llamacpp" else "/v1/completions", RECORDED[kind, "usual"]
    answer = post(http, body, path)
    assert set(answer["x_gen"]["ignored"]) == {"include_reasoning", "truncation_length", "num_ctx"}
    assert answer["x_gen"]["seed"] == 11
    text = answer["content"] if kind == "llamacpp" else answer["choices"][0]["text"]
    parts = parts_of_stream(http.post(path, json=body | {"stream": True}).text)
    if kind == "llamacpp":
        assert "".join(part["content"] for part in parts) == text != ""
        probabilities = parts[0]["completion_probabilities"][0]["top_logprobs"]
        assert [set(entry) for entry in probabilities] == [{"id", "token", "bytes", "logprob"}] * 10
    else:
        choices = [part["choices"][0] for part in parts if part["choices"]]
        assert "".join(choice["text"] for choice in choices) == text != ""
        assert 10 <= len(choices[0]["logprobs"]["top_logprobs"][0]) <= 11


@pytest.mark.parametrize("after_chain", [False, True])
def test_mikupad_writes(http, after_chain):
    body = MIKUPAD | {"post_sampling_probs": after_chain}
    *chunks, last = events(http, body)
    text = "".join(chunk["content"] for chunk in [*chunks, last])
    top = "top_probs" if after_chain else "top_logprobs"
    # A click on a token shows its alternatives. The token itself must be among them.
    for chunk in chunks:
        if chunk["content"]:
            names = [entry["token"] for entry in chunk["completion_probabilities"][0][top]]
            assert after_chain or chunk["content"] in names or len(names) == 10
    # Without streaming, mikupad makes the text from the tokens with logprobs.
    whole = post(http, body | {"stream": False})
    assert "".join(token["token"] for token in whole["completion_probabilities"]) == whole["content"] == text
    assert whole["x_gen"]["ignored"] == []


ONLY_IN_LLAMA_SERVER = {
    *("n_keep", "n_discard", "min_keep", "grammar_lazy", "grammar_triggers", "preserved_tokens", "chat_format"),
    *("reasoning_format", "reasoning_in_content", "generation_prompt", "speculative.types"),
    *("timings_per_token", "backend_sampling", "lora"),
}
"""Settings that would say nothing here."""


SAME_AS_LLAMA_SERVER = (
    *("content", "tokens", "stop_type", "stopping_word", "prompt", "tokens_predicted", "tokens_evaluated"),
)


@pytest.mark.slow
def test_beside_llama_server():
    """The keys, the text and the logprobs of a real llama-server with the bundled model."""
    from ..recover.serving import start, stop

    process, url = start()
    try:
        with (
            httpx.Client(base_url=url, timeout=None) as real,
            GenServe("--slots", "4", "-c", "1024") as server,
            httpx.Client(base_url=server.address, timeout=None) as http,
        ):
            greedy = STORY | {"temperature": 0, "n_predict": 12, "n_probs": 3, "return_tokens": True}
            for added in ({}, {"post_sampling_probs": True}, {"stop": ["ity"]}, {"prompt": ["The sea", "A man"]}):
                theirs, ours = post(real, greedy | added), post(http, greedy | added)
                both = zip(
                    *([answer] if isinstance(answer, dict) else answer for answer in (theirs, ours)), strict=True
                )
                for their, our in both:
                    _compare(their, our)
                for their, our in zip(events(real, greedy), events(http, greedy), strict=True):
                    assert set(their) <= set(our)
            for path, body in (
                ("/tokenize", {"content": "Hello 😀<|im_end|>", "with_pieces": True}),
                ("/tokenize", {"content": "Hello <|im_end|>", "parse_special": False}),
                ("/tokenize", {"content": ["a", 5, "b"]}),
                ("/detokenize", {"tokens": [2, 19556, 40303]}),
                ("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]}),
            ):
                theirs, ours = post(real, body, path), post(http, body, path)
                assert {key: ours[key] for key in theirs} == theirs
    finally:
        stop(process)


def _compare(theirs, ours):
    assert set(theirs) <= set(ours)
    assert set(theirs["generation_settings"]) - set(ours["generation_settings"]) == ONLY_IN_LLAMA_SERVER
    assert set(theirs["timings"]) == set(ours["timings"])
    for key in SAME_AS_LLAMA_SERVER:
        assert ours[key] == theirs[key]
    their_tokens, our_tokens = theirs["completion_probabilities"], ours["completion_probabilities"]
    if theirs["stop_type"] == "word":  # llama-server leaves out the token in which the stop string begins
        assert "".join(token["token"] for token in our_tokens) == ours["content"]
        our_tokens = our_tokens[: len(their_tokens)]
    for their, our in zip(their_tokens, our_tokens, strict=True):
        assert list(their) == list(our)
        for name in ("logprob", "prob"):
            if name in their:
                # Each server has its own build of llama.cpp: 0.11 was seen on a processor with AVX-512.
                assert math.isclose(our[name], their[name], abs_tol=0.25)


@pytest.mark.parametrize(
    ("fields", "exactness"),
    [({}, "exact"), ({"cache_prompt": False}, "exact"), ({"cache_prompt": True}, "to rounding")],
    ids=["exact", "no", "yes"],
)
def test_a_conversation_continues_after_its_answer_if_it_says_so(http, fields, exactness):
    story = (
        f"A conversation about {len(fields)} and {fields.get('cache_prompt')} lighthouses, far from any harbor. "
        * 4
    )
    body = {"n_predict": 12, "ignore_eos": True, "seed": 5, "timings_per_token": True}
    first = http.post("/completion", json={**body, "prompt": story}).json()
    prompt = f"{story}{first['content']} And then"
    answer = http.post("/completion", json={**body, "prompt": prompt, **fields}).json()
    assert answer["x_gen"]["exactness"].partition(" (")[0] == exactness
    assert (answer["timings"]["prompt_n"] < 20) is (exactness != "exact")
    cold = http.post("/completion", json={**body, "prompt": prompt, "cache_prompt": False}).json()
    if exactness == "exact":
        assert answer["content"] == cold["content"]
