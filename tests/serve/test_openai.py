"""OpenAI's routes, with OpenAI's client: the tokens are those of `gen batch`, and ignored fields are named."""

import asyncio
import json
import shlex
import subprocess
import sys

import openai
import pytest

from .gen_serve import run_async

PROMPTS = ["The sea was", "Once upon a time", "A man in a boat"]


def gen(*words, stdin=""):
    """Return what a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "logitsmith.cli", *words], input=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout


def batch(*bodies, url="/v1/completions"):
    """Return the bodies with which `gen batch` answers."""
    lines = [
        json.dumps({"custom_id": str(number), "method": "POST", "url": url, "body": body})
        for number, body in enumerate(bodies)
    ]
    results = [json.loads(line) for line in gen("batch", "-", "-t", "1", stdin="\n".join(lines)).splitlines()]
    return [result["response"]["body"] for result in sorted(results, key=lambda result: int(result["custom_id"]))]


def test_the_answers_are_those_of_a_batch(client):
    bodies = [
        {"prompt": prompt, "max_tokens": 12, "seed": seed, "logprobs": 2, "temperature": 1.2}
        for seed, prompt in enumerate(PROMPTS)
    ]
    for expected, body in zip(batch(*bodies), bodies, strict=True):
        answer = client.completions.create(model="", **body)
        assert answer.choices[0].text == expected["choices"][0]["text"]
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            theirs = expected["choices"][0]["logprobs"][key]
            ours = getattr(answer.choices[0].logprobs, key)
            if key == "top_logprobs":  # the chosen token is always there
                assert all(their.items() <= our.items() for their, our in zip(theirs, ours, strict=True))
            else:
                assert ours == theirs
        assert answer.usage.to_dict() == expected["usage"]
        assert answer.choices[0].finish_reason == expected["choices"][0]["finish_reason"]


def test_a_chat_is_that_of_a_batch(client):
    body = {"messages": [{"role": "user", "content": "Name a color."}], "max_tokens": 9, "seed": 4}
    (expected,) = batch(body, url="/v1/chat/completions")
    answer = client.chat.completions.create(model="", **body)
    assert answer.choices[0].message.content == expected["choices"][0]["message"]["content"]


@pytest.mark.parametrize("logprobs", [None, 0, 3])
@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_says_what_the_whole_answer_says(client, logprobs, echo):
    body = {"model": "", "prompt": PROMPTS, "n": 2, "max_tokens": 7, "seed": 5, "logprobs": logprobs, "echo": echo}
    whole = client.completions.create(**body)
    texts = [""] * 6
    tokens = [[] for _ in range(6)]
    reasons = [None] * 6
    usage = None
    for chunk in client.completions.create(**body, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.logprobs is not None:
                tokens[choice.index] += zip(
                    choice.logprobs.tokens,
                    choice.logprobs.token_logprobs,
                    choice.logprobs.text_offset,
                    strict=True,
                )
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage
    for choice, streamed in zip(whole.choices, tokens, strict=True):
        if logprobs is None:
            assert choice.logprobs is None
            assert streamed == []
        else:
            found = choice.logprobs
            assert streamed == list(zip(found.tokens, found.token_logprobs, found.text_offset, strict=True))


def test_choices_have_seeds_in_a_row(client):
    together = client.completions.create(model="", prompt="The sea was", n=3, seed=7, max_tokens=6)
    alone = [
        client.completions.create(model="", prompt="The sea was", seed=seed, max_tokens=6).choices[0].text
        for seed in (7, 8, 9)
    ]
    assert [choice.text for choice in together.choices] == alone


@pytest.mark.parametrize("seed", [2**32, 2**63 - 1, -5, -(2**63)], ids=str)
def test_a_seed_has_64_bits(client, seed):
    answers = [
        client.completions.create(model="", prompt="The sea was", max_tokens=3, seed=number, temperature=1.5)
        for number in (seed, seed % 2**32)
    ]
    assert answers[0].x_gen["seed"] == seed
    assert answers[0].choices[0].text == answers[1].choices[0].text


def test_a_random_seed_is_told_and_repeats(client):
    first = client.completions.create(model="", prompt="The sea was", max_tokens=8)
    again = client.completions.create(model="", prompt="The sea was", max_tokens=8, seed=first.x_gen["seed"])
    other = client.completions.create(model="", prompt="The sea was", max_tokens=8)
    assert first.choices[0].text == again.choices[0].text
    assert first.x_gen["seed"] != other.x_gen["seed"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"prompt": "The sea was", "temperature": 1.5, "top_k": 5}, id="settings"),
        pytest.param({"prompt": "Say 'yes' & \"no\"\n"}, id="quotes"),
        pytest.param({"prompt": r"a\nb", "stop": [r"\n"]}, id="backslashes"),
        pytest.param({"prompt": ""}, id="no prompt"),
        pytest.param({"prompt": "A number: ", "guided_regex": "[0-9]{3}"}, id="regex"),
        pytest.param({"prompt": "Answer:", "guided_choice": ["yes", "no, never"]}, id="choice"),
        pytest.param({"prompt": "x", "grammar": 'start: "a" /[bc]+/ "d"'}, id="lark"),
        pytest.param({"prompt": "x", "logit_bias": {"42": -3, "the": 1.5}, "stop": [".", "!"]}, id="biases"),
        pytest.param({"prompt": "x", "dry_multiplier": 0.8, "dry_sequence_breakers": '["\\n", ":"]'}, id="dry"),
    ],
)
def test_the_command_repeats_the_answer(client, body):
    body = {"max_tokens": 10, "seed": 3, **body}
    answer = client.completions.create(model="", prompt=body.pop("prompt"), extra_body=body)
    words = shlex.split(answer.x_gen["command"])
    assert words[0] == "gen"
    assert gen(words[1], "-t", "1", *words[2:]) == answer.choices[0].text


def test_each_stream_of_a_request_has_the_command_of_its_own_prompt(client):
    chunks = client.completions.create(model="", prompt=PROMPTS, max_tokens=1, n=2, stream=True)
    commands = {
        chunk.choices[0].index: shlex.split(chunk.x_gen["command"]) for chunk in chunks if hasattr(chunk, "x_gen")
    }
    assert [commands[index][-1] for index in sorted(commands)] == [text for text in PROMPTS for _ in range(2)]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"prompt": "x", "stop_token_ids": [30]}, id="tokens that end a text"),
        pytest.param({"prompt": "-"}, id="the name of stdin"),
        pytest.param({"prompt": "x", "bypass_eos": True}, id="no token ends a text"),
        pytest.param({"prompt": [0, 0, 0]}, id="special tokens"),
        pytest.param({"prompt": "a\0b"}, id="NUL"),
    ],
)
def test_there_is_no_command_where_none_repeats_the_answer(client, body):
    answer = client.completions.create(model="", prompt=body.pop("prompt"), extra_body={"max_tokens": 1, **body})
    assert answer.x_gen["command"] is None


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        pytest.param({"guidance_scale": 1.0, "negative_prompt": ""}, [], id="neutral"),
        pytest.param({"user": "me", "cache_prompt": True, "api_type": "koboldcpp"}, [], id="labels"),
        pytest.param({"typical": 0.5, "typical_p": 0.6}, ["typical_p"], id="two values of one setting"),
        pytest.param({"typical": 0.5, "typical_p": 0.5}, [], id="one value twice"),
        pytest.param({"top_a": 0.1, "samplers": ["top_k", "temperature"]}, ["top_a"], id="left out of the order"),
        pytest.param({"dynatemp_low": 0.5}, ["dynatemp_low"], id="half a range"),
        pytest.param({"top_k": None, "use_beam_search": True}, ["use_beam_search"], id="null is absent"),
    ],
)
def test_fields_without_effect_are_named(http, fields, ignored):
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **fields})
    assert answer.json()["x_gen"]["ignored"] == ignored
    assert answer.headers.get("x-gen-ignored") == (", ".join(ignored) or None)


@pytest.mark.parametrize(
    ("fields", "chain", "ignored"),
    [
        pytest.param({"samplers": ["top_k"]}, "top_k > synthid(keys=[1, 2]) > dist", [], id="llama.cpp's order"),
        pytest.param({"mirostat": 2}, "temperature=0.5 > mirostat_v2", ["synthid"], id="mirostat"),
        pytest.param(
            {"adaptive_target": 0.5}, "top_k > temperature=0.5 > adaptive_p=0.5", ["synthid"], id="adaptive"
        ),
    ],
)
def test_a_watermark_stays_or_is_named(http, fields, chain, ignored):
    body = {"prompt": "x", "max_tokens": 1, "chain": "top_k > temperature=0.5 > synthid(keys=[1, 2])"}
    facts = http.post("/v1/completions", json=body | fields).json()["x_gen"]
    assert facts["ignored"] == ignored
    assert facts["chain"] == chain


@pytest.mark.parametrize(
    ("fields", "chain"),
    [
        pytest.param({}, "top_k > top_p > min_p > temperature > dist", id="the default"),
        pytest.param({"temperature": 1, "top_p": 1, "min_p": 0, "top_k": 0}, "dist", id="all off"),
        pytest.param({"mirostat": 2, "mirostat_tau": 4}, "temperature > mirostat_v2=4.0", id="mirostat"),
        pytest.param({"samplers": ["temperature", "top_k"]}, "temperature > top_k > dist", id="llama.cpp's names"),
        pytest.param({"samplers": "tk"}, "temperature > top_k > dist", id="llama.cpp's letters"),
        pytest.param(
            {"sampler_order": [5, 2, 0], "top_a": 0.1},
            "top_a=0.1 > temperature > top_p > min_p > top_k > dist",
            id="KoboldCpp's numbers",
        ),
        pytest.param(
            {"sampler_priority": ["temperature", "min_p", "top_k", "top_p"]},
            "temperature > min_p > top_k > top_p > dist",
            id="text-generation-webui's names",
        ),
        pytest.param(
            {"sampler_priority": "min_p\ntemperature\ntop_k\ntop_p"},
            "min_p > temperature > top_k > top_p > dist",
            id="one name a line",
        ),
        pytest.param(
            {"samplers_priorities": ["top_nsigma", "min_p", "temperature", "top_p_top_k"], "top_n_sigma": 2},
            "top_n_sigma=2.0 > min_p > temperature > top_p > top_k > dist",
            id="Aphrodite's names",
        ),
        pytest.param({"temperature_last": True, "tfs": 0.9}, None, id="temperature last"),
        pytest.param(
            {"chain": "top-k3 > temp2", "min_p": 0.1}, "top_k=3 > min_p=0.1 > temperature=2.0 > dist", id="chain"
        ),
        pytest.param({"preset": "deterministic"}, "greedy", id="preset"),
        pytest.param({"set": {"top_k.k": 7}}, "top_k=7 > top_p > min_p > temperature > dist", id="set"),
    ],
)
def test_the_chain_is_told(http, fields, chain):
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **fields}).json()
    if chain is None:
        steps = answer["x_gen"]["chain"].split(" > ")
        assert steps[-2:] == ["temperature", "dist"]
        assert "tfs=0.9" in steps
    else:
        assert answer["x_gen"]["chain"] == chain


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"temprature": 1}, "'temprature': there is no such field; did you mean temperature?", id="typo"
        ),
        pytest.param({"temperature": -1}, "temperature: -1 is not ≥ 0", id="range"),
        pytest.param({"temperature": "hot"}, "temperature: 'hot' is not a number", id="type"),
        pytest.param({"preset": "../secret"}, "preset: unknown preset '../secret'", id="path"),
        pytest.param({"n": 0}, "n: 0 is not ≥ 1", id="no choice"),
        pytest.param({"prompt": []}, "prompt: the list is empty", id="no prompt"),
        pytest.param({"grammar": "root ::= (", "regex": "a"}, "both set a grammar", id="two grammars"),
        pytest.param({"grammar": "root ::= ("}, "grammar: line 1, column 10", id="grammar"),
        pytest.param({"grammar": {"file": "/etc/passwd"}}, "a grammar is GBNF", id="a file"),
        pytest.param({"set": ["grammar={file: /etc/passwd}"]}, "a grammar is GBNF", id="a file by set"),
        pytest.param({"prompt": [1, 10**9]}, "token id 1000000000 is not within 0..49151", id="ids"),
        pytest.param({"logit_bias": [[1, 2, 3]]}, "logit_bias: this is neither", id="biases"),
    ],
)
def test_errors_name_the_field(http, fields, message):
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **fields})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert message in error["message"]
    assert "root:" not in error["message"]
    assert error["type"] == "invalid_request_error"


def test_a_chat_template_is_not_read_from_a_file(http):
    body = {"messages": [{"role": "user", "content": "x"}], "chat_template": "/etc/passwd"}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("chat_template: neither Jinja nor the name")


def test_the_client_raises_its_own_errors(client):
    with pytest.raises(openai.BadRequestError, match="top_p: 3"):
        client.completions.create(model="", prompt="x", top_p=3)
    with pytest.raises(openai.NotFoundError, match="no such path"):
        client.embeddings.create(model="", input="x")


@pytest.mark.parametrize("grammar", ["json_schema", "response_format", "guided_json", "structured_outputs"])
def test_a_schema_in_each_notation(http, grammar):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    value = {
        "json_schema": schema,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        "guided_json": json.dumps(schema),
        "structured_outputs": {"json": schema},
    }[grammar]
    body = {"messages": [{"role": "user", "content": "Go"}], grammar: value, "max_tokens": 30, "temperature": 2}
    answer = http.post("/v1/chat/completions", json=body).json()
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"])["a"], bool)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_trace_and_a_second_source_are_those_of_gen_run(http, is_stream):
    flags = ("--seed", "3", "-n", "4", "--trace", "3", "--logprobs", "2", "--logprobs-from", "both")
    lines = gen("run", "-t", "1", "--no-chat", "--format", "jsonl", *flags, "--", "The sea was").splitlines()
    tokens = [line for line in map(json.loads, lines) if line["event"] == "token"]
    body = {
        "prompt": "The sea was",
        "seed": 3,
        "max_tokens": 4,
        "trace": 3,
        "logprobs": 2,
        "logprobs_from": "both",
    }
    answer = http.post("/v1/completions", json=body | {"stream": is_stream})
    bodies = (
        [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        if is_stream
        else [answer.json()]
    )
    content = [entry for body in bodies for entry in (body["choices"][0]["logprobs"] or {}).get("content", [])]
    assert [entry["trace"] for entry in content] == [token["trace"] for token in tokens]
    assert [entry["chain"]["logprob"] for entry in content] == [token["chain"]["logprob"] for token in tokens]
    for entry, token in zip(content, tokens, strict=True):
        expected = [(other["token"], other["logprob"]) for other in token["chain"]["top_logprobs"]]
        assert [(other["token"], other["logprob"]) for other in entry["chain"]["top_logprobs"]] == expected


@pytest.mark.parametrize("value", [{}, {"regex": "a+", "choice": ["b"]}, {"json": {}, "regex": "a"}])
def test_structured_outputs_are_one_grammar(http, value):
    answer = http.post("/v1/completions", json={"prompt": "x", "structured_outputs": value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "structured_outputs"
    assert "give exactly one of json, regex" in answer.json()["error"]["message"]


def test_a_trace_brings_the_logprobs_that_hold_it(client):
    answer = client.completions.create(model="", prompt="The sea", max_tokens=2, seed=7, extra_body={"trace": 2})
    assert [len(entry["trace"]["candidates"]) >= 2 for entry in answer.choices[0].logprobs.content] == [True] * 2


def test_only_allowed_tokens_and_tokens_that_stop(client):
    free = client.completions.create(model="", prompt="The sea was", max_tokens=5, seed=1, logprobs=0)
    ids = token_ids(client, free.choices[0].text)
    place = next(place for place in range(1, len(ids)) if ids[place] not in ids[:place])
    answer = client.completions.create(
        model="", prompt="The sea was", max_tokens=5, seed=1, extra_body={"stop_token_ids": [ids[place]]}
    )
    assert answer.choices[0].text == "".join(free.choices[0].logprobs.tokens[: place + 1])
    assert answer.choices[0].finish_reason == "stop"


def token_ids(client, text):
    """The tokens of a text, read from an echo."""
    body = {"prompt_logprobs": 0, "max_tokens": 0}
    answer = client.completions.create(model="", prompt="a" + text, extra_body=body)
    return [int(next(iter(entry))) for entry in answer.prompt_logprobs[1:]]


def test_many_clients_at_once(server):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{server}/v1", api_key="x", timeout=None, max_retries=0) as client:
            asked = [
                client.completions.create(model="", prompt=f"The number {i} is", max_tokens=6, seed=i)
                for i in range(16)
            ]
            return [answer.choices[0].text for answer in await asyncio.gather(*asked)]

    together = run_async(ask())
    expected = batch(*({"prompt": f"The number {i} is", "max_tokens": 6, "seed": i} for i in range(16)))
    assert together == [body["choices"][0]["text"] for body in expected]


def test_the_curl_lines_of_together(http):
    body = {
        "model": "codellama/CodeLlama-70b-Instruct-hf",
        "stream": False,
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "write an async function in python"}],
        "logprobs": 1,
    }
    answer = http.post("/v1/chat/completions", json=body).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == answer["choices"][0]["message"]["content"]
    assert len(logprobs["token_logprobs"]) == len(logprobs["tokens"])
    echoed = http.post("/v1/chat/completions", json={**body, "echo": True}).json()
    (prompt,) = echoed["prompt"]
    assert "write an async function in python" in prompt["text"]
    assert "".join(prompt["logprobs"]["tokens"]) == prompt["text"]
    assert prompt["logprobs"]["token_logprobs"][0] is None
    assert all(value < 0 for value in prompt["logprobs"]["token_logprobs"][1:])


def test_the_numbers_that_lm_eval_reads(client):
    prompts = [[504, 2045, 436], [504, 2045, 436, 260, 1234]]
    answer = client.completions.create(
        model="", prompt=prompts, max_tokens=1, temperature=0, logprobs=1, echo=True, seed=1234
    )
    for choice, ids in zip(answer.choices, prompts, strict=True):
        found = choice.logprobs
        assert len(found.token_logprobs) == len(ids) + 1
        assert found.token_logprobs[0] is None
        assert found.top_logprobs[0] is None
        for value, top in zip(found.token_logprobs[1:], found.top_logprobs[1:], strict=True):
            assert value in top.values()
            assert value <= max(top.values())
