"""The completion of llama.cpp's server: logprobs of the model, probabilities of the chain."""

import math

import pytest
from hypothesis import given, strategies as st
from logitsmith.logprobs.other_apis import LlamaServerChunks, llama_server_samplers

from .steps import FINISH_REASONS, STEPS, follow, run, said, step
from .test_shapes import RUNS, llama_server as response

OFF = {
    "temperature": 1.0,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "ignore_eos": False,
    "logit_bias": [],
}
SETTINGS = {
    "seed": 7,
    **OFF,
    "top_k": 40,
    "max_tokens": 16,
    "n_predict": 16,
    "n_ctx": 2048,
    "stop": [],
    "samplers": ["top_k", "dist"],
    "chain": [{"top_k": {"k": 40}}, {"dist": {}}],
    "grammar": "",
}
TIMINGS = {
    "cache_n": 2,
    "prompt_n": 2,
    "prompt_ms": 500.0,
    "prompt_per_token_ms": 250.0,
    "prompt_per_second": 4.0,
    "predicted_n": 3,
    "predicted_ms": 2000.0,
    "predicted_per_token_ms": 666.667,
    "predicted_per_second": 1.5,
}

# As `json` of the server puts them; the last one is there only with n_probs.
ORDER = [
    "index",
    "content",
    "tokens",
    "id_slot",
    "stop",
    "model",
    "tokens_predicted",
    "tokens_evaluated",
    "generation_settings",
    "prompt",
    "has_new_line",
    "truncated",
    "stop_type",
    "stopping_word",
    "tokens_cached",
    "timings",
    "completion_probabilities",
]

HALF, QUARTER = math.log(0.5), math.log(0.25)
MODEL = follow(
    step(b" a", said(HALF, (b" a", HALF), (b" b", QUARTER)), token=5),
    step(b"\xf0\x9f", said(QUARTER, (b"\n", HALF), (b"c\xf0", QUARTER)), token=6),
    step(b"\x98\x80", said(-1.0), token=7),
)
CHAIN = follow(
    step(b" a", said(HALF, (b" a", HALF), (b" b", QUARTER), source="chain"), token=5),
    step(b"c", said(None, (b"d", 0.0), (b"e", -math.inf), source="chain"), token=6),
)


@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_fields_stand_in_the_server_s_order(whole):
    names = [name for name in response(whole) if name != "logprobs_from"]
    assert names == (ORDER if whole.source else ORDER[:-1])


def test_the_model_s_logprobs_to_the_letter():
    assert response(run(MODEL, prompt="Say:"))["completion_probabilities"] == [
        {
            "id": 5,
            "token": " a",
            "bytes": [32, 97],
            "logprob": HALF,
            "top_logprobs": [
                {"id": 0, "token": " a", "bytes": [32, 97], "logprob": HALF},
                {"id": 1, "token": " b", "bytes": [32, 98], "logprob": QUARTER},
            ],
        },
        {
            "id": 6,
            "token": "",
            "bytes": [0xF0, 0x9F],
            "logprob": QUARTER,
            "top_logprobs": [
                {"id": 0, "token": "\n", "bytes": [10], "logprob": HALF},
                {"id": 1, "token": "c", "bytes": [99, 0xF0], "logprob": QUARTER},
            ],
        },
        {"id": 7, "token": "", "bytes": [0x98, 0x80], "logprob": -1.0, "top_logprobs": []},
    ]


def test_the_chain_s_probabilities_to_the_letter():
    near = pytest.approx
    assert response(run(CHAIN, source="chain"))["completion_probabilities"] == [
        {
            "id": 5,
            "token": " a",
            "bytes": [32, 97],
            "prob": near(0.5),
            "top_probs": [
                {"id": 0, "token": " a", "bytes": [32, 97], "prob": near(0.5)},
                {"id": 1, "token": " b", "bytes": [32, 98], "prob": near(0.25)},
            ],
        },
        {
            "id": 6,
            "token": "c",
            "bytes": [99],
            "prob": 0.0,
            "top_probs": [
                {"id": 0, "token": "d", "bytes": [100], "prob": 1.0},
                {"id": 1, "token": "e", "bytes": [101], "prob": 0.0},
            ],
        },
    ]


def test_the_rest_to_the_letter():
    found = response(run(MODEL, prompt="Say:"))
    del found["completion_probabilities"]
    assert found == {
        "index": 0,
        "content": " a😀",
        "tokens": [5, 6, 7],
        "id_slot": 0,
        "stop": True,
        "model": "SmolLM2-135M-Instruct",
        "tokens_predicted": 3,
        "tokens_evaluated": 4,
        "generation_settings": {**SETTINGS, "n_probs": 2, "post_sampling_probs": False},
        "prompt": "Say:",
        "has_new_line": False,
        "truncated": False,
        "stop_type": "eos",
        "stopping_word": "",
        "tokens_cached": 2,
        "timings": TIMINGS,
        "logprobs_from": "model",
    }


@pytest.mark.parametrize("name", RUNS)
def test_settings_say_which_probabilities_these_are(name):
    whole = RUNS[name]
    found = response(whole)["generation_settings"]
    assert (found["post_sampling_probs"], found["n_probs"]) == (whole.source == "chain", whole.top)
    assert SETTINGS.items() <= found.items()


# Each row: a chain, and the settings that differ from those of an empty chain.
CHAINS = {
    "greedy": ([{"greedy": {}}], {"temperature": 0.0}),
    "a temperature": ([{"temperature": {"t": 0.7}}], {"temperature": 0.7}),
    "a range": (
        [{"dynatemp": {"temperature": 0.9, "range": 0.3, "exponent": 2.0}}],
        {"temperature": 0.9, "dynatemp_range": 0.3, "dynatemp_exponent": 2.0},
    ),
    "mirostat": (
        [{"mirostat_v2": {"tau": 3.0, "eta": 0.2}}],
        {"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    ),
    "biases": (
        [{"ignore_eos": {}}, {"logit_bias": {"bias": {5: 1.0, 7: False}}}],
        {"ignore_eos": True, "logit_bias": [{"token": 5, "bias": 1.0}, {"token": 7, "bias": False}]},
    ),
    "a sampler that the server lacks": ([{"tfs": {"z": 0.9}}], {}),
}


@pytest.mark.parametrize(("chain", "wanted"), CHAINS.values(), ids=CHAINS)
def test_samplers_under_the_server_s_names(chain, wanted):
    names = [name for step in chain for name in step]
    assert llama_server_samplers(chain) == {**OFF, **wanted, "samplers": names, "chain": chain}


def chunks_of(whole):
    maker = LlamaServerChunks(prompt=whole.prompt)
    return [chunk for event in whole.events for chunk in maker.push(event)]


def check_chunks(whole):
    *chunks, last = chunks_of(whole)
    wanted = response(whole)
    found = [token for chunk in chunks for token in chunk.get("completion_probabilities", [])]
    assert found == wanted.get("completion_probabilities", [])
    assert "".join(chunk["content"] for chunk in [*chunks, last]) == wanted["content"]
    assert [chunk["tokens_predicted"] for chunk in chunks] == [*range(1, len(chunks) + 1)]
    wanted.pop("completion_probabilities", None)
    assert {**last, "content": wanted["content"], "tokens": wanted["tokens"]} == wanted


@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_chunks_have_all_that_a_response_has(whole):
    check_chunks(whole)


@given(st.lists(STEPS, max_size=3), st.sampled_from(["model", "chain", None]))
def test_chunks_of_any_run(steps, source):
    check_chunks(run(follow(*steps), source=source))


def test_a_chunk_to_the_letter():
    first = chunks_of(run(MODEL))[0]
    assert first == {
        "index": 0,
        "content": " a",
        "tokens": [5],
        "stop": False,
        "id_slot": -1,
        "tokens_predicted": 1,
        "tokens_evaluated": 4,
        "completion_probabilities": response(run(MODEL))["completion_probabilities"][:1],
    }


# Each row: our reason and the stop string, then the server's stop type and stopping word.
STOPS = {
    "the model ended": ("stop", None, "eos", ""),
    "a stop string": ("stop", "\n\n", "word", "\n\n"),
    "the grammar is done": ("grammar", None, "eos", ""),
    "enough tokens": ("length", None, "limit", ""),
    "the context is full": ("context", None, "limit", ""),
    "interrupted": ("interrupted", None, "none", ""),
}


@pytest.mark.parametrize(("reason", "stop", "kind", "word"), STOPS.values(), ids=STOPS)
def test_stop_types(reason, stop, kind, word):
    found = response(run(MODEL, reason=reason, stop=stop))
    assert (found["stop_type"], found["stopping_word"]) == (kind, word)


def test_every_reason_has_a_stop_type():
    assert {row[0] for row in STOPS.values()} == {*FINISH_REASONS}


@pytest.mark.parametrize("reason", FINISH_REASONS)
def test_a_full_context_truncates(reason):
    assert response(run(MODEL, reason=reason))["truncated"] is (reason == "context")


@pytest.mark.parametrize(("text", "found"), [("a\nb", True), ("\n", True), ("a\u2028\r", False), ("", False)])
def test_has_new_line(text, found):
    assert response(run(MODEL, text=text))["has_new_line"] is found


# Each row: the bytes of a token, then its text: what is cut off at its end is left out.
TOKENS = {
    "text": ("é中😀".encode(), "é中😀"),
    "nothing": (b"", ""),
    "control characters": (b"\0\n", "\0\n"),
    "the beginning of a character": (b"\xe4\xb8", ""),
    "text and a beginning": (b"ab\xe4\xb8", "ab"),
    "a character and a beginning": ("😀".encode() + b"\xf0", "😀"),
    "the end of a character": (b"\x98\x80", ""),
}


@pytest.mark.parametrize(("data", "text"), TOKENS.values(), ids=TOKENS)
@pytest.mark.parametrize("source", ["model", "chain"])
def test_token_text(data, text, source):
    whole = run([step(data, said(-1.0, (data, -1.0), source=source))], source=source)
    (found,) = response(whole)["completion_probabilities"]
    (top,) = found["top_logprobs" if source == "model" else "top_probs"]
    for token in (found, top):
        assert (token["token"], bytes(token["bytes"])) == (text, data)


@pytest.mark.parametrize("value", [None, -math.inf], ids=str)
def test_what_cannot_come_has_no_logprob_and_probability_0(value):
    (token,) = response(run([step(b"a", said(value))]))["completion_probabilities"]
    assert token["logprob"] is None
    whole = run([step(b"a", said(value, source="chain"))], source="chain")
    (token,) = response(whole)["completion_probabilities"]
    assert token["prob"] == 0.0
