"""Rows that are dropped here while llama.cpp keeps them at -inf: how many they are after every step."""

import numpy as np
import pytest
from logitsmith.samplers import Candidates, build
from logitsmith.samplers.mersenne_twister import MersenneTwister

from .rows import row

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
