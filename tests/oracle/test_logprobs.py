"""Logprobs are those of llama.cpp's own logits, in float64; and what the chain leaves sums to one."""

import itertools

import numpy as np
import pytest
from logitsmith.engine import (
    LogprobRequest,
    Model,
    PromptToken,
    Token,
    generate,
    locate,
    score,
    score_choices,
    score_prompt,
    tokenize_continuation,
)
from logitsmith.grammars import compile_grammar
from logitsmith.samplers import build

from .native_logits import NativeLogits

TEXTS = {
    "English": "The sea was calm, and the lighthouse keeper slept.",
    "Russian": "Море было спокойно, и смотритель маяка спал.",  # noqa: RUF001
    "Chinese": "大海很平静，灯塔看守人睡着了。",  # noqa: RUF001
    "Arabic": "كان البحر هادئا",
    "Hindi": "समुद्र शांत था",
    "emoji": "Look: 😀👩\u200d🚀 and 🇫🇷!",
    "code": "def f(x):\n\treturn x + 1  # naïve\n",
    "control tokens": "<|im_start|>user\nHi<|im_end|>\n",
    "one token": "The",
}


@pytest.fixture(scope="module", params=["pruned", pytest.param("bundled", marks=pytest.mark.slow)])
def model(request):
    path = locate()[0] if request.param == "bundled" else request.getfixturevalue("pruned_model")
    with Model.load(path, n_ctx=512, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def native(model):
    reader = NativeLogits(model._native.handle, model.vocabulary.size)
    yield reader
    reader.close()


@pytest.mark.parametrize(
    "bos", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["with BOS", "without BOS"]
)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_prompts_logprobs(model, native, text, bos):
    vocabulary = model.vocabulary
    ids = [vocabulary.bos] * bos + vocabulary.tokenize_prompt(text.encode())
    steps = list(score_prompt(model, ids, LogprobRequest(4, token_ids=(0, 253))))
    expected = native.logprobs(ids)
    assert [step.id for step in steps] == ids
    assert b"".join(step.data for step in steps[bos:]) == text.encode()
    assert "".join(step.text for step in steps[bos:]) == text
    assert steps[0].distributions == ()
    for i, step in enumerate(steps[1:], 1):
        row = expected[i - 1]
        assert step.chosen.logprob == pytest.approx(row[ids[i]], abs=1e-6)
        assert [top.logprob for top in step.top] == pytest.approx(sorted(row)[:-5:-1], abs=1e-6)
        assert [top.logprob for top in step.distributions[0].named] == pytest.approx(row[[0, 253]], abs=1e-6)
        assert step.distributions[0].entropy == pytest.approx(-(np.exp(row) * row).sum(), abs=1e-4)


@pytest.mark.parametrize("jump", [True, False], ids=["jumping", "token by token"])
@pytest.mark.parametrize("echo", [True, False], ids=["echo", "no echo"])
def test_what_is_written(model, native, echo, jump):
    grammar = compile_grammar(
        'root ::= " a man named " [A-Z] [a-z]+ " who lived by the sea" .{5}', model.vocabulary
    )
    events = list(
        generate(
            model,
            "There was",
            build("temp0.9", seed=3),
            grammar.start(),
            max_tokens=20,
            top_logprobs=3,
            logprob_of=(253, 7),
            echo=echo,
            jump=jump,
        )
    )
    prompt = list(events[0].prompt_ids)
    tokens = [event for event in events if isinstance(event, Token)]
    assert len(tokens) > 8
    assert sum(isinstance(event, PromptToken) for event in events) == (len(prompt) if echo else 0)
    expected = native.logprobs(prompt + [token.id for token in tokens])[len(prompt) - 1 :]
    for token, row in zip(tokens, expected, strict=False):
        assert token.chosen.logprob == pytest.approx(row[token.id], abs=1e-6)
        assert [top.id for top in token.top] == np.argsort(-row, kind="stable")[:3].tolist()
        assert [top.logprob for top in token.top] == pytest.approx(sorted(row)[:-4:-1], abs=1e-6)
        assert [top.logprob for top in token.distributions[0].named] == pytest.approx(row[[253, 7]], abs=1e-6)


def test_a_long_text_that_is_forced(model, native):
    forced = " It was a calm and quiet morning by the sea," * 5
    grammar = compile_grammar(f'root ::= "{forced}" [a-z ]+', model.vocabulary)
    start, *tokens, done = generate(
        model, "There was", build("temp0.9", seed=3), grammar.start(), max_tokens=70, top_logprobs=0
    )
    assert done.forced_tokens > 45
    expected = native.logprobs([*start.prompt_ids, *(token.id for token in tokens)])[len(start.prompt_ids) - 1 :]
    for token, row in zip(tokens, expected, strict=False):
        assert token.chosen.logprob == pytest.approx(row[token.id], abs=1e-6)


CHAINS = {
    "default": "top-k40 > top-p0.95 > min-p0.05 > temp0.8",
    "nothing": "dist",
    "hot": "temp3",
    "greedy": "greedy",
    "temperature 0": "temp0",
    "mirostat": "mirostat(tau=3)",
    "mirostat 2": "mirostat_v2(tau=3)",
    "adaptive": "min-p0.02 > adaptive0.3",
    "penalties": "penalties(repeat=1.3) > typical0.9",
    "xtc": "xtc(probability=1)",
}
GRAMMARS = {"free": None, "grammar": "root ::= [ a-zA-Z,]+"}


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_whole_rows_sum_to_one(model, chain, grammar):
    constraint = compile_grammar(grammar, model.vocabulary).start() if grammar else None
    mask = None
    chain = build(chain, seed=5, vocab=model.vocabulary)
    options = {"max_tokens": 6, "top_logprobs": -1, "logprobs_from": "both"}
    for event in generate(model, "Once upon a time", chain, constraint, **options):
        if not isinstance(event, Token):
            continue
        of_model, of_chain = event.distributions
        assert (of_model.source, of_chain.source) == ("model", "chain")
        rows = [np.frombuffer(distribution.row, "<f4").astype(np.float64) for distribution in event.distributions]
        for distribution, row in zip(event.distributions, rows, strict=True):
            assert row.size == model.vocabulary.size
            assert np.exp(row).sum() == pytest.approx(1, abs=1e-6)
            assert distribution.logprob == pytest.approx(row[event.id], abs=1e-5)
            there = row[row > -np.inf]
            assert distribution.entropy == pytest.approx(-(np.exp(there) * there).sum(), abs=1e-4)
        assert np.isfinite(rows[0]).all()
        if grammar:
            mask = compile_grammar(grammar, model.vocabulary).start().mask() if mask is None else mask
            letters = np.array([piece.isascii() for piece in model.vocabulary.pieces])
            assert np.isneginf(rows[1][~letters]).all()


def test_the_chains_distribution_is_what_is_drawn_from(model, native):
    """top-k 5, then temperature 0.5, by hand."""
    chain = build("top-k5 > temp0.5", seed=1)
    events = list(
        generate(model, "The", chain, max_tokens=5, top_logprobs=9, logprobs_from="chain", logprob_of=(0,))
    )
    tokens = [event for event in events if isinstance(event, Token)]
    expected = native.logprobs([*events[0].prompt_ids, *(token.id for token in tokens)])
    for token, row in zip(tokens, expected[len(events[0].prompt_ids) - 1 :], strict=False):
        best = np.argsort(-row, kind="stable")[:5]
        scaled = row[best] * 2
        scaled -= np.log(np.exp(scaled).sum())
        assert [top.id for top in token.top] == best.tolist()
        assert [top.logprob for top in token.top] == pytest.approx(scaled, abs=2e-6)
        assert token.chosen.logprob == pytest.approx(scaled[best.tolist().index(token.id)], abs=2e-6)
        assert token.distributions[0].named[0].logprob == -np.inf


def test_a_forced_token_that_the_chain_removed_has_no_logprob(model):
    grammar = compile_grammar('root ::= "zebra crossing"', model.vocabulary)
    free = build([{"ban": {"tokens": [model.vocabulary.tokenize(b"z")[0]]}}, "greedy"], vocab=model.vocabulary)
    events = generate(
        model, "The", free, grammar.start(), max_tokens=3, top_logprobs=1, logprobs_from="both", jump=True
    )
    tokens = [event for event in events if isinstance(event, Token)]
    assert all(token.distributions[0].logprob < 0 for token in tokens)
    removed = [token for token in tokens if token.distributions[1].logprob is None]
    kept = [token for token in tokens if token.distributions[1].logprob is not None]
    assert all(token.id not in {top.id for top in token.distributions[1].top} for token in removed)
    assert all(token.distributions[1].logprob == 0 for token in kept)


LONG = " ".join(f"The {word} sea was calm on day {i}." for i, word in enumerate(["blue", "grey", "deep"] * 4))


@pytest.mark.parametrize(
    "prompt",
    [pytest.param("Is the sea blue? Answer:", id="short"), pytest.param(LONG, id="long", marks=pytest.mark.slow)],
)
def test_choices_are_differences_of_whole_texts(model, prompt):
    texts = [" yes", " no", " yes, it is, said the keeper", " no and yes", " ja"]
    parts = [tokenize_continuation(model.vocabulary, prompt, text) for text in texts]
    assert not any(joined for _, _, joined in parts)
    before = parts[0][0]
    found = score_choices(model, before, [ids for _, ids, _ in parts])
    alone = total(score(model, before))
    for text, steps in zip(texts, found, strict=True):
        whole = total(score(model, model.vocabulary.tokenize_prompt((prompt + text).encode())))
        assert total(steps) == pytest.approx(whole - alone, abs=1e-6)
        assert b"".join(step.data for step in steps) == text.encode()
    backwards = score_choices(model, before, [ids for _, ids, _ in reversed(parts)])
    assert [total(steps) for steps in reversed(backwards)] == [total(steps) for steps in found]


def total(steps):
    return sum(step.chosen.logprob for step in steps if step.distributions)


@pytest.mark.parametrize(
    ("stride", "bos"),
    [
        (None, True),
        pytest.param(1, False, marks=pytest.mark.slow),
        pytest.param(16, True, marks=pytest.mark.slow),
        pytest.param(63, False, marks=pytest.mark.slow),
    ],
)
def test_long_texts_are_scored_in_windows(model, native, stride, bos):
    ids = model.vocabulary.tokenize_prompt(LONG.encode())[:85]
    with Model.load(model.path, n_ctx=64, threads=1) as small:
        given = ([small.vocabulary.bos] * bos + ids)[: 68 if stride == 1 else None]
        steps = list(score(small, given, stride))
        assert [step.index for step in steps] == list(range(len(given)))
        assert [step.id for step in steps] == given
        for begin, places in itertools.groupby(windows(len(given), stride or 32, 64, bos), lambda pair: pair[1]):
            head = given[:1] if bos and begin else []
            *_, last = wanted = [place for place, _ in places]
            rows = native.logprobs([*head, *given[begin:last]])
            for place in wanted:
                row = rows[len(head) + place - begin - 1]
                assert steps[place].chosen.logprob == pytest.approx(row[given[place]], abs=1e-6), (
                    stride,
                    place,
                )


def windows(count, stride, length, bos):
    """By hand: where the window begins in which a token is scored; a few of the tokens."""
    begin, end = 0, length
    for place in range(1, count):
        while place >= end:
            begin += stride
            end = begin + length - bos
        if place % 23 == 1 or place in (length - 1, length, end - 1):
            yield place, begin
