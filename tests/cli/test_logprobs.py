"""Logprobs on the command line: sources, named tokens, whole rows, the prompt's, and the other shapes."""

import base64
import json

import numpy as np
import pytest

RUN = ("The sea was", "-t", "1", "-n", "3", "--seed", "7")


def test_both_sources_named_tokens_and_the_prompt(gen):
    asked = ("--logprobs", "2", "--logprobs-from", "both", "--logprob-of", 'yes, " no", <[42]>', "--echo")
    lines = gen(*RUN, "--format", "jsonl", *asked).lines
    start, *steps, done = lines
    assert start["logprobs"]["from"] == "both"
    assert start["logprobs"]["of"] == [10407, 787, 42]
    assert [step["event"] for step in steps] == ["prompt"] * 3 + ["token"] * 3
    assert [step["token"] for step in steps[:3]] == ["The", " sea", " was"]
    assert steps[0]["logprob"] is None
    assert all(step["logprobs_from"] == "model" and step["logprob"] < 0 for step in steps[1:])
    for step in steps[3:]:
        assert len(step["top_logprobs"]) == 2
        assert [token["token"] for token in step["logprob_of"]] == ["yes", " no", ":"]
        assert step["chain"]["logprob"] <= 0
        assert step["chain"]["logprob_of"][0]["logprob"] is None
        assert step["entropy"] > step["chain"]["entropy"]
    assert done["finish_reason"] == "length"


def test_whole_rows(gen):
    start, token, _ = gen(*RUN[:3], "-n", "1", "--format", "jsonl", "--logprobs", "-1").lines
    row = np.frombuffer(base64.b64decode(token["row"]), "<f4")
    assert row.size == start["logprobs"]["row"]["size"] == 49152
    assert row[token["id"]] == pytest.approx(token["logprob"], abs=1e-5)
    assert np.exp(row.astype(float)).sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["openai", "openai-chat", "together", "llama-server"])
def test_shapes(gen, name):
    out = gen(*RUN, "--no-chat", "--format", name, "--logprobs", "2").out
    found = json.loads(out)
    assert out.count("\n") == 1
    assert found["logprobs_from"] == "model"
    assert " a place where" in out
    assert '"length"' in out or '"limit"' in out


def test_echo_in_the_shapes_that_have_it(gen):
    found = json.loads(gen(*RUN, "--format", "openai", "--logprobs", "1", "--echo").out)["choices"][0]
    assert found["text"] == "The sea was a place where"
    assert found["logprobs"]["tokens"] == ["The", " sea", " was", " a", " place", " where"]
    assert found["logprobs"]["token_logprobs"][0] is None
    assert found["logprobs"]["text_offset"] == [0, 3, 7, 11, 13, 19]
    found = json.loads(gen(*RUN, "--format", "together", "--logprobs", "1", "--echo").out)
    assert found["prompt"][0]["text"] == "The sea was"
    assert len(found["prompt"][0]["logprobs"]["token_logprobs"]) == 3


def test_streamed_chunks(gen):
    for name, part in (("openai", "text"), ("openai-chat", "delta")):
        *events, end = gen(*RUN, "--no-chat", "--format", name, "--stream").out.split("\n\n")[:-1]
        assert end == "data: [DONE]"
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
        texts = [choice[part] if part == "text" else choice[part].get("content", "") for choice in choices]
        assert "".join(texts) == " a place where"
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1]["finish_reason"] == "length"


WRONG = {
    "below -1": (["--format", "jsonl", "--logprobs", "-2"], "--logprobs: -2 is not ≥ 0"),
    "more than there are": (["--format", "jsonl", "--logprobs", "50000"], "more than the 49,152 tokens"),
    "without a format": (["--logprobs", "3"], "--logprobs needs a --format with room"),
    "named without a format": (["--logprob-of", "a"], "--logprob-of needs a --format with room"),
    "rows in openai": (["--format", "openai", "--logprobs", "-1"], "--format openai has no room for it"),
    "both in together": (
        ["--format", "together", "--logprobs", "1", "--logprobs-from", "both"],
        "--logprobs-from both: --format together has no room",
    ),
    "a source without logprobs": (["--format", "openai", "--logprobs-from", "chain"], "needs --logprobs"),
    "echo in a chat": (["--format", "openai-chat", "--echo"], "has no room for the prompt's tokens"),
    "echo with the chain's": (
        ["--format", "openai", "--logprobs", "1", "--logprobs-from", "chain", "--echo"],
        "a prompt's logprobs are the model's",
    ),
    "a stream of text": (["--stream"], "--format text streams anyway"),
    "a stream of one object": (["--format", "together", "--stream"], "--format together is one object"),
    "several tokens": (["--format", "jsonl", "--logprob-of", "yes, lighthouses"], "is 3 tokens of this model"),
    "a token with a blank": (["--format", "jsonl", "--logprob-of", "lighthouse"], "write '\" lighthouse\"'"),
    "an empty text": (
        ["--format", "jsonl", "--logprob-of", "yes,"],
        "an empty text is no token; a comma too many?",
    ),
    "an open text": (["--format", "jsonl", "--logprob-of", 'yes, "no'], "'\"no' is not a text"),
    "half a pair": (["--format", "jsonl", "--logprob-of", r'"\ud800"'], "half of a surrogate pair is no text"),
    "a long id": (["--format", "jsonl", "--logprob-of", f"<[{'9' * 5000}]>"], "tokens of this model"),
    "an id beyond": (["--format", "jsonl", "--logprob-of", "<[49152]>"], "token ids go from 0 to 49151"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(gen, arguments, message):
    result = gen(*RUN, *arguments, code=2)
    assert message in " ".join(result.err.replace("│", "").split())
    assert not result.out
