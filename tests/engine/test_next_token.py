"""The distribution of the next token: the same as a run draws from, and exact distances of chains."""

import math

import numpy as np
import pytest
from logitsmith.engine import Token, generate, trace_next
from logitsmith.engine.next_token import distance, probabilities
from logitsmith.grammars import compile_grammar
from logitsmith.samplers import Candidates, build

PROMPT = "The sea was"
CHAINS = ["top-k40 > top-p0.95 > min-p0.05 > temp0.8", "temp0.9", "top-k9 > mirostat-v2", "greedy", "xtc1 > temp1"]


@pytest.mark.parametrize("chain", CHAINS)
def test_it_is_the_trace_of_a_runs_first_token(model, chain):
    built = build(chain, seed=5, vocab=model.vocabulary)
    first = next(
        event for event in generate(model, PROMPT, built, trace=6, max_tokens=1) if isinstance(event, Token)
    )
    result = trace_next(model, PROMPT, build(chain, seed=5, vocab=model.vocabulary), top=6)
    assert result.prompt_tokens == 3
    assert result.trace.stages == first.trace.stages
    drawn = [
        each for each in first.trace.candidates if each.id == first.id and each not in result.trace.candidates
    ]
    assert len(drawn) <= 1
    assert [each for each in first.trace.candidates if each not in drawn] == list(result.trace.candidates)
    assert result.trace.draw is None
    assert result.comparisons == ()
    assert result.forced_token is None


def test_the_next_call_is_the_same(model):
    chain = build("xtc(probability=0.5, threshold=0.01) > temp1", seed=3)
    assert trace_next(model, PROMPT, chain) == trace_next(model, PROMPT, chain)


def test_other_chains_are_compared_over_the_whole_vocabulary(model):
    chains = [
        build(steps, seed=1, vocab=model.vocabulary) for steps in ("temp0.8", "temp1.2", "top-k40", "greedy")
    ]
    result = trace_next(model, PROMPT, chains[0], against=chains[1:], top=4)
    row = model.context.logits().astype(np.float64)

    def softmax(logits):
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    p = softmax((row.astype(np.float32) / np.float32(0.8)).astype(np.float64))
    hot = softmax((row.astype(np.float32) / np.float32(1.2)).astype(np.float64))
    top = np.zeros_like(p)
    likeliest = np.argsort(-row, kind="stable")[:40]
    top[likeliest] = softmax(row[likeliest])
    one = np.zeros_like(p)
    one[likeliest[0]] = 1.0
    for comparison, q in zip(result.comparisons, (hot, top, one), strict=True):
        assert comparison.distance.total_variation == pytest.approx(math.fsum(np.abs(p - q)) / 2, abs=1e-9)
        held = q > 0
        backward = math.fsum(q[held] * np.log(q[held] / p[held]))
        assert comparison.distance.reverse_divergence == pytest.approx(backward, abs=1e-9)
        forward = math.fsum(p * np.log(p / q)) if held.all() else math.inf
        assert comparison.distance.divergence == pytest.approx(forward, abs=1e-9)
        assert [each.id for each in comparison.trace.candidates] == [each.id for each in result.trace.candidates]
        for candidate in comparison.trace.candidates:
            assert (candidate.probs[-1] or 0.0) == pytest.approx(q[candidate.id], rel=1e-5)


def test_distances_by_hand():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    found = distance(p, q)
    assert found.total_variation == 0.5
    assert found.divergence == pytest.approx(math.log(2))
    assert found.reverse_divergence == math.inf
    same = distance(p, p)
    assert (same.total_variation, same.divergence, same.reverse_divergence) == (0, 0, 0)


def test_probabilities_are_those_of_the_candidates():
    candidates = Candidates(np.array([math.log(3), 0], np.float32), np.array([4, 1], np.int32), 6)
    assert probabilities(candidates) == pytest.approx([0, 0.25, 0, 0, 0.75, 0])


def test_a_forced_token_is_named(model):
    grammar = compile_grammar('root ::= "hello world"', model.vocabulary)
    chain = build("temp1", seed=1)
    result = trace_next(model, PROMPT, chain, grammar.start(), top=1)
    (first, *_) = grammar.start().forced_tokens()
    assert result.forced_token == first
    assert result.trace.forced
    assert first in [candidate.id for candidate in result.trace.candidates]
    assert trace_next(model, PROMPT, chain, grammar.start(), jump=False).forced_token is None
    free = compile_grammar("root ::= [a-z]+", model.vocabulary)
    assert trace_next(model, PROMPT, chain, free.start()).forced_token is None


def test_an_interrupted_reading_gives_nothing(model):
    model.context.truncate(0)
    assert trace_next(model, PROMPT, build("temp1"), is_interrupted=lambda: True) is None
