"""The tokens that each shape lists of a real run: joined they are its text, and each drawn one has one entry."""

import math

import pytest
from logitsmith.engine.generation import generate
from logitsmith.engine.model import Model
from logitsmith.logprobs.events import PromptToken, events_by_kind
from logitsmith.logprobs.openai import ChatAnswer, LogprobShape, TextAnswer, prompt_logprobs
from logitsmith.logprobs.other_apis import kobold_result, llama_server_completion, together_completion
from logitsmith.logprobs.text_tokens import tokens_of_prompt
from logitsmith.samplers.building import build

from .big_model import write_sentencepiece_model


@pytest.fixture(scope="module", params=["BOS", "no BOS"])
def sentencepiece(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("sentencepiece") / "model.gguf"
    write_sentencepiece_model(path, adds_bos=request.param == "BOS")
    with Model.load(path, n_ctx=128) as loaded:
        yield loaded


def run(model, prompt, **settings):
    chain = build(["greedy"], vocab=model.vocabulary)
    return list(generate(model, prompt, chain, **{"max_tokens": 3, "top_logprobs": 2, "echo": True, **settings}))


def whole(answer, events, prompt=""):
    return answer.whole(answer.chunks(events, prompt=prompt))


def streamed(events, prompt, echo):
    choices = [chunk["choices"][0] for chunk in TextAnswer("a", echo=echo).stream(events, prompt)]
    lists = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    joined = {name: [value for found in lists for value in found[name]] for name in lists[0]} if lists else {}
    return "".join(choice["text"] for choice in choices), joined


def check_places(text, logprobs):
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert text[offset : offset + len(token)] == token


def check_completion(events, prompt, echo=True):
    """Check OpenAI's whole answer and its stream, and return the lists."""
    (choice,) = whole(TextAnswer("a", echo=echo), events, prompt)["choices"]
    text, logprobs = choice["text"], choice["logprobs"]
    done = events[-1]
    assert text == (prompt if echo else "") + done.text
    count = done.completion_tokens + (done.prompt_tokens if echo else 0)
    assert {len(values) for values in logprobs.values()} == {count}
    if not any(token.startswith("bytes:") for token in logprobs["tokens"]):
        assert "".join(logprobs["tokens"]) == text
    check_places(text, logprobs)
    assert streamed(events, prompt, echo) == (text, logprobs)
    for value, table in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        if table is not None:
            assert value in table.values()
            assert sum(map(math.exp, table.values())) <= 1 + 1e-9
    return logprobs


PROMPTS = {
    "plain": "The sea",
    "a blank first": " The sea",
    "blanks": "  The  sea ",
    "BOS in the text": "<s>The sea",
    "BOS twice": "<s><s>The",
    "BOS alone": "<s>",
    "control tokens within": "The</s> sea<s>The",
    "control tokens at the end": "sea</s>",
    "a divided character": "The 日本 😀",
    "line ends": "The\n\nsea\n",
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_echoed_tokens_of_sentencepiece_stand_at_their_places(sentencepiece, prompt):
    events = run(sentencepiece, prompt)
    logprobs = check_completion(events, prompt)
    assert logprobs["token_logprobs"][0] is None
    (record,) = together_completion([events], "a", prompt=prompt, echo=True)["prompt"]
    assert record["logprobs"]["tokens"] == logprobs["tokens"][: events[-1].prompt_tokens]


def test_bos_in_the_text_is_counted(sentencepiece):
    assert check_completion(run(sentencepiece, "<s>The sea"), "<s>The sea")["text_offset"][:4] == [0, 3, 4, 5]


def test_ids_of_control_tokens_have_no_text(model):
    ids = [1, *model.vocabulary.tokenize(b"The sea"), 2, *model.vocabulary.tokenize(b" was")]
    shown = model.vocabulary.detokenize(ids).decode()
    logprobs = check_completion(run(model, ids), shown)
    assert logprobs["tokens"][: len(ids)] == ["", "The", " sea", "", " was"]


def test_white_space_that_a_tokenizer_drops_belongs_to_the_token_before():
    tokens = [
        PromptToken(0, 1, b"<|user|>", "<|user|>", False),
        PromptToken(1, 2, b" Hello", " Hello", False, added_bytes=1),
        PromptToken(2, 3, b"<|end|>", "<|end|>", False),
    ]
    found = tokens_of_prompt(tokens, "<|user|>\nHello<|end|>\n")
    assert [token.data for token in found] == [b"<|user|>\n", b"Hello", b"<|end|>\n"]


STOPS = {
    "inside a token": ("The capital of France is", {"stop": ["aris"]}),
    "inside the second token": ("The capital of France is", {"stop": ["Paris."[:5] + "."]}),
    "a whole token": ("The capital of France is", {"stop": [" Paris"]}),
    "the end token": ("If you have any other questions, feel free to ask.", {"max_tokens": 1}),
    "a divided character": ("I 😀 😀 😀", {"max_tokens": 5}),
}


@pytest.mark.parametrize(("prompt", "settings"), STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("echo", [True, False], ids=["echo", "no echo"])
def test_each_drawn_token_has_one_entry(bundled, prompt, settings, echo):
    events = run(bundled, prompt, **settings)
    logprobs = check_completion(events, prompt, echo)
    run_events = events_by_kind(events)
    tokens, done = run_events.tokens, run_events.done
    for token, table in zip(tokens[::-1], logprobs["top_logprobs"][::-1], strict=False):
        names = {other.text for other in (*token.top, token.chosen)}
        assert set(table) == names
        assert len(table) == len({token.id, *(other.id for other in token.top)})
    together = together_completion([events], "a", prompt=prompt, echo=echo)
    assert together["choices"][0]["logprobs"]["top_logprobs"] == logprobs["top_logprobs"][-len(tokens) :]
    assert together["choices"][0]["logprobs"]["tokens"] == logprobs["tokens"][-len(tokens) :]
    for entry in llama_server_completion(events)["completion_probabilities"]:
        ids = [other["id"] for other in entry["top_logprobs"]]
        assert len(ids) == len(set(ids)) == 2
    content = kobold_result(events)["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content if not entry["token"].startswith("bytes:")) in done.text
    assert all(len(entry["top_logprobs"]) <= 3 for entry in content)


HEALED = {
    "one token covers the end": ("The capital of Fran", 2),
    "a blank at the end": ("The capital of ", 2),
    "the end is not spelled completely": ("The capital of Fran", 0),
}


@pytest.mark.parametrize("echo", [True, False], ids=["echo", "no echo"])
@pytest.mark.parametrize(("prompt", "length"), HEALED.values(), ids=HEALED)
def test_healed_tokens_joined_are_the_text(bundled, prompt, length, echo):
    events = run(bundled, prompt, heal=True, max_tokens=length)
    if length == 0:
        assert streamed(events, prompt, echo)[0] == (prompt if echo else "")
        return
    logprobs = check_completion(events, prompt, echo)
    (choice,) = together_completion([events], "a", prompt=prompt, echo=True)["choices"]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == events[-1].text
    (record,) = together_completion([events], "a", prompt=prompt, echo=True)["prompt"]
    assert "".join(record["logprobs"]["tokens"]) == prompt
    assert record["logprobs"]["token_logprobs"][-1] is None
    tokens = events_by_kind(events).tokens
    assert tokens[0].chosen.text.encode() == bundled.vocabulary.piece(tokens[0].id)
    assert tokens[0].chosen.text in logprobs["top_logprobs"][-len(tokens)]


def test_content_of_chats_lists_the_number_that_is_asked_for(bundled):
    chain = build([{"temperature": 3.0}, "dist"], vocab=bundled.vocabulary, seed=3)
    events = list(generate(bundled, "The sea was", chain, max_tokens=8, top_logprobs=5))
    shape = LogprobShape(has_both_forms=True, has_all_requested=True, top_count=2)
    (choice,) = whole(ChatAnswer("a", shape=shape), events)["choices"]
    assert [len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]] == [2] * 8
    (choice,) = whole(TextAnswer("a", shape=shape), events)["choices"]
    assert max(len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]) == 3
    for value, table in zip(choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"], strict=True):
        assert value in table.values()


def test_the_rank_of_a_prompts_token_is_its_place_among_all(bundled):
    tokens = events_by_kind(run(bundled, "The zebra was", max_tokens=1)).prompt_tokens
    for count in (0, 1, 5):
        found = prompt_logprobs(tokens, count)
        assert found[0] is None
        for token, entries in zip(tokens[1:], found[1:], strict=True):
            rank = entries[str(token.id)]["rank"]
            listed = [entry["rank"] for entry in entries.values()]
            assert len(set(listed)) == len(listed)
            assert rank <= max(count, 2) if token.id in [other.id for other in token.top] else rank > 2
