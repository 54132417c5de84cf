"""OpenAI's routes, with OpenAI's client: the tokens are those of `gen batch`, and the command repeats them."""

import asyncio
import json
import shlex

import openai
import pytest

from .gen_serve import SECONDS_TO_WAIT, parts_of_stream, run_async

PROMPTS = ["The sea was", "Once upon a time", "A man in a boat"]


@pytest.fixture(scope="session")
def batch(gen):
    """Return the bodies with which `gen batch` answers."""

    def run(*bodies, url="/v1/completions"):
        lines = [
            json.dumps({"custom_id": str(number), "method": "POST", "url": url, "body": body})
            for number, body in enumerate(bodies)
        ]
        results = [json.loads(line) for line in gen("batch", "-", stdin="\n".join(lines)).splitlines()]
        return [
            result["response"]["body"] for result in sorted(results, key=lambda result: int(result["custom_id"]))
        ]

    return run


def test_the_answers_are_those_of_a_batch(client, batch):
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


def test_a_chat_is_that_of_a_batch(client, batch):
    body = {"messages": [{"role": "user", "content": "Name a color."}], "max_tokens": 9, "seed": 4}
    (expected,) = batch(body, url="/v1/chat/completions")
    answer = client.chat.completions.create(model="", **body)
    assert answer.choices[0].message.content == expected["choices"][0]["message"]["content"]


def test_many_clients_at_once(server, batch):
    async def ask():
        async with openai.AsyncOpenAI(
            base_url=f"{server.address}/v1", api_key="x", timeout=SECONDS_TO_WAIT, max_retries=0
        ) as client:
            asked = [
                client.completions.create(model="", prompt=f"The number {i} is", max_tokens=6, seed=i)
                for i in range(16)
            ]
            return [answer.choices[0].text for answer in await asyncio.gather(*asked)]

    together = run_async(ask())
    expected = batch(*({"prompt": f"The number {i} is", "max_tokens": 6, "seed": i} for i in range(16)))
    assert together == [body["choices"][0]["text"] for body in expected]


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


@pytest.mark.parametrize("logprobs", [None, 1])
def test_each_part_of_a_stream_has_the_usage_so_far(client, logprobs):
    body = {"model": "", "prompt": "The sea was", "n": 2, "max_tokens": 5, "seed": 5, "logprobs": logprobs}
    whole = client.completions.create(**body)
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [[], []]
    for chunk in client.completions.create(**body, stream=True, stream_options=options):
        assert chunk.usage.total_tokens == chunk.usage.prompt_tokens + chunk.usage.completion_tokens
        assert chunk.usage.prompt_tokens == whole.usage.prompt_tokens
        for choice in chunk.choices:
            counts[choice.index].append(chunk.usage.completion_tokens)
    assert chunk.usage == whole.usage
    for of_choice in counts:
        assert of_choice == sorted(of_choice)
        assert of_choice[-1] == 5


def test_choices_have_seeds_in_a_row(client):
    together = client.completions.create(model="", prompt="The sea was", n=3, seed=7, max_tokens=6)
    alone = [
        client.completions.create(model="", prompt="The sea was", seed=seed, max_tokens=6).choices[0].text
        for seed in (7, 8, 9)
    ]
    assert [choice.text for choice in together.choices] == alone


def test_a_seed_has_64_bits(client):
    for seed in (2**32, 2**63 - 1, -5, -(2**63)):
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


REPEATED = {
    "settings": {"prompt": "The sea was", "temperature": 1.5, "top_k": 5},
    "quotes": {"prompt": "Say 'yes' & \"no\"\n"},
    "backslashes": {"prompt": r"a\nb", "stop": [r"\n"]},
    "no prompt": {"prompt": ""},
    "regex": {"prompt": "A number: ", "guided_regex": "[0-9]{3}"},
    "choice": {"prompt": "Answer:", "guided_choice": ["yes", "no, never"]},
    "lark": {"prompt": "x", "grammar": 'start: "a" /[bc]+/ "d"'},
    "biases": {"prompt": "x", "logit_bias": {"42": -3, "the": 1.5}, "stop": [".", "!"]},
    "dry": {"prompt": "x", "dry_multiplier": 0.8, "dry_sequence_breakers": '["\\n", ":"]'},
}


@pytest.mark.parametrize("body", REPEATED.values(), ids=REPEATED)
def test_the_command_repeats_the_answer(client, gen, body):
    answer = client.completions.create(
        model="", prompt=body["prompt"], extra_body={"max_tokens": 10, "seed": 3} | body
    )
    name, *words = shlex.split(answer.x_gen["command"])
    assert name == "gen"
    assert gen(*words) == answer.choices[0].text


def test_each_stream_of_a_request_has_the_command_of_its_own_prompt(client):
    chunks = client.completions.create(model="", prompt=PROMPTS, max_tokens=1, n=2, stream=True)
    commands = {
        chunk.choices[0].index: shlex.split(chunk.x_gen["command"]) for chunk in chunks if hasattr(chunk, "x_gen")
    }
    assert [commands[index][-1] for index in sorted(commands)] == [text for text in PROMPTS for _ in range(2)]


NOT_REPEATED = {
    "tokens that end a text": {"prompt": "x", "stop_token_ids": [30]},
    "the name of stdin": {"prompt": "-"},
    "no token ends a text": {"prompt": "x", "bypass_eos": True},
    "special tokens": {"prompt": [0, 0, 0]},
    "NUL": {"prompt": "a\0b"},
}


@pytest.mark.parametrize("body", NOT_REPEATED.values(), ids=NOT_REPEATED)
def test_there_is_no_command_where_none_repeats_the_answer(server, body):
    assert server.post("/v1/completions", {"max_tokens": 1} | body)[1]["x_gen"]["command"] is None


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_trace_and_a_second_source_are_those_of_gen_run(server, gen, is_stream):
    flags = ("--seed", "3", "-n", "4", "--trace", "3", "--logprobs", "2", "--logprobs-from", "both")
    lines = gen("run", "--no-chat", "--format", "jsonl", *flags, "--", "The sea was").splitlines()
    tokens = [line for line in map(json.loads, lines) if line["event"] == "token"]
    body = {"prompt": "The sea was", "seed": 3, "max_tokens": 4}
    body |= {"trace": 3, "logprobs": 2, "logprobs_from": "both"}
    _, answer = server.post("/v1/completions", body | {"stream": is_stream})
    bodies = parts_of_stream(answer) if is_stream else [answer]
    content = [entry for body in bodies for entry in (body["choices"][0]["logprobs"] or {}).get("content", [])]
    assert [entry["trace"] for entry in content] == [token["trace"] for token in tokens]
    assert [entry["chain"]["logprob"] for entry in content] == [token["chain"]["logprob"] for token in tokens]
    for entry, token in zip(content, tokens, strict=True):
        expected = [(other["token"], other["logprob"]) for other in token["chain"]["top_logprobs"]]
        assert [(other["token"], other["logprob"]) for other in entry["chain"]["top_logprobs"]] == expected


def test_a_trace_brings_the_logprobs_that_hold_it(client):
    answer = client.completions.create(model="", prompt="The sea", max_tokens=2, seed=7, extra_body={"trace": 2})
    assert [len(entry["trace"]["candidates"]) >= 2 for entry in answer.choices[0].logprobs.content] == [True] * 2


def test_only_allowed_tokens_and_tokens_that_stop(client):
    body = {"model": "", "prompt": "The sea was", "max_tokens": 5, "seed": 1, "temperature": 2}
    free = client.completions.create(**body, logprobs=0)
    ids = token_ids(client, free.choices[0].text)
    place = next(place for place in range(1, len(ids)) if ids[place] not in ids[:place])
    answer = client.completions.create(**body, extra_body={"stop_token_ids": [ids[place]]})
    assert answer.choices[0].text == "".join(free.choices[0].logprobs.tokens[: place + 1])
    assert answer.choices[0].finish_reason == "stop"


def token_ids(client, text):
    """The tokens of a text, read from an echo."""
    body = {"prompt_logprobs": 0, "max_tokens": 0}
    answer = client.completions.create(model="", prompt="a" + text, extra_body=body)
    return [int(next(iter(entry))) for entry in answer.prompt_logprobs[1:]]


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
