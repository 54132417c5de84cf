import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import Candidates, SamplingError, build, candidates as candidates_module

from ..oracle.native import NativeSampler
from .rows import NEG, NORMAL, TIES, make_row, ranked, row, rows, table

REFUSED = {
    "a list": ([1.0, 2.0], "logits: expected float32 of shape (V,), got list"),
    "None": (None, "logits: expected float32 of shape (V,), got NoneType"),
    "float64": (np.zeros(3), "logits: expected float32 of shape (V,), got float64 of shape (3,)"),
    "float16": (np.zeros(3, np.float16), "logits: expected float32 of shape (V,), got float16 of shape (3,)"),
    "two rows": (
        np.zeros((2, 3), np.float32),
        "logits: expected float32 of shape (V,), got float32 of shape (2, 3)",
    ),
    "a number": (np.float32(1), "logits: expected float32 of shape (V,), got float32"),
    "an empty row": (np.zeros(0, np.float32), "logits: the row is empty"),
    "NaN": (row(1, math.nan, 2), "logits: there is a NaN in the row"),
    "NaN beside +inf": (row(math.inf, math.nan), "logits: there is a NaN in the row"),
    "+inf": (row(1, math.inf), "logits: there is a +inf in the row"),
    "-inf only": (row(NEG, NEG), "logits: every entry of the row is -inf"),
}


@pytest.mark.parametrize(("logits", "message"), REFUSED.values(), ids=REFUSED)
def test_refusal(logits, message):
    chain = build("top_k3 > temp2")
    for look in (Candidates, chain.apply, chain.sample):
        with pytest.raises(SamplingError) as caught:
            look(logits)
        assert str(caught.value) == message


def test_starts_as_the_whole_vocabulary_without_a_copy():
    logits = row(1, 3, 2)
    candidates = Candidates(logits)
    assert len(candidates) == candidates.vocab_size == 3
    assert candidates.is_full_vocabulary
    assert not candidates.is_ordered
    assert candidates.logits is logits
    assert candidates.ids.tolist() == [0, 1, 2]
    assert candidates.ids.dtype == np.int32
    assert candidates.max == 3


def test_a_row_with_steps_between_its_numbers():
    candidates = Candidates(row(*range(600))[::2])
    candidates.sort_descending()
    assert candidates.ids[0] == 299
    assert candidates.logits[0] == 598


@given(rows())
def test_order_is_a_stable_descending_sort(logits):
    candidates = Candidates(logits)
    candidates.sort_descending()
    assert candidates.ids.tolist() == ranked(logits)
    assert candidates.is_ordered
    assert not candidates.is_full_vocabulary
    np.testing.assert_array_equal(candidates.logits, logits[candidates.ids])
    before = candidates.ids
    candidates.sort_descending()
    assert candidates.ids is before


@given(rows(), st.integers(1, 6000))
def test_leading_is_the_head_of_the_order(logits, count):
    candidates = Candidates(logits)
    assert candidates.top_positions(count).tolist() == ranked(logits)[:count]
    candidates.sort_descending()
    assert candidates.top_positions(count).tolist() == list(range(min(count, logits.size)))


@given(rows(), st.integers(1, 6000))
def test_top_is_order_and_truncate(logits, count):
    quick, slow = Candidates(logits), Candidates(logits)
    quick.keep_top_rows(count)
    slow.sort_descending()
    slow.truncate(count)
    assert table(quick) == table(slow)
    assert quick.is_ordered


@pytest.mark.parametrize("ordered", [False, True])
def test_top_keeps_one_row_at_least(ordered):
    candidates = Candidates(row(1, 3, 2))
    if ordered:
        candidates.sort_descending()
    candidates.keep_top_rows(0)
    assert table(candidates) == [(1, 3.0)]


@given(rows(300), st.data())
def test_keep(logits, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=logits.size, max_size=logits.size)))
    mask[data.draw(st.integers(0, logits.size - 1))] = True
    candidates = Candidates(logits)
    candidates.filter_rows(mask)
    assert table(candidates) == [
        entry for entry, kept in zip(enumerate(logits.tolist()), mask, strict=True) if kept
    ]
    assert candidates.is_full_vocabulary == bool(mask.all())


def test_keep_of_ordered_rows_stays_ordered():
    candidates = Candidates(row(1, 3, 2))
    candidates.sort_descending()
    candidates.filter_rows(np.array([True, False, True]))
    assert candidates.is_ordered
    assert table(candidates) == [(1, 3.0), (0, 1.0)]


def test_take():
    candidates = Candidates(row(1, 3, 2))
    candidates.select_rows(np.array([2, 0]))
    assert table(candidates) == [(2, 2.0), (0, 1.0)]
    assert not candidates.is_ordered
    assert candidates.vocab_size == 3
    assert candidates.max == 2


def test_replace_forgets_the_order_unless_told():
    candidates = Candidates(row(1, 3, 2))
    candidates.sort_descending()
    candidates.set_logits(candidates.logits * 2, monotone=True)
    assert candidates.is_ordered
    candidates.set_logits(candidates.logits[::-1])
    assert not candidates.is_ordered
    assert candidates.max == 6


def test_change_copies_holds_overflow_and_leaves_minus_inf():
    logits = row(1, 3, NEG, 2)
    candidates = Candidates(logits)
    candidates.set_logits_at(np.array([1, 2, 3]), row(math.inf, 5, NEG))
    limits = np.finfo(np.float32)
    assert table(candidates) == [(0, 1.0), (1, float(limits.max)), (2, NEG), (3, float(limits.min))]
    assert logits.tolist() == [1.0, 3.0, NEG, 2.0]


def test_best_is_the_first_of_the_highest():
    candidates = Candidates(row(1, 3, 3))
    assert candidates.top_position() == 1
    candidates.sort_descending()
    assert candidates.top_position() == 0


def test_where():
    candidates = Candidates(row(1, 3, 2))
    marks = np.array([0, 5, 1])
    assert candidates.positions_where(marks).tolist() == [1, 2]
    candidates.select_rows(np.array([2, 0]))
    assert candidates.positions_where(marks).tolist() == [0]


@given(rows(300))
def test_weights_and_probabilities_by_a_loop(logits):
    highest = logits.max()
    candidates = Candidates(logits)
    with np.errstate(over="ignore"):  # as in a chain
        weights = [np.float32(math.exp(np.float32(value) - highest)) for value in logits.tolist()]
        assert candidates.weights().tolist() == [float(weight) for weight in weights]
    rough = np.float32(0)
    for weight in weights:
        rough = rough + weight
    assert candidates.llama_cpp_probs().tolist() == [float(weight / rough) for weight in weights]
    total = np.float32(math.fsum(weights))
    assert candidates.probs() == pytest.approx([float(weight / total) for weight in weights], rel=2e-7)
    assert candidates.probs().dtype == candidates.llama_cpp_probs().dtype == np.float32


@pytest.mark.parametrize("logits", [NORMAL, TIES], ids=["normal", "ties"])
def test_the_softmax_of_llama_cpps_truncating_samplers(logits):
    # top_p leaves in `p` the softmax over all rows, whose sum runs in float32; `dist` sums in double.
    candidates = Candidates(logits)
    with NativeSampler("top_p", vocabulary=logits.size, p=0.9) as native:
        left = native.apply(logits)
    np.testing.assert_allclose(candidates.llama_cpp_probs()[left.ids], left.p, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("size", [255, 256, 257, 2048, 2049])
def test_where_the_algorithm_changes(size):
    logits = make_row("ties", size, 9)
    candidates = Candidates(logits)
    candidates.sort_descending()
    assert candidates.ids.tolist() == ranked(logits)
    weights = candidates.weights().astype(np.float64)
    for u in np.linspace(0.001, 0.999, 50):
        expected = int(np.searchsorted(weights.cumsum(), u * weights.sum()))
        assert candidates.pick(float(u)) == candidates.ids[expected]


SUMMED = {
    "pick": (Candidates.pick, Candidates.weights),
    "pick_position": (Candidates.pick_position, Candidates.llama_cpp_probs),
}
"""What draws, and what it sums."""


@pytest.mark.parametrize(("draw", "summed"), SUMMED.values(), ids=SUMMED)
@pytest.mark.parametrize("style", ["normal", "flat", "peaked"])
def test_a_draw_next_to_the_border_of_two_rows_is_that_of_the_exact_weights(style, draw, summed):
    logits = make_row(style, 9_000, 2)
    ends = np.add.accumulate(summed(Candidates(logits)), dtype=np.float64)
    for end in ends[:: 9_000 // 60] / ends[-1]:
        for off in (-1e-7, -1e-8, -1e-9, 1e-9, 1e-8, 1e-7):
            u = min(end * (1 + off), 1 - 2.0**-53)
            assert draw(Candidates(logits), u) == np.searchsorted(ends, u * ends[-1])


def test_what_was_known_of_the_old_rows_is_forgotten():
    for drop in (
        lambda it: it.keep_top_rows(3),
        lambda it: it.filter_rows(it.logits > 0),
        lambda it: it.select_rows(np.array([1, 2])),
    ):
        candidates = Candidates(make_row("normal", 1_000, 1))
        before = candidates.probs()
        drop(candidates)
        assert candidates.probs().size == len(candidates) < before.size
        assert candidates.probs().sum() == pytest.approx(1)
        assert candidates.max == candidates.logits.max()


@pytest.mark.parametrize("ordered", [False, True])
def test_leading_none(ordered):
    candidates = Candidates(row(1, 3, 2))
    if ordered:
        candidates.sort_descending()
    assert candidates.top_positions(0).tolist() == candidates.top_positions(-1).tolist() == []


@pytest.mark.parametrize("size", [2, 4])
def test_keep_takes_a_mask_of_all_rows(size):
    with pytest.raises(ValueError, match=r"is not \(3,\), the shape of the logits"):
        Candidates(row(1, 2, 3)).filter_rows(np.ones(size, np.bool_))


@pytest.mark.slow
def test_the_quick_exp_of_all_numbers_is_as_near_as_draws_take_it_to_be():
    worst = 0.0
    lowest = int(np.float32(-88).view(np.uint32))  # below, no weight is a normal float32
    for start in range(1 << 31, lowest, 1 << 22):
        numbers = np.arange(start, min(start + (1 << 22), lowest), dtype=np.uint32).view(np.float32)
        true = np.exp(numbers, dtype=np.float64)
        normal = true >= 2.0**-126
        worst = max(worst, np.max(np.abs(np.exp(numbers) / true - 1)[normal], initial=0))
    print(f"exp of {lowest - (1 << 31):,} numbers: wrong by a fraction of {worst:.2g} at most")
    assert 0 < worst + 2.0**-24 <= candidates_module._FLOAT32_EXP_ERROR


LOOKS = {
    "top": lambda candidates, count: candidates.keep_top_rows(count),
    "top positions": lambda candidates, count: candidates.select_rows(
        candidates.top_positions(count), is_ordered=True
    ),
    "order": lambda candidates, count: candidates.sort_descending(),
    "truncate": lambda candidates, count: candidates.truncate(count),
    "change": lambda candidates, count: candidates.set_logits_at(np.array([0]), row(9)),
    "drop again": lambda candidates, count: candidates.drop(np.array([0])),
    "only the best": lambda candidates, count: candidates.mask_except_best(),
    "snapshot": lambda candidates, count: candidates.snapshot(),
    "where": lambda candidates, count: candidates.positions_where(np.ones(candidates.vocab_size)),
    "pick": lambda candidates, count: candidates.pick(0.5),
    "pick a position": lambda candidates, count: candidates.pick_position(0.5),
    "the highest probability": lambda candidates, count: int(candidates.llama_cpp_highest_prob() * 2**24),
    "some probabilities": lambda candidates, count: candidates.llama_cpp_probs_at(slice(count)),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@given(logits=rows(), data=st.data())
@np.errstate(over="ignore")  # as within a chain
def test_a_drop_is_the_same_as_new_candidates_without_these_rows(look, logits, data):
    places = st.integers(0, logits.size - 1)
    dropped = sorted(data.draw(st.sets(places, max_size=min(5, max(0, logits.size - 2)))))
    kept = np.setdiff1d(np.arange(logits.size), dropped)
    count = data.draw(st.integers(1, logits.size + 1))
    assume(np.isfinite(logits[kept]).sum() > 1)
    fresh = Candidates(logits[kept], kept.astype(np.int32), logits.size)
    candidates = Candidates(logits)
    candidates.drop(np.array(dropped, dtype=np.intp))
    results = [look(each, count) for each in (candidates, fresh)]
    assert np.array_equal(*(r if isinstance(r, int | np.ndarray) else 0 for r in results))
    assert candidates.max == fresh.max
    assert candidates.ids.tolist() == fresh.ids.tolist()
    assert candidates.logits.tobytes() == fresh.logits.tobytes()


@pytest.mark.parametrize("expects_top", [False, True], ids=["a surprise", "expected"])
@pytest.mark.parametrize("size", [1, 2_047, 2_048, 49_152, 49_155, 70_001])
@pytest.mark.parametrize("count", [1, 5, 40, 3_000])
def test_the_highest_of_a_row_are_the_same_whether_they_are_expected(expects_top, size, count):
    logits = np.random.default_rng(size).integers(0, size, size).astype(np.float32)  # some are equal
    best = np.argsort(-logits, kind="stable")[:count]
    candidates = Candidates(logits, expects_top=expects_top)
    assert candidates.max == logits.max()
    assert candidates.top_positions(count).tolist() == best.tolist()
    candidates.keep_top_rows(count)
    assert candidates.ids.tolist() == best.tolist()
    assert candidates.logits.tolist() == logits[best].tolist()


@pytest.mark.parametrize("place", [0, 30_000, 49_154])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("expects_top", [False, True])
def test_a_long_row_that_is_not_finite(expects_top, place, value):
    logits = np.zeros(49_155, dtype=np.float32)
    logits[place] = value
    with pytest.raises(SamplingError):
        Candidates(logits, expects_top=expects_top)


@pytest.mark.parametrize("expects_top", [False, True], ids=["a surprise", "expected"])
@pytest.mark.parametrize("count", [1, 40, 3000])
def test_the_highest_of_a_long_row_without_some_of_its_highest(count, expects_top):
    logits = np.random.default_rng(count).permutation(20_000).astype(np.float32)
    best = np.argsort(-logits, kind="stable")
    candidates = Candidates(logits, expects_top=expects_top)
    candidates.drop(np.sort(best[[1, 7, 50]]))
    candidates.keep_top_rows(count)
    assert candidates.ids.tolist() == np.delete(best, [1, 7, 50])[:count].tolist()
