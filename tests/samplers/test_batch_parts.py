"""The parts of the batch sampler: random numbers by place, heads of rows, sums and draws over whole rows."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import Candidates, build
from logitsmith.samplers.batch import (
    SamplingParam,
    candidates as nucleus,
    penalties,
    sample,
    step as random_draw,
)
from logitsmith.samplers.batch.step import draw_from_rows, uniform_numbers
from logitsmith.samplers.mersenne_twister import MersenneTwister

from .rows import NEG, make_row, rows
from .test_batch import CUTS, Row, agrees


def sequence(seed, count):
    random = MersenneTwister(seed)
    return [random.uniform() for _ in range(count)]


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_number_n_of_a_seed():
    # Forwards, backwards, again, and over the pages.
    expected = {seed: sequence(seed, 1500) for seed in (5, 2**32 - 1)}
    for place in [0, 1, 2, 2, 255, 256, 257, 3, 1499, 700, 700, 701, 0]:
        found = uniform_numbers(ints(5, 2**32 - 1), ints(place, place // 2))
        assert found.tolist() == [expected[5][place], expected[2**32 - 1][place // 2]]


def test_a_number_far_away():
    assert uniform_numbers(ints(7), ints(256 * 300 - 1))[0] == sequence(7, 256 * 300)[-1]


def test_numbers_without_a_seed():
    found = uniform_numbers(ints(-1, 5, -1), ints(0, 3, 0))
    assert found[1] == sequence(5, 4)[3]
    assert found[0] != found[2]
    assert ((found >= 0) & (found < 1)).all()
    assert uniform_numbers(ints(-1), ints(0))[0] != found[0]


def test_numbers_for_several_threads():
    expected = {seed: sequence(seed, 600) for seed in range(4)}

    def work(start):
        return [uniform_numbers(np.arange(4), np.full(4, place)).tolist() for place in range(start, 600, 7)]

    with ThreadPoolExecutor(4) as threads:
        for start, found in enumerate(threads.map(work, range(7))):
            assert found == [[expected[seed][place] for seed in range(4)] for place in range(start, 600, 7)]


def test_the_low_32_bits_of_a_seed_count():
    logits = np.stack([make_row("flat", 1000, 1)] * 3)
    for dtype, seeds in ((np.int64, [5, 5 + 2**32, 5 + 2**62]), (np.uint64, [5, 5 + 2**63, 2**64 - 2**32 + 5])):
        param = SamplingParam.from_numpy(seed=np.array(seeds, dtype), to_tensor=np.asarray)
        assert param.seed.tolist() == [5, 5, 5]
        tokens, _ = sample(logits, None, param)
        assert len(set(tokens.tolist())) == 1
        assert tokens[0] == build(["dist"], seed=5).sample(logits[0])


def test_negative_zero_equals_zero():
    for size in (5, 20_000):
        logits = np.full(size, -1, np.float32)
        logits[[1, 2, 4]] = 0.0, -0.0, 0.0
        agrees([Row(np.roll(logits, it), {"top_k": 3}, seed=it) for it in range(6)])


@pytest.mark.parametrize("height", [1, 2, 3, 17, 64])
@pytest.mark.parametrize("size", [1, 100, 2048, 2049, 9001])
@pytest.mark.parametrize("style", ["normal", "flat", "banned"])
def test_the_sum_runs_from_the_first_token_to_the_last(style, size, height, monkeypatch):
    totals = []
    plain = nucleus._estimate_floor

    def spy(weights, total, top_p):
        totals.extend(total.tolist())
        return plain(weights, total, top_p)

    monkeypatch.setattr(nucleus, "_estimate_floor", spy)
    logits = np.stack([make_row(style, size, seed) for seed in range(height)])
    param = SamplingParam.from_numpy(top_p=np.full(height, 0.9), to_tensor=np.asarray)
    sample(logits, None, param)
    assert totals == [float(np.add.accumulate(Candidates(it).weights())[-1]) for it in logits]


WRONG = {
    "too high": lambda weights: np.ones(len(weights), np.float32),
    "a little too high": lambda weights: np.sort(weights, axis=1)[:, -3],
    "too low": lambda weights: np.zeros(len(weights), np.float32),
}


@pytest.mark.parametrize("floor", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("style", ["normal", "flat", "ties", "huge"])
def test_a_wrong_estimate_changes_no_token(floor, style, monkeypatch):
    monkeypatch.setattr(nucleus, "_estimate_floor", lambda weights, total, top_p: floor(weights))
    agrees([Row(make_row(style, 20_000, it), {"top_p": p}, seed=it) for it, p in enumerate((0.5, 0.9, 0.999))])


def test_a_nucleus_that_never_reaches_p_is_the_whole_row():
    # Ten thousand equal tokens, whose float32 probabilities do not add up to p; the next lower ones weigh nothing.
    logits = np.full(20_000, 1e10, np.float32)
    logits[::2] = 9e9
    nearly_one = float(np.nextafter(np.float32(1), np.float32(0)))
    agrees([Row(logits, {"top_p": nearly_one}, seed=seed) for seed in range(3)])


@pytest.mark.parametrize("cells", [1, 50_000])
def test_small_pieces_change_no_token(cells, monkeypatch):
    monkeypatch.setattr(penalties, "_LOGITS_PER_CHUNK", cells)
    cuts = [cut for cut in CUTS.values() if cut.get("top_k", 0) < 20_000]
    agrees([Row(make_row("normal", 20_000, 7), cut, seed=3) for cut in cuts])


@given(rows(5000), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4))
def test_draws_from_whole_rows_equal_pick(logits, u):
    table = np.stack([np.roll(logits, shift) for shift in range(len(u))])
    with np.errstate(over="ignore", under="ignore"):
        tokens, probs = draw_from_rows(table.copy(), table.max(axis=1), np.array(u))
        for number, place in enumerate(u):
            candidates = Candidates(table[number])
            assert tokens[number] == candidates.pick(place)
            assert probs[number] == pytest.approx(candidates.probs()[tokens[number]], rel=1e-5, abs=1e-38)


def borders(logits):
    """Places between tokens to the last bit, as one running sum has them and as sums of blocks have them."""
    weights = Candidates(logits).weights()
    ends = np.add.accumulate(weights, dtype=np.float64)[:: max(logits.size // 60, 1)]
    blocks = np.add.reduceat(weights, np.arange(0, logits.size, 512), dtype=np.float64)
    u = np.concatenate([ends / ends[-1], np.add.accumulate(blocks) / blocks.sum()])
    u = np.concatenate([np.nextafter(u, 0), u, np.nextafter(u, 1)])
    return np.minimum(u, math.nextafter(1, 0))


@pytest.mark.parametrize("size", [300, 2048, 2049, 20_000])
def test_draws_on_the_border_of_two_tokens_equal_pick(size):
    # Single precision can't tell on which side these fall.
    logits = make_row("normal", size, 3)
    u = borders(logits)
    tokens, _ = draw_from_rows(np.tile(logits, (u.size, 1)), np.full(u.size, logits.max()), u)
    assert tokens.tolist() == [Candidates(logits).pick(float(it)) for it in u]


@pytest.mark.parametrize("kept", [2048, 2049, 3000, 6000])
def test_draws_from_long_heads_equal_pick(kept):
    logits = np.sort(make_row("flat", 5000, 3))[::-1].copy()
    left = np.pad(logits, (0, 1000), constant_values=NEG)[:kept]
    u = borders(left)
    places, probs = random_draw.draw_from_candidates(np.tile(logits, (u.size, 1)), np.full(u.size, kept), u)
    expected = [Candidates(left).pick(float(it)) for it in u]
    assert places.tolist() == expected
    np.testing.assert_allclose(probs, Candidates(left).probs()[expected], rtol=1e-5)
