"""Intervals: against scipy, and in simulations in which the truth is known."""

import math

import numpy as np
import pytest
from logitsmith.common.intervals import LEVEL, POWER, Bootstrap, adjusted_level, student_quantile
from scipy import stats


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 29, 100, 999, 5000])
@pytest.mark.parametrize("probability", [0.8, 0.95, 0.975, 0.9995])
def test_quantiles_are_those_of_scipy(probability, degrees):
    expected = stats.t.ppf(probability, degrees)
    assert student_quantile(probability, degrees) == pytest.approx(expected, rel=1e-8 if degrees < 1000 else 2e-3)


@pytest.mark.parametrize("shape", [(1, 40), (30, 1)], ids=["seeds", "prompts"])
def test_an_interval_is_scipys_bootstrap_with_the_stretch_of_the_text(shape):
    values = np.random.default_rng(5).gamma(2.0, size=shape)
    estimate = Bootstrap().estimate(values)
    count = values.size
    scipys = stats.bootstrap((values.ravel(),), np.mean, n_resamples=20_000, method="percentile", rng=1)
    stretch = math.sqrt(count / (count - 1)) * stats.t.ppf(0.975, count - 1) / stats.norm.ppf(0.975)
    expected = [values.mean() + stretch * (end - values.mean()) for end in scipys.confidence_interval]
    assert estimate.interval == pytest.approx(expected, abs=0.02)
    assert estimate.mean == pytest.approx(values.mean())
    assert estimate.standard_error == pytest.approx(stats.sem(values.ravel()))
    assert estimate.prompts_are_sampled is (shape[0] > 1)


def test_intervals_of_many_normal_differences_are_those_of_the_t_test():
    values = np.random.default_rng(2).normal(0.3, 1, size=(40, 5))
    estimate = Bootstrap(resamples=20_000).estimate(values)
    expected = stats.ttest_1samp(values.mean(axis=1), 0).confidence_interval(0.95)
    assert estimate.interval == pytest.approx((expected.low, expected.high), abs=0.01)


def test_few_prompts_are_not_generalized():
    """Three prompts with very different means: the interval of these prompts is as narrow as their texts allow."""
    random = np.random.default_rng(0)
    values = np.array([[0.0], [5.0], [10.0]]) + random.normal(0, 0.1, size=(3, 20))
    estimate = Bootstrap().estimate(values)
    assert not estimate.prompts_are_sampled
    assert estimate.interval.high - estimate.interval.low < 0.12
    wide = Bootstrap().estimate(np.concatenate([values, values + 1], axis=0))
    assert wide.prompts_are_sampled
    assert wide.interval.high - wide.interval.low > 5


def test_values_that_are_missing_are_left_out():
    values = np.random.default_rng(1).normal(size=(6, 8))
    values[0, 3:] = np.nan
    values[4] = np.nan
    estimate = Bootstrap().estimate(values)
    assert estimate.count == 6 * 8 - 5 - 8
    assert estimate.mean == pytest.approx(np.mean([np.nanmean(row) for row in values if not np.isnan(row).all()]))


@pytest.mark.parametrize("values", [[[np.nan]], [[1.0]], [[1.0, np.nan]]], ids=["none", "one", "one and none"])
def test_fewer_than_two_values_have_no_interval(values):
    assert Bootstrap().estimate(np.array(values)) is None


def test_equal_values_have_no_width_unless_they_are_shares():
    equal = np.full((1, 20), 0.0)
    assert Bootstrap().estimate(equal).interval == (0, 0)
    share = Bootstrap().estimate(equal, is_share=True)
    exact = stats.binomtest(0, 20).proportion_ci(LEVEL, method="exact")
    assert share.interval.high == pytest.approx(exact.high)
    assert not share.is_shown


def test_equal_differences_with_rounding_have_no_width():
    values = np.array([[0.1 * number + 1] for number in range(30)]) - np.array(
        [[0.1 * number] for number in range(30)]
    )
    assert Bootstrap().estimate(values.reshape(6, 5)).interval == pytest.approx((1, 1))


def test_more_seeds_than_a_byte_holds():
    assert Bootstrap(resamples=100).estimate(np.random.default_rng(0).normal(size=(1, 300))).count == 300


@pytest.mark.slow
def test_many_values_get_fewer_resamples():
    bootstrap = Bootstrap()
    values = np.random.default_rng(0).normal(size=(100, 400))
    estimate = bootstrap.estimate(values)
    expected = stats.ttest_1samp(values.mean(axis=1), 0).confidence_interval(0.95)
    assert estimate.interval == pytest.approx((expected.low, expected.high), abs=0.002)
    assert bootstrap._draw_weights(~np.isnan(values), samples_prompts=True).size <= 20_000_000


def test_the_same_values_have_the_same_interval():
    values = np.random.default_rng(1).normal(size=(6, 8))
    assert Bootstrap().estimate(values) == Bootstrap().estimate(values)


def test_the_level_is_divided_among_comparisons():
    assert adjusted_level(1) == LEVEL
    assert adjusted_level(4) == pytest.approx(1 - 0.05 / 4)


SLOW = pytest.mark.slow
DESIGNS = {
    "1x20": pytest.param((1, 20)),
    "3x8": pytest.param((3, 8)),
    **{
        f"{rows}x{columns}": pytest.param((rows, columns), marks=SLOW)
        for rows, columns in ((5, 10), (20, 5), (40, 1))
    },
}
"""Prompts and texts of each; those of more prompts take seconds."""


def normal(random, size):
    return random.normal(size=size)


def skewed(random, size):
    return random.gamma(1.0, size=size)


@pytest.mark.parametrize("draw", [normal, skewed])
@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_intervals_without_a_difference_contain_zero_at_the_nominal_rate(design, draw):
    """A against A: differences of two texts of one distribution, on prompts that differ from each other."""
    random, repetitions = np.random.default_rng(11), 400
    hits = 0
    for _ in range(repetitions):
        prompts = random.normal(size=(design[0], 1))
        difference = (prompts + draw(random, design)) - (prompts + draw(random, design))
        hits += Bootstrap(resamples=1000).estimate(difference).interval.contains_zero
    print(f"{design}, {draw.__name__}: {hits / repetitions:.1%}")
    assert stats.binomtest(hits, repetitions, LEVEL).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_a_planted_difference_is_found_at_the_stated_power(design):
    random, repetitions = np.random.default_rng(3), 400
    detectable = np.mean(
        [Bootstrap(resamples=200).estimate(random.normal(size=design)).detectable for _ in range(repetitions)]
    )
    found = sum(
        Bootstrap(resamples=1000).estimate(random.normal(detectable, 1, size=design)).is_shown
        for _ in range(repetitions)
    )
    print(f"{design}: {found / repetitions:.1%}")
    # The normal quantile in the power is an approximation, which is rough for four degrees of freedom.
    assert abs(found / repetitions - POWER) < (0.08 if design[0] * design[1] > 20 and design[0] != 5 else 0.12)


def test_the_number_of_pairs_follows_from_the_power():
    random = np.random.default_rng(7)
    small = Bootstrap().estimate(random.normal(0.1, 1, size=(1, 50)))
    spread = small.standard_error * math.sqrt(50)
    needed = small.needed_pairs(0.2 * spread)
    values = random.normal(0.2 * spread, spread, size=(200, 1, needed))
    found = sum(Bootstrap(resamples=300).estimate(each).is_shown for each in values)
    assert abs(found / 200 - POWER) < 0.09
    assert small.needed_pairs(0.0) is None
    assert small.needed_pairs(1e-9) is None
