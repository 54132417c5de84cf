import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import build

from ..oracle.native import NativeChain
from .drawing import SEEDS, on_a_boundary, place_of, uniforms
from .rows import LARGEST, NEG, make_row, row, rows

LN2 = math.log(2)
# Probabilities 1/4, 1/8, 1/2 and 1/8.
HALVES = row(-LN2, -2 * LN2, 0, -2 * LN2)
SETTINGS = st.fixed_dictionaries(
    {
        "target": st.sampled_from([-1.0, -0.1, 0.0, 0.5, 1.0]) | st.floats(0, 1),
        "decay": st.sampled_from([0.0, 0.9, 0.99]) | st.floats(0, 0.99),
    }
)


def curve(p, t):
    d = abs(p - t) / 0.3
    return 5 - 10 * d * d / (1 + d)


# target, logits, logits drawn from. At first the mean is on target, so t is the target. The distances d are
# multiples of 5/12: 10 d^2 / (1 + d) is 625 / 510, 2500 / 660 and 5625 / 810.
WORKED = {
    "on target": (0.5, row(0, 0), [5, 5]),
    "below": (0.5, HALVES, [5 - 2500 / 660, 5 - 5625 / 810, 5, 5 - 5625 / 810]),
    "beside": (0.125, HALVES, [5 - 625 / 510, 5, 5 - 5625 / 810, 5]),
    "0, the unlikeliest": (0.0, row(0, 0, -200), [5 - 250 / 9 / (8 / 3)] * 2 + [5]),
    "1, the most likely": (1.0, row(0, -200), [5, 5 - 1000 / 9 / (13 / 3)]),
    "an integer": (1, row(0), [5]),
    "-inf stays": (0.5, row(NEG, 0, NEG, 0), [NEG, 5, NEG, 5]),
    "one candidate": (0.4, row(3), [5 - 40 / 3]),
    "negative: a plain draw": (-0.5, HALVES, HALVES.tolist()),
}


@pytest.mark.parametrize(("target", "logits", "transformed"), WORKED.values(), ids=WORKED)
def test_worked_example(target, logits, transformed):
    chain = build([{"adaptive_p": target}])
    left = chain.apply(logits)
    token = chain.draw(left)
    assert left.ids.tolist() == list(range(logits.size))
    assert left.logits.tolist() == pytest.approx(transformed, abs=1e-5)
    assert logits[token] > NEG


def softmax(values):
    highest = max(values)
    weights = [math.exp(value - highest) for value in values]
    return [weight / math.fsum(weights) for weight in weights]


@given(rows(300), SETTINGS, SEEDS)
def test_brute_force(logits, params, seed):
    target, decay = params["target"], params["decay"]
    chain, numbers = build([{"adaptive_p": params}], seed=seed), uniforms(seed)
    probs = softmax(logits.tolist())
    weighted, total = target / (1 - decay), 1 / (1 - decay)
    for _ in range(4):
        t = min(max(2 * target - weighted / total, 0.0), 1.0)
        values = [curve(p, t) if value > NEG else NEG for p, value in zip(probs, logits.tolist(), strict=True)]
        place = place_of(softmax(values if target >= 0 else logits.tolist()), numbers)
        left = chain.apply(logits)
        assert chain.draw(left) == place
        if target >= 0:
            assert left.logits.tolist() == pytest.approx(values, abs=1e-4)
        chain.accept(place)
        weighted, total = probs[place] + decay * weighted, 1 + decay * total


def follow(steps, logits, seed, draws=5):
    """Compare several draws in a row with llama.cpp's, unless one falls upon a boundary; returns how many."""
    ours, numbers = build(steps, seed=seed), uniforms(seed)
    with NativeChain(steps, vocabulary=logits.size, seed=seed) as native:
        for draw in range(draws):
            left = ours.apply(logits)
            token, theirs = ours.draw(left), native.apply(logits)
            np.testing.assert_array_equal(logits[left.ids], logits[theirs.ids])
            np.testing.assert_allclose(left.logits, theirs.logits, atol=2e-5, rtol=0)
            np.testing.assert_allclose(left.llama_cpp_probs(), theirs.p, atol=1e-5, rtol=0)
            if len(left) > 1 and on_a_boundary(theirs.p, next(numbers)):
                return draw
            # Among equal logits that were sorted llama.cpp has another token at the same place.
            assert left.ids.tolist().index(token) == theirs.ids.tolist().index(theirs.token)
            ours.accept(token)
            native.accept(theirs.token)
    return draws


@given(rows(LARGEST), SETTINGS, SEEDS)
def test_equals_llama_cpp(logits, params, seed):
    follow([{"adaptive_p": params}], logits, seed)


@pytest.mark.parametrize("seed", [0, 7, 4294967294])
def test_a_long_run_equals_llama_cpps(seed):
    steps = [{"min_p": {"p": 0.02}}, {"adaptive_p": {"target": 0.2, "decay": 0.8}}]
    assert follow(steps, make_row("normal", 1000, 3), seed, draws=200) == 200


def test_another_token_accepted_equals_llama_cpp():
    steps = [{"adaptive_p": {"target": 0.3, "decay": 0.5}}]
    ours = build(steps, seed=2)
    with NativeChain(steps, vocabulary=4, seed=2) as native:
        for accepted in [0, 1, 2, 3] * 10:
            left = ours.apply(HALVES)
            assert ours.draw(left) == native.apply(HALVES).token
            for _ in range(2):  # it counts once
                ours.accept(accepted)
                native.accept(accepted)


def test_the_mean_of_a_long_run_is_the_target():
    # A plain draw would have a mean of 0.34.
    chain, drawn = build([{"adaptive_p": 0.25}], seed=1), []
    for _ in range(1000):
        drawn.append(chain.sample(HALVES))
        chain.accept(drawn[-1])
    assert np.mean([math.exp(HALVES[token]) / 2 for token in drawn]) == pytest.approx(0.25, abs=0.04)
