"""`generate`: events, finish reasons, logprobs, constraints."""

import dataclasses

import numpy as np
import pytest
from logitsmith.engine import Done, ModelError, Start, Token, format_chat, generate
from logitsmith.samplers import build

PROMPT = "The sea was"
STORY = "temp0.8 > top-k40"


def run(model, prompt=PROMPT, chain="greedy", seed=7, **options):
    options.setdefault("max_tokens", 12)
    events = list(generate(model, prompt, build(chain, seed=seed, vocab=model.vocabulary), **options))
    return events[0], events[1:-1], events[-1]


def ids_of(tokens):
    return [token.chosen.id for token in tokens]


def test_events_come_in_order_and_are_frozen(model):
    start, tokens, done = run(model)
    assert isinstance(start, Start)
    assert all(isinstance(token, Token) for token in tokens)
    assert isinstance(done, Done)
    assert [token.index for token in tokens] == list(range(12))
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.text = ""


def test_start_holds_what_repeats_the_run(model):
    start, _, _ = run(model, chain="top-k5 > temp0.5", seed=11, stop=["#"])
    assert start.model == model.name
    assert start.seed == 11
    assert start.chain == [{"top_k": {"k": 5}}, {"temperature": {"t": 0.5}}, {"dist": {}}]
    assert start.prompt_ids == tuple(model.vocabulary.tokenize(PROMPT.encode()))
    assert start.stop == ("#",)
    assert set(start.versions) == {"logitsmith", "llama-cpp-python"}


def test_same_seed_same_text_and_another_seed_another(model):
    texts = [run(model, chain=STORY, seed=seed, max_tokens=30)[2].text for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_text_is_the_tokens(model):
    _, tokens, done = run(model, chain=STORY, max_tokens=40)
    assert "".join(token.text for token in tokens) + done.rest == done.text
    assert model.vocabulary.detokenize(ids_of(tokens)).decode() == done.text
    assert done.completion_tokens == 40 == len(tokens)
    assert done.finish_reason == "length"


def test_stop_string_over_several_tokens(model):
    _, _, free = run(model, max_tokens=30)
    stop = free.text[10:22]
    assert run(model, max_tokens=30, stop=stop)[2].text == free.text[: free.text.index(stop)]
    _, tokens, done = run(model, max_tokens=30, stop=["never this", stop])
    assert done.finish_reason == "stop"
    assert done.stop == stop
    assert done.text == free.text[: free.text.index(stop)]
    assert "".join(token.text for token in tokens) + done.rest == done.text


def test_end_of_generation_token_is_an_event_without_text(bundled):
    model = bundled
    prompt = format_chat(model, [{"role": "user", "content": "Say hi."}])
    _, tokens, done = run(model, prompt, max_tokens=200)
    assert done.finish_reason == "stop"
    assert done.stop is None
    assert tokens[-1].chosen.id in model.vocabulary.eog
    assert tokens[-1].text == ""
    assert "<|im_end|>" not in done.text


def test_a_full_context_ends_the_run(small_context):
    model = small_context
    fits = [5] * (model.context.length - 3)
    _, tokens, done = run(model, fits, max_tokens=None, chain="ignore_eos > greedy")
    assert done.finish_reason == "context"
    assert len(tokens) == 4  # the last one needs no room: it is not read back
    with pytest.raises(ModelError, match="the prompt has 257 tokens and the context holds 256"):
        run(model, [5] * 257)


def test_interruption_keeps_what_was_made(model):
    chain = build("greedy", vocab=model.vocabulary)
    events = []
    for event in generate(model, PROMPT, chain, is_interrupted=lambda: len(events) == 4):
        events.append(event)
    _, *tokens, done = events
    assert done.finish_reason == "interrupted"
    assert len(tokens) == 3
    assert done.text == "".join(token.text for token in tokens)


def test_interruption_while_the_prompt_is_read(model):
    start, tokens, done = run(model, [5, 6, 7] * 20, is_interrupted=lambda: True)
    assert start.prompt_tokens == 60
    assert tokens == []
    assert (done.finish_reason, done.text, done.completion_tokens) == ("interrupted", "", 0)
    assert run(model, [5, 6, 7] * 20)[2].completion_tokens == 12


def test_logprobs_are_the_raw_log_softmax(model):
    _, tokens, _ = run(model, chain="top-k2 > temp0.1", top_logprobs=5, max_tokens=6)
    ids = list(model.vocabulary.tokenize(PROMPT.encode()))
    for token in tokens:
        model.context.read(ids)
        row = model.context.logits().astype(np.float64)
        expected = row - row.max() - np.log(np.exp(row - row.max()).sum())
        assert token.chosen.logprob == pytest.approx(expected[token.chosen.id], abs=1e-6)
        assert [top.id for top in token.top] == np.argsort(-expected, kind="stable")[:5].tolist()
        assert [top.logprob for top in token.top] == pytest.approx(sorted(expected)[:-6:-1], abs=1e-6)
        ids.append(token.chosen.id)


LIKELIEST = ["top-k1", "top-k40 > temp0.01 > top-k1", "temp0.5 > top-k1", "ignore_eos > top-k40 > top-k1"]


@pytest.mark.parametrize("top_logprobs", [0, 5, 60, -1])
@pytest.mark.parametrize("chain", LIKELIEST)
def test_a_chain_does_not_change_the_models_logprobs(model, chain, top_logprobs):
    """Tests whether the chain found the most likely tokens, some of them, or others."""
    _, expected, _ = run(model, top_logprobs=top_logprobs)
    _, tokens, _ = run(model, chain=chain, top_logprobs=top_logprobs)
    assert tokens == expected


@pytest.mark.parametrize(("top_logprobs", "count", "has_logprob"), [(None, 0, False), (0, 0, True), (3, 3, True)])
def test_logprobs_only_on_request(model, top_logprobs, count, has_logprob):
    _, tokens, _ = run(model, top_logprobs=top_logprobs, max_tokens=2)
    assert [len(token.top) for token in tokens] == [count] * 2
    assert all((token.chosen.logprob is not None) == has_logprob for token in tokens)


class OnlyDigits:
    """A constraint that allows only digits."""

    def __init__(self, vocabulary):
        self.allowed = np.array([piece.isdigit() for piece in vocabulary.pieces])
        self.accepted = []

    def mask(self):
        return self.allowed

    def accept(self, token):
        self.accepted.append(token)


def test_constraint_masks_first_and_accepts_each_token(model):
    digits = OnlyDigits(model.vocabulary)
    _, tokens, done = run(model, chain="top-k1", constraint=digits)
    assert done.text.isdigit()
    assert digits.accepted == ids_of(tokens)


def test_prompt_as_text_bytes_or_ids(model):
    ids = model.vocabulary.tokenize(PROMPT.encode())
    texts = {run(model, prompt)[2].text for prompt in (PROMPT, PROMPT.encode(), ids)}
    assert len(texts) == 1


def test_empty_prompt_begins_with_bos(model):
    start, _, _ = run(model, "")
    assert start.prompt_ids == (model.vocabulary.bos,)


def test_tokens_of_a_common_prefix_are_counted(model):
    run(model, "A long beginning that both prompts share, and then one.")
    start, _, _ = run(model, "A long beginning that both prompts share, and then another.")
    assert 5 < start.cached_tokens < start.prompt_tokens
