"""Logprobs on the command line: sources, named tokens, whole rows, the prompt's, and the other shapes."""

import base64
import json
import re

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


def test_echo_in_the_shapes_that_have_it(gen):
    found = json.loads(gen(*RUN, "--format", "openai", "--logprobs", "1", "--echo").out)["choices"][0]
    assert found["text"] == "The sea was a place where"
    assert found["logprobs"]["tokens"] == ["The", " sea", " was", " a", " place", " where"]
    assert found["logprobs"]["token_logprobs"][0] is None
    assert found["logprobs"]["text_offset"] == [0, 3, 7, 11, 13, 19]
    found = json.loads(gen(*RUN, "--format", "together", "--logprobs", "1", "--echo").out)
    assert found["prompt"][0]["text"] == "The sea was"
    assert len(found["prompt"][0]["logprobs"]["token_logprobs"]) == 3


def server_sent_choices(out):
    *events, end = out.split("\n\n")[:-1]
    assert end == "data: [DONE]"
    return [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]


def named_bytes(name):
    """The bytes that a token's name stands for in OpenAI's completions and Together's."""
    if not name.startswith("bytes:"):
        return name.encode()
    return re.sub(r"\\x([0-9a-f]{2})", lambda part: chr(int(part[1], 16)), name[6:]).encode("latin-1")


def text_and_tokens(name, out):
    """The text of an output, and the bytes of its tokens."""
    if name == "jsonl":
        lines = [json.loads(line) for line in out.splitlines()]
        return lines[-1]["text"], [line["text"].encode() for line in lines if line["event"] == "token"]
    if name == "llama-server":
        found = json.loads(out)
        return found["content"], [bytes(token["bytes"]) for token in found["completion_probabilities"]]
    choices = server_sent_choices(out) if out.startswith("data: ") else json.loads(out)["choices"]
    if name == "openai-chat":
        messages = [choice.get("message") or choice["delta"] for choice in choices]
        text = "".join(message.get("content", "") for message in messages)
        lists = [choice["logprobs"]["content"] for choice in choices if choice["logprobs"]]
        return text, [bytes(token["bytes"]) for tokens in lists for token in tokens]
    lists = [choice["logprobs"]["tokens"] for choice in choices if choice["logprobs"]]
    return "".join(choice["text"] for choice in choices), [named_bytes(one) for tokens in lists for one in tokens]


FORMATS = ["openai", "together", "llama-server", "jsonl", "openai --stream", "openai-chat --stream"]
# Each row: flags of a run whose text a grammar decides, and the text.
ENDS = {
    "the end token": (["--regex", "Look: 😀 cat"], "Look: 😀 cat"),
    "a stop text inside a token": (["--regex", "Look: 😀 cat", "--stop", "at"], "Look: 😀 c"),
    "a stop text that is a character of several tokens": (["--regex", "Look: 😀 cat", "--stop", "😀"], "Look: "),
    "a stop text that only began": (["--regex", "Look: 😀 cat", "--stop", " catalog"], "Look: 😀 cat"),
    "inside a character": (["--regex", "🜂+", "-n", "2"], "\ufffd"),
}


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("flags", "text"), ENDS.values(), ids=ENDS)
def test_tokens_joined_are_the_text(gen, form, flags, text):
    arguments = ("--format", *form.split(), "--logprobs", "1", "--no-chat", "-t", "1", "--seed", "7")
    found, tokens = text_and_tokens(form.split()[0], gen("The sea", *flags, *arguments).out)
    assert found == text
    assert b"".join(tokens).decode(errors="replace") == text


def test_the_end_token_of_a_chat_is_not_in_its_logprobs(gen):
    arguments = ("Say only: Hi", "--temp", "0", "-t", "1", "--logprobs", "1")
    for form in ("openai-chat", "openai"):
        text, tokens = text_and_tokens(form, gen(*arguments, "--chat", "--format", form).out)
        assert b"".join(tokens).decode() == text
        assert b"<|im_end|>" not in tokens
    found = json.loads(gen(*arguments, "--chat", "--format", "llama-server").out)
    *_, last = found["completion_probabilities"]
    assert (found["stop_type"], last["id"], last["token"], last["bytes"]) == ("eos", found["tokens"][-1], "", [])


WRONG = {
    "below -1": (["--format", "jsonl", "--logprobs", "-2"], "--logprobs: -2"),
    "more than there are": (["--format", "jsonl", "--logprobs", "50000"], "--logprobs"),
    "without a format": (["--logprobs", "3"], "--logprobs needs a --format"),
    "named without a format": (["--logprob-of", "a"], "--logprob-of needs a --format"),
    "rows in openai": (["--format", "openai", "--logprobs", "-1"], "--format openai"),
    "both in together": (
        ["--format", "together", "--logprobs", "1", "--logprobs-from", "both"],
        "--logprobs-from both: ",
    ),
    "a source without logprobs": (["--format", "openai", "--logprobs-from", "chain"], "--logprobs"),
    "echo in a chat": (["--format", "openai-chat", "--echo"], "--echo: "),
    "echo with the chain's": (
        ["--format", "openai", "--logprobs", "1", "--logprobs-from", "chain", "--echo"],
        "--echo with --logprobs-from chain: ",
    ),
    "a stream of text": (["--stream"], "--format text"),
    "a stream of one object": (["--format", "together", "--stream"], "--format together"),
    "several tokens": (["--format", "jsonl", "--logprob-of", "yes, lighthouses"], "tokens of this model"),
    "an empty text": (["--format", "jsonl", "--logprob-of", "a,"], "comma"),
    "an open text": (["--format", "jsonl", "--logprob-of", 'a, "no'], "'\"no'"),
    "half a pair": (["--format", "jsonl", "--logprob-of", r'"\ud800"'], "surrogate"),
    "a long id": (["--format", "jsonl", "--logprob-of", f"<[{'9' * 5000}]>"], "tokens of this model"),
    "an id beyond": (["--format", "jsonl", "--logprob-of", "<[8192]>"], "0 to 8191"),
}


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize(("arguments", "named"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(gen, arguments, named):
    result = gen(*RUN, *arguments, code=2)
    assert named in " ".join(result.err.replace("│", "").split())
    assert not result.out
