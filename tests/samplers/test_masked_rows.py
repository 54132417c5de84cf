"""Rows that are dropped here while llama.cpp keeps them at -inf: how many they are after every step."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import BuildContext, Candidates, build, make_sampler
from logitsmith.samplers.mersenne_twister import MersenneTwister

from .rows import NEG, row, table

MARGIN = 1e-5
"""Nearer to a threshold, float32 decides."""

p_values = st.floats(0.05, 0.95)
min_keeps = st.sampled_from([1, 1, 3, 12])
steps_strategy = st.lists(
    st.one_of(
        st.builds(lambda n: {"top_n_sigma": {"n": n}}, st.floats(0.1, 2)),
        st.builds(lambda n: {"top_n_sigma": {"n": n, "dropped": "erased"}}, st.floats(0.1, 2)),
        st.builds(lambda k: {"top_k": {"k": k}}, st.integers(1, 30)),
        st.builds(lambda p, m: {"top_p": {"p": p, "min_keep": m}}, p_values, min_keeps),
        st.builds(lambda p, m: {"min_p": {"p": p, "min_keep": m}}, p_values, min_keeps),
        st.builds(
            lambda p, m: {"xtc": {"probability": 1.0, "threshold": p, "min_keep": m}},
            st.floats(0.02, 0.5),
            min_keeps,
        ),
        st.sampled_from([{"temperature": {"t": 0.0}}, {"temperature": {"t": 2.0}}]),
    ),
    min_size=1,
    max_size=5,
)
logits_strategy = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=30)


def in_order(rows):
    return sorted(rows, key=lambda entry: -entry[1])


def softmax(rows):
    highest = max(logit for _, logit in rows)
    weights = [math.exp(logit - highest) for _, logit in rows]
    return [weight / math.fsum(weights) for weight in weights]


def certain(value, threshold):
    """Return whether the value reaches the threshold; rows for which float32 may decide otherwise are not looked
    at."""
    assume(abs(value - threshold) > MARGIN or NEG in (value, threshold))
    return value >= threshold


def top_n_sigma(rows, n, dropped="counted"):
    finite = [logit for _, logit in rows if logit > NEG]
    if len(rows) < 2:
        return rows
    mean = math.fsum(finite) / len(finite)
    threshold = max(finite) - n * math.sqrt(math.fsum((logit - mean) ** 2 for logit in finite) / len(finite))
    kept = [logit == max(finite) or certain(logit, threshold) for _, logit in rows]
    if dropped == "erased":
        return [entry for entry, is_kept in zip(rows, kept, strict=True) if is_kept or entry[1] == NEG]
    return [(token, logit if is_kept else NEG) for (token, logit), is_kept in zip(rows, kept, strict=True)]


def top_p(rows, p, min_keep):
    rows, mass = in_order(rows), 0.0
    for number, probability in enumerate(softmax(rows), 1):
        mass += probability
        if certain(mass, p) and number >= min_keep:
            return rows[:number]
    return rows


def min_p(rows, p, min_keep):
    threshold = max(logit for _, logit in rows) + math.log(p)
    passing = [entry for entry in rows if certain(entry[1], threshold)]
    return passing if len(passing) >= min_keep else in_order(rows)[:min_keep]


def xtc(rows, probability, threshold, min_keep):
    if len(rows) < 2:
        return rows
    rows = in_order(rows)
    last = sum(certain(share, threshold) for share in softmax(rows)) - 1
    return rows[last:] if last > 0 and len(rows) - last >= min_keep else rows


def temperature(rows, t):
    if t:
        return [(token, logit / t) for token, logit in rows]
    best = max(rows, key=lambda entry: entry[1])
    return [entry if entry is best else (entry[0], NEG) for entry in rows]


BY_HAND = {
    "top_n_sigma": top_n_sigma,
    "top_k": lambda rows, k: in_order(rows)[:k],
    "top_p": top_p,
    "min_p": min_p,
    "xtc": xtc,
    "temperature": temperature,
}
"""The steps on a list of (token, logit) in which masked rows stay, at -inf."""


@given(logits_strategy, steps_strategy)
def test_brute_force(values, steps):
    candidates, rows = Candidates(row(*values)), list(enumerate(values))
    for step in steps:
        ((name, parameters),) = step.items()
        sampler = make_sampler(step, "step")
        sampler.bind(BuildContext(0, None))
        sampler.reset([])
        if not sampler.is_neutral:
            sampler.apply(candidates)
            rows = BY_HAND[name](rows, **parameters)
        assert table(candidates) == [entry for entry in rows if entry[1] > NEG]
        assert candidates.llama_cpp_count == len(rows)
        assert candidates.masked_count == candidates.masked_ids().size
        assert not np.isin(candidates.masked_ids(), candidates.ids).any()


FOUR = row(4, -2, 2, 0)  # top_n_sigma at 1 keeps 0 and 2

# steps, how many rows stay, how many llama.cpp would hold
AFTER = {
    "counted": ([], 2, 4),
    "twice": ([{"top_n_sigma": 0.1}], 1, 4),
    "top_k": ([{"top_k": 3}], 2, 3),
    "top_k below": ([{"top_k": 1}], 1, 1),
    "top_k, and again": ([{"top_k": 1}, {"top_n_sigma": 1.0}], 1, 1),
    "top_p": ([{"top_p": 0.5}], 1, 1),
    "top_p whose mass is not reached": ([{"top_p": {"p": 0.9999999}}], 2, 2),
    "top_p, min_keep": ([{"top_p": {"p": 0.5, "min_keep": 3}}], 2, 3),
    "min_p": ([{"min_p": 0.01}], 2, 2),
    "min_p, min_keep": ([{"min_p": {"p": 0.5, "min_keep": 3}}], 2, 3),
    "typical": ([{"typical": 0.9}], 2, 2),
    "temperature": ([{"temperature": 2}], 2, 4),
    "temperature 0": ([{"temperature": 0}], 1, 4),
    "dynatemp of 0": ([{"dynatemp": {"temperature": 0.0}}], 1, 4),
    "xtc": ([{"xtc": {"probability": 1.0, "threshold": 0.05}}], 1, 3),
    "xtc that would leave too few": ([{"xtc": {"probability": 1.0, "threshold": 0.05, "min_keep": 4}}], 2, 4),
    "logit_bias": ([{"logit_bias": {2: 1.0}}], 2, 4),
    # Steps that llama.cpp lacks drop rows of no probability.
    "top_a": ([{"top_a": 0.1}], 2, 2),
    "epsilon_cutoff": ([{"epsilon_cutoff": 1e-3}], 2, 2),
    "skew": ([{"skew": 0.5}], 2, 2),
}


@pytest.mark.parametrize(("steps", "count", "held"), AFTER.values(), ids=AFTER)
def test_worked_example(steps, count, held):
    left = build([{"top_n_sigma": 1.0}, *steps]).apply(FOUR)
    assert (len(left), left.llama_cpp_count) == (count, held)
    erased = build([{"top_n_sigma": {"n": 1.0, "dropped": "erased"}}, *steps]).apply(FOUR)
    assert len(erased) <= 2


def test_erased_rows_do_not_count():
    left = build([{"top_n_sigma": {"n": 1.0, "dropped": "erased"}}]).apply(FOUR)
    assert (left.ids.tolist(), left.llama_cpp_count, left.masked_count) == ([0, 2], 2, 0)


def test_masked_rows_of_two_steps():
    candidates = Candidates(row(4, -2, 2, 0, 1))
    candidates.mask_except(np.array([True, False, True, True, True]))
    candidates.keep_top_rows(3)
    candidates.mask_except_best()
    assert candidates.masked_ids().tolist() == [2, 4]
    assert candidates.ids.tolist() == [0]


def test_masked_rows_of_an_earlier_step_that_are_gone():
    candidates = Candidates(row(4, -2, 2, 0, 1))
    candidates.mask_except(np.array([True, False, True, True, True]))
    candidates.truncate(4)
    assert candidates.masked_count == 0
    assert candidates.masked_ids().size == 0
    candidates.mask_except_best()
    assert candidates.masked_ids().tolist() == [2, 3, 4]
    candidates.replace_with_single_row(3, 1.0)
    assert candidates.llama_cpp_count == 1


def test_a_mask_of_a_grammar_and_a_ban_do_not_count():
    mask = np.array([True, True, True, False])
    left = build([{"logit_bias": {1: False}}]).apply(FOUR, mask)
    assert left.llama_cpp_count == len(left) == 2


def test_a_weight_beside_zeros_takes_a_random_number():
    alone, beside_masked, two = (Candidates(row(2)), Candidates(row(2, 1, 0)), Candidates(row(1, 1)))
    beside_masked.mask_except_best()
    one, other = MersenneTwister(3), MersenneTwister(3)
    for _ in range(50):
        assert one.discrete(alone) == other.discrete(beside_masked) == 0
    rest = [other.discrete(two) for _ in range(50)]
    assert [one.discrete(two) for _ in range(100)][50:] == rest
