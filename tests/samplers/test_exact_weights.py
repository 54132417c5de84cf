import numpy as np
import pytest
from logitsmith.samplers.candidates import Candidates
from logitsmith.samplers.kernels import LONG_ROW, exact_weights, offsets_affecting_sum

SIZE = 3 * LONG_ROW
EDGE = -24 * np.log(2)
"""The logarithm of 2^-24: what is below is lost beside 1."""


def random_row(low, high, best=0, seed=1):
    """Offsets between these numbers, with one 0 at the position ``best``."""
    offsets = np.random.default_rng(seed).uniform(low, high, SIZE).astype(np.float32)
    offsets[best] = 0
    return offsets


ROWS = {
    "peaked": random_row(-60, -1),
    "peaked, the best late": random_row(-60, -1, SIZE // 3),
    "the best last": random_row(-60, -1, SIZE - 1),
    "flat": random_row(-2, 0),
    "around the edge": random_row(EDGE - 1e-4, EDGE + 1e-4),
    "around the edge, the best late": random_row(EDGE - 1e-4, EDGE + 1e-4, SIZE // 3),
    "mostly lost": random_row(EDGE - 80, EDGE + 1),
    "all lost": random_row(EDGE - 9, EDGE - 1e-3),
    "lost behind the best, counted before it": random_row(EDGE - 9, EDGE - 0.1, SIZE // 3),
    "a third are equal": np.where(np.arange(SIZE) % 3 == 2, 0, -40).astype(np.float32),
    "two are best": np.where(np.arange(SIZE) % 4_000 == 700, 0, random_row(-90, -3)).astype(np.float32),
    "some of no weight": np.where(np.arange(SIZE) % 3 == 1, -np.inf, random_row(-30, -3)).astype(np.float32),
}


def looped_total(candidates):
    """The sum in float32, from first to last row."""
    return np.add.accumulate(candidates.weights())[-1]


def made(offsets, is_ordered):
    candidates = Candidates(offsets + np.float32(11.25))
    if is_ordered:
        candidates.sort_descending()
    return candidates


@pytest.mark.parametrize("is_ordered", [False, True], ids=["in any order", "ordered"])
@pytest.mark.parametrize("offsets", ROWS.values(), ids=ROWS)
def test_the_probabilities_of_some_rows_are_those_of_all(offsets, is_ordered):
    expected = made(offsets, is_ordered).weights() / looped_total(made(offsets, is_ordered))
    some = np.array([5, 0, SIZE - 1, SIZE // 3])
    assert made(offsets, is_ordered).llama_cpp_probs_at(some).tolist() == expected[some].tolist()
    assert made(offsets, is_ordered).llama_cpp_probs_at(slice(9)).tolist() == expected[:9].tolist()
    assert made(offsets, is_ordered).llama_cpp_highest_prob() == expected.max()
    assert made(offsets, is_ordered).llama_cpp_probs().tolist() == expected.tolist()


@pytest.mark.parametrize("offsets", ROWS.values(), ids=ROWS)
def test_all_probabilities_down_to_a_least_one(offsets):
    expected = made(offsets, is_ordered=True).llama_cpp_probs()
    of_rows = expected[[0, 1, 40, SIZE // 2, -1]].tolist()
    for least in (0.0, 1e-300, 1e-9, 1e-4, 0.1, 0.9, 1.5, 4.0, *of_rows):
        found = made(offsets, is_ordered=True).llama_cpp_probs_down_to(least)
        assert found.tolist() == expected[: found.size].tolist()
        assert np.count_nonzero(found >= least) == np.count_nonzero(expected >= least)


@pytest.mark.parametrize("least", [1e-9, 0.1, 1.5])
@pytest.mark.parametrize("offsets", ROWS.values(), ids=ROWS)
def test_of_candidates_in_any_order_a_least_probability_leaves_all(offsets, least):
    found = made(offsets, is_ordered=False).llama_cpp_probs_down_to(least)
    assert found.tolist() == made(offsets, is_ordered=False).llama_cpp_probs().tolist()


def test_probabilities_follow_the_rows():
    candidates = made(ROWS["peaked"], is_ordered=False)
    for change in (
        lambda: candidates.drop(candidates.top_positions(3)[2:]),
        candidates.sort_descending,
        lambda: candidates.truncate(SIZE - 1_000),
        lambda: candidates.drop_first(3),
        lambda: candidates.set_logits(candidates.logits / np.float32(3), monotone=True),
        lambda: candidates.truncate(100),
        lambda: candidates.filter_rows(np.arange(100) % 2 == 0),
    ):
        candidates.llama_cpp_highest_prob()  # its total must not be used again
        change()
        found = candidates.llama_cpp_probs_at(slice(7))
        weights = exact_weights(candidates.logits - candidates.max)
        assert found.tolist() == (weights / np.add.accumulate(weights)[-1])[:7].tolist()


@pytest.mark.parametrize("name", ["peaked", "mostly lost", "two are best", "some of no weight"])
def test_few_rows_count(name):
    logits = ROWS[name]
    assert offsets_affecting_sum(logits, np.float32(0), is_ordered=False).size < SIZE / 2


@pytest.mark.parametrize("name", ["the best last", "flat"])
def test_most_rows_count(name):
    assert offsets_affecting_sum(ROWS[name], np.float32(0), is_ordered=False) is None
