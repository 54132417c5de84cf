import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import build

from ..oracle.native import NativeSampler
from .drawing import SEEDS, bits_of, follow, place_of, sorted_probabilities, uniforms
from .rows import NEG, row, rows


def zipf(s, size=8):
    """Logits whose probabilities are as 1 / rank^s, from which the fit finds s."""
    return row(*[-s * math.log(rank) for rank in range(1, size + 1)])


# tau, m, logits, how many rows are kept. With s = 2 and 8 tokens k = sqrt(2^mu * 8/7), with mu = 2 tau.
WORKED = {
    "k of 1.07": (0.0, 100, zipf(2), 1),
    "k of 2.14": (1.0, 100, zipf(2), 2),
    "k of 4.28": (2.0, 100, zipf(2), 4),
    "k of 8.55, beyond the row": (3.0, 100, zipf(2), 8),
    "k of 3.99": (math.log2(3.99**2 * 7 / 8) / 2, 100, zipf(2), 3),
    "k of 4.01": (math.log2(4.01**2 * 7 / 8) / 2, 100, zipf(2), 4),
    # (2 * 2^4 / (1 - 8^-2))^(1/3) and (0.5 * 2^2 / (sqrt(8) - 1))^2
    "k of 3.19": (2.0, 100, zipf(3), 3),
    "k of 1.20": (1.0, 100, zipf(0.5), 1),
    "the order of the rows does not matter": (1.0, 100, zipf(2)[::-1].copy(), 2),
    "fitted to the first two rows": (2.0, 2, row(0, -2 * math.log(2), -9, -9, -9, -9, -9, -9), 4),
    "m = 1 fits nothing: k is not a number": (5.0, 1, zipf(2), 1),
    "one candidate": (5.0, 100, row(3), 1),
    "a probability of 0 among the first": (5.0, 100, row(0, -1, -200), 1),
    "two of them": (5.0, 100, row(0, -1, NEG, NEG), 1),
    "beyond the first m": (5.0, 2, row(0, -1, NEG, NEG), 4),
    # Equal probabilities have s = 0: k is (2^mu / (V - 1)) to the power of infinity.
    "equal ones, mu is low": (0.5, 100, row(0, 0, 0, 0), 1),
    "equal ones, mu is high": (1.0, 100, row(0, 0, 0, 0), 4),
}


@pytest.mark.parametrize(("tau", "m", "logits", "count"), WORKED.values(), ids=WORKED)
def test_worked_example(tau, m, logits, count):
    chain = build([{"mirostat": {"tau": tau, "m": m}}])
    left = chain.apply(logits)
    token = chain.draw(left)
    ids = sorted(range(logits.size), key=lambda i: (-logits[i], i))[:count]
    assert left.ids.tolist() == ids
    assert token in ids


def test_the_vocabulary_counts_where_rows_were_dropped():
    # Of 8 tokens k is 1.20, as above; of 2 it would be (0.5 * 2^2 / (sqrt(2) - 1))^2.
    for steps, logits, count in [("top_k2 > mirostat1", zipf(0.5), 1), ("mirostat1", zipf(0.5, 2), 2)]:
        chain = build(steps)
        left = chain.apply(logits)
        chain.draw(left)
        assert len(left) == count


def fit(first):
    """The s of the formula, in float64."""
    t = [math.log((i + 2) / (i + 1)) for i in range(len(first) - 1)]
    b = [math.log(one / other) for one, other in pairwise(first)]
    return math.fsum(x * y for x, y in zip(t, b, strict=True)) / math.fsum(x * x for x in t)


def possible_counts(probs, mu, m, precision):
    """Return the number of rows that the formula keeps if s and the quotient may be that much greater or less;
    none: no knowing."""
    first = probs[:m]
    if len(first) < 2 or first[-1] < 1e-46:  # that is 0 in float32
        return {1}
    if first[-1] < 1e-36:  # there float32 has fewer digits
        return set()
    s, counts = fit(first), set()
    for near in (s - precision * (s + 0.3), s + precision * (s + 0.3)):
        epsilon = near - 1
        difference = 1 - float(len(probs)) ** -epsilon
        noise = precision + 2e-7 / abs(difference)  # what float32 leaves of it
        for scale in (1 - noise, 1 + noise):
            base = scale * epsilon * 2.0**mu / difference
            if base <= 0:
                return set()
            power = min(math.log(base) / near, 30.0)  # e^30 is beyond any row, and any int
            counts.add(max(1, math.floor(math.exp(power))))
    return counts


SETTINGS = st.fixed_dictionaries(
    {
        "tau": st.sampled_from([0.0, 1.0, 5.0]) | st.floats(0, 8),
        "eta": st.sampled_from([0.0, 0.1, 1.0]) | st.floats(0, 1),
        "m": st.sampled_from([1, 2, 100]) | st.integers(1, 300),
    }
)


@given(rows(300), SETTINGS, st.sampled_from(["truncated", "full"]), SEEDS)
def test_brute_force(logits, params, surprise, seed):
    chain = build([{"mirostat": params | {"surprise": surprise}}], seed=seed)
    order, probs = sorted_probabilities(logits)
    numbers, mu = uniforms(seed), 2 * params["tau"]
    for _ in range(3):
        counts = {min(count, len(order)) for count in possible_counts(probs, mu, params["m"], 3e-6)}
        assume(len(counts) == 1)
        count = counts.pop()
        mass = math.fsum(probs[:count])
        place = place_of([p / mass for p in probs[:count]], numbers)
        left = chain.apply(logits)
        assert chain.draw(left) == order[place]
        assert left.ids.tolist() == order[:count]
        mu -= params["eta"] * (bits_of(probs[place] / (mass if surprise == "truncated" else 1)) - params["tau"])
        assert float(chain.steps[-1].mu) == pytest.approx(mu, abs=1e-4)
        mu = float(chain.steps[-1].mu)


def doubtful(logits, m):
    """Does rounding decide how many rows are kept? Or is k beyond an int, see below?"""
    _, probs = sorted_probabilities(logits)

    def check(step):
        counts = possible_counts(probs, float(step.mu), m, 1e-6)
        return len({min(count, len(probs)) for count in counts}) != 1 or max(counts) > 2**30

    return check


@given(rows(), SETTINGS, SEEDS)
def test_equals_llama_cpp(logits, params, seed):
    logits = np.clip(logits, np.float32(-1e8), np.float32(1e8))  # its bucket sort: see test_top_k.py
    assume(follow("mirostat", params, logits, seed, doubtful(logits, params["m"])) > 0)


@pytest.mark.parametrize("count", [0, 1], ids=["infinite", "an overflow"])
def test_a_k_beyond_an_int_keeps_the_row_or_one_as_in_llama_cpp_on_x86(count):
    # Of equal logits s is 0, and k infinite; of nearly equal ones k is about 1e27.
    logits = row(*[0.01] * count, 0, 0, 0, 0)
    for overflow, kept in (("all", logits.size), ("one", 1)):
        chain = build([{"mirostat": {"tau": 3.0, "overflow": overflow}}])
        left = chain.apply(logits)
        chain.draw(left)
        assert len(left) == kept
    with NativeSampler("mirostat", vocabulary=logits.size, tau=3.0) as native:
        assert len(native.apply(logits).ids) == 1
