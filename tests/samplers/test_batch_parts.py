"""The parts of the batch sampler: random numbers by place, heads of rows, sums and draws over whole rows."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import Candidates, SamplingError, build
from logitsmith.samplers.batch import (
    SamplingParam,
    candidates as heads_module,
    candidates as nucleus,
    penalties,
    sample,
    step as random_draw,
)
from logitsmith.samplers.batch.candidates import find_top_candidates
from logitsmith.samplers.batch.logits import BLOCK_COUNT, LogitTable
from logitsmith.samplers.batch.penalties import NO_PENALTIES, BatchRowSelection, PenalizedLogits
from logitsmith.samplers.batch.step import draw_from_rows, uniform_numbers
from logitsmith.samplers.mersenne_twister import MersenneTwister

from .rows import NEG, make_row, row, rows
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


def part_of(logits, temperature=1.0, touched=NO_PENALTIES):
    temperature = np.broadcast_to(np.float32(temperature), len(logits)).copy()
    with np.errstate(over="ignore", under="ignore"):  # as in a step
        return BatchRowSelection.create(LogitTable(logits, None), np.arange(len(logits)), temperature, touched)


def head_of(logits, count):
    """The highest logits and their tokens, by a sort in Python."""
    order = sorted(range(logits.size), key=lambda token: (-logits[token], token))[:count]
    return [(token, float(logits[token])) for token in order if logits[token] > NEG]


def check_heads(logits, counts, touched=NO_PENALTIES, temperature=1.0):
    part = part_of(logits, temperature, touched)
    logits = logits.copy()
    logits[touched.rows, touched.ids] = touched.new_logits
    given = []
    with np.errstate(over="ignore", under="ignore"):
        logits /= part.temperature[:, None]
        for places, found in find_top_candidates(part, counts):
            given.extend(places.tolist())
            for place, values, ids in zip(places, found.logits, found.keys & 0xFFFFFFFF, strict=True):
                expected = head_of(logits[place], counts[place])
                pairs = list(zip(ids.tolist(), values.tolist(), strict=True))
                assert pairs[: len(expected)] == expected
                assert len(expected) == counts[place] or set(values[len(expected) :].tolist()) <= {NEG}
    assert sorted(given) == list(range(len(logits)))


@given(rows(5000), st.lists(st.integers(1, 60), min_size=1, max_size=4), st.sampled_from([1.0, 0.3, 3.0]))
def test_heads_against_a_brute_force(logits, counts, temperature):
    counts = np.minimum(counts, logits.size)
    with np.errstate(over="ignore"):
        assume(np.isfinite(logits.max() / np.float32(temperature)))
    check_heads(np.stack([np.roll(logits, it) for it in range(counts.size)]), counts, temperature=temperature)


@pytest.mark.parametrize("style", ["normal", "ties", "equal", "banned", "tiny"])
@pytest.mark.parametrize("counts", [(1, 1, 1), (40, 3, 500), (512, 1, 513), (8191, 40, 1)], ids=str)
def test_heads_of_long_rows(style, counts):
    logits = np.stack([make_row(style, 20_001, seed) for seed in range(3)])
    rng = np.random.default_rng(1)
    ids = [np.unique([*rng.permutation(20_001)[:300], *np.argsort(-it)[:30], it.argmax()]) for it in logits]
    rows_, ids = np.repeat(np.arange(3), [len(it) for it in ids]), np.concatenate(ids)
    old = logits[rows_, ids]
    new = np.where(np.isneginf(old), old, old + rng.normal(0, 3, old.size)).astype(np.float32)
    for touched in (NO_PENALTIES, PenalizedLogits(rows_, ids, old, new)):
        check_heads(logits, ints(*counts), touched, [1, 0.7, 30])


def test_whole_rows_are_looked_at_only_where_they_must(monkeypatch):
    asked = []
    plain = LogitTable.rows_at

    def spy(table, rows):
        asked.extend(rows.tolist())
        return plain(table, rows)

    monkeypatch.setattr(LogitTable, "rows_at", spy)
    logits = np.stack([make_row(style, 50_000, 1) for style in ("normal", "ties", "equal", "tiny", "normal")])
    check_heads(logits, ints(40, 40, 40, 40, 2000))
    assert asked == [2, 4], "all logits equal, and a head that is too long"
    asked.clear()
    # A temperature that makes all quotients of a row 0 makes them equal.
    check_heads(logits, ints(40, 1, 1, 40, 40), temperature=[1, 1, 1, 3e38, 1])
    assert asked == [2, 3]


@pytest.mark.parametrize("size", [2 * BLOCK_COUNT - 1, 2 * BLOCK_COUNT, 3 * BLOCK_COUNT - 1, 3 * BLOCK_COUNT + 1])
def test_every_token_lies_in_a_block(size):
    for token in (0, 1, BLOCK_COUNT - 1, BLOCK_COUNT, size - 2, size - 1):
        logits = np.zeros((2, size), np.float32)
        logits[0, token] = 1
        check_heads(logits, ints(1, 1))


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


@pytest.mark.parametrize("style", ["normal", "peaked", "flat", "ties", "banned"])
@pytest.mark.parametrize("size", [300, 20_000, 60_000])
def test_the_estimate_is_right_and_near(style, size):
    logits = np.stack([make_row(style, size, seed) for seed in range(20)])
    weights = np.stack([Candidates(it).weights() for it in logits])
    for p in (0.5, 0.95):
        floor = nucleus._estimate_floor(weights, weights.sum(axis=1), np.full(20, p, np.float32))
        kept = np.array([len(build([{"top_p": p}]).apply(it)) for it in logits])
        reached = np.count_nonzero(weights >= floor[:, None], axis=1)
        right = reached >= kept
        assert right.mean() >= 0.9
        if style != "ties":
            assert (reached[right] <= 20 * kept[right] + 500).mean() >= 0.9


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


@pytest.mark.parametrize("size", [300, 2048, 2049, 60_000])
def test_draws_on_the_border_of_two_tokens_equal_pick(size):
    # Single precision can't tell on which side these fall.
    logits = make_row("normal", size, 3)
    u = borders(logits)
    tokens, _ = draw_from_rows(np.tile(logits, (u.size, 1)), np.full(u.size, logits.max()), u)
    assert tokens.tolist() == [Candidates(logits).pick(float(it)) for it in u]


def test_single_precision_is_enough_nearly_everywhere(monkeypatch):
    exact = []
    plain = random_draw._locate_tokens

    def spy(weights, u, dtype):
        exact.append(u.size * (dtype is np.float64))
        return plain(weights, u, dtype)

    monkeypatch.setattr(random_draw, "_locate_tokens", spy)
    logits = np.stack([make_row("normal", 60_000, seed) for seed in range(50)])
    draw_from_rows(logits, logits.max(axis=1), np.random.default_rng(1).random(50))
    assert sum(exact) < 10


@pytest.mark.parametrize("kept", [2048, 2049, 3000, 6000])
def test_draws_from_long_heads_equal_pick(kept):
    logits = np.sort(make_row("flat", 5000, 3))[::-1].copy()
    left = np.pad(logits, (0, 1000), constant_values=NEG)[:kept]
    u = borders(left)
    places, probs = random_draw.draw_from_candidates(np.tile(logits, (u.size, 1)), np.full(u.size, kept), u)
    expected = [Candidates(left).pick(float(it)) for it in u]
    assert places.tolist() == expected
    np.testing.assert_allclose(probs, Candidates(left).probs()[expected], rtol=1e-5)


def test_past_the_end_means_the_last_token_with_weight():
    sums = np.array([[0.0, 1.0, 2.0, 2.0], [1.0, 1.0, 3.0, 4.0]])
    assert random_draw._first_position_reaching(sums, np.array([2.5, 1.0])).tolist() == [2, 0]
    assert random_draw._first_position_reaching(sums, np.array([0.0, 1.5])).tolist() == [0, 2]


def test_groups_are_never_more_than_blocks():
    assert heads_module._GROUPS_PER_CANDIDATE * heads_module._MAX_SEARCHED_COUNT <= BLOCK_COUNT
    assert BLOCK_COUNT & (BLOCK_COUNT - 1) == 0


def test_rows_whose_quotients_overflow_are_left_out():
    logits = np.array([[1, 2], [3e38, 1], [-3e38, -2e38]], np.float32)
    with np.errstate(over="ignore"):
        found = [places.tolist() for places, _, _ in part_of(logits, 1e-3).scaled_rows()]
        assert found == [[0]]
        assert list(part_of(logits[1:], 1e-3).scaled_rows()) == []


def test_a_not_a_number_that_a_penalty_covers_is_found():
    touched = PenalizedLogits(ints(0), ints(1), row(np.nan), row(0))
    with pytest.raises(SamplingError, match="row 0: there is a NaN"):
        list(part_of(np.array([[0, np.nan]], np.float32), 1.0, touched).scaled_rows())
