import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import Candidates, build
from logitsmith.samplers.methods.mirostat import surprises

from .drawing import SEEDS, bits_of, follow, place_of, sorted_probabilities, uniforms
from .rows import LARGEST, NEG, make_row, row, rows

LN2 = math.log(2)
# Probabilities 1/4, 1/8, 1/2 and 1/8: surprises of 2, 3, 1 and 3 bits. Sorted ids are 2 0 1 3.
HALVES = row(-LN2, -2 * LN2, 0, -2 * LN2)
SETTINGS = st.fixed_dictionaries(
    {
        "tau": st.sampled_from([0.0, 1.0, 5.0]) | st.floats(0, 8),
        "eta": st.sampled_from([0.0, 0.1, 1.0]) | st.floats(0, 1),
    }
)

# tau, of which mu is twice as much at first; ids that are drawn from
WORKED = {
    "the first is above mu, and stays": (0.2, HALVES, [2]),
    "no surprise at all": (0.0, HALVES, [2]),
    "exactly mu stays": (0.5, HALVES, [2]),
    "two exactly": (1.0, HALVES, [2, 0]),
    "just below two": (0.9999999, HALVES, [2]),
    "three bits": (1.5, HALVES, [2, 0, 1, 3]),
    "equal ones go together": (1.4, row(0, 0, 0, 0, 0, 0, 0, 0), [0]),
    "or stay together": (1.5, row(0, 0, 0, 0, 0, 0, 0, 0), [0, 1, 2, 3, 4, 5, 6, 7]),
    "-inf is infinitely surprising": (50, row(NEG, 0, NEG, 0), [1, 3]),
    "more than float32 can say": (200, row(-200, 0), [1]),
    "one candidate": (5, row(3), [0]),
}


@pytest.mark.parametrize(("tau", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(tau, logits, ids):
    chain = build([{"mirostat_v2": tau}])
    left = chain.apply(logits)
    token = chain.draw(left)
    assert left.ids.tolist() == ids
    assert left.logits.tolist() == [logits[i] for i in ids]
    assert token in ids


def test_mu_moves_what_is_kept():
    # Mu is 1, and one token is drawn from: no surprise, 0.5 too little. At eta = 2 that makes mu = 2.
    chain = build([{"mirostat_v2": {"tau": 0.5, "eta": 2.0}}])
    chain.sample(HALVES)
    left = chain.apply(HALVES)
    chain.draw(left)
    assert left.ids.tolist() == [2, 0]


@pytest.mark.parametrize("style", ["normal", "peaked", "equal", "banned"])
def test_the_edge_is_where_the_first_row_surprises_more_than_mu(style):
    logits = make_row(style, 3_000, 5)
    step = build([{"mirostat_v2": 5.0}]).steps[-1]
    whole = Candidates(logits)
    whole.sort_descending()
    bits = surprises(whole.llama_cpp_probs())
    edges = [edge for bit in bits[::40] for edge in (np.nextafter(bit, NEG), bit, np.nextafter(bit, np.inf))]
    for mu in [*edges, np.float32(-3), np.float32(np.inf)]:
        step._mu = np.float32(mu)
        left = Candidates(logits)
        left.sort_descending()
        step.cut(left)
        beyond = (bits > mu).nonzero()[0]
        assert len(left) == max(beyond[0] if beyond.size else bits.size, 1)


def test_mu_far_below_0_leaves_the_best_row():
    chain = build([{"mirostat_v2": {"tau": 0.1, "eta": 1e4}}], seed=1)
    logits = np.linspace(0, 1, 500, dtype=np.float32)
    chain.sample(logits)  # of one row: no surprise, so that mu rises
    chain.sample(logits)  # of all rows: far more than tau
    assert chain.steps[-1].mu < -1_000
    assert chain.sample(logits) == 499


@given(rows(300), SETTINGS, st.sampled_from(["truncated", "full"]), SEEDS)
def test_brute_force(logits, params, surprise, seed):
    tau, eta = params["tau"], params["eta"]
    chain = build([{"mirostat_v2": params | {"surprise": surprise}}], seed=seed)
    order, probs = sorted_probabilities(logits)
    numbers, mu = uniforms(seed), 2 * tau
    for _ in range(4):
        assume(all(abs(bits_of(p) - mu) > 1e-4 for p in probs))
        count = max(1, sum(bits_of(p) <= mu for p in probs))
        mass = math.fsum(probs[:count])
        place = place_of([p / mass for p in probs[:count]], numbers)
        left = chain.apply(logits)
        assert chain.draw(left) == order[place]
        assert left.ids.tolist() == order[:count]
        mu -= eta * (bits_of(probs[place] / (mass if surprise == "truncated" else 1)) - tau)
        assert float(chain.steps[-1].mu) == pytest.approx(mu, abs=1e-4)


def near_mu(logits):
    probs = np.exp(np.float64(logits) - np.float64(logits.max()))
    with np.errstate(divide="ignore"):
        bits = -np.log2(probs / probs.sum())
    return lambda step: bool((np.abs(bits - step.mu) < 1e-5 * (1 + abs(step.mu))).any())


@given(rows(LARGEST), SETTINGS, SEEDS)
def test_equals_llama_cpp(logits, params, seed):
    logits = np.clip(logits, np.float32(-1e8), np.float32(1e8))  # its bucket sort: see test_top_k.py
    assume(follow("mirostat_v2", params, logits, seed, near_mu(logits)) > 0)


@pytest.mark.parametrize("tau", [0.5, 1.0, 1.5])
def test_llama_cpp_keeps_a_surprise_of_exactly_mu_too(tau):
    assert follow("mirostat_v2", {"tau": tau, "eta": 0.0}, HALVES, 1, lambda _: False) == 5


def test_the_surprise_of_a_long_run_is_near_tau():
    logits, chain = make_row("normal", 1000, 3), build([{"mirostat_v2": {"tau": 3.0, "surprise": "full"}}])
    order, probs = sorted_probabilities(logits)
    bits = {token: bits_of(p) for token, p in zip(order, probs, strict=True)}
    assert np.mean([bits[chain.sample(logits)] for _ in range(2000)]) == pytest.approx(3, abs=0.1)


def test_a_tau_whose_double_is_beyond_the_floats():
    chain = build([{"mirostat_v2": {"tau": 3e38, "eta": 0.0}}])
    assert chain.sample(HALVES) in range(4)
