"""Confidence intervals of measures of texts, by the bootstrap, and the differences that a comparison can show.

The values of a measure form a table of prompts and seeds. Texts of one prompt resemble each other. With
`MIN_SAMPLED_PROMPTS` prompts or more, prompts are resampled, and seeds within each prompt. The intervals then hold
for other prompts of this kind, too. With fewer prompts, only seeds are resampled, and the intervals hold for these
prompts only.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, cos, isfinite, nan, pi, sin, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cache import LimitedCache

Values = NDArray[np.float64]  # the values of a measure, float64 (prompts, seeds); NaN where a text has no value

LEVEL = 0.95  # the probability with which an interval contains the true value
POWER = 0.8  # the probability with which a difference of the size `Estimate.detectable` is found
RESAMPLES = 10_000
# The maximum number of weights, one for each value in each resample. More than 2,000 values get fewer resamples.
_MAX_WEIGHTS = 20_000_000
_MIN_RESAMPLES = 400
# The maximum number of sets of weights that are kept. Each pattern of missing values needs a set of its own.
_MAX_KEPT_WEIGHTS = 4
MIN_SAMPLED_PROMPTS = 5  # the minimum number of prompts from which a statement about other prompts is possible
# Equal values have a standard error of 0, apart from rounding, which is below this share of the largest value.
_MAX_ROUNDING_ERROR = 1e-9
_MAX_NEEDED_PAIRS = 1_000_000  # a larger number of pairs is not shown, because nobody would generate so many


class Interval(NamedTuple):
    """A confidence interval: its lower and its upper end."""

    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        return self.low <= 0 <= self.high


@dataclass(frozen=True)
class Estimate:
    """A mean with its confidence interval."""

    mean: float  # the mean over prompts of the mean over seeds
    interval: Interval  # the confidence interval
    standard_error: float
    count: int  # number of values, which are texts, or pairs of texts
    prompts_are_sampled: bool  # True if the interval holds for prompts of this kind; False: for these prompts
    detectable: float  # the smallest true difference that this number of pairs finds with the probability `POWER`

    @property
    def is_shown(self) -> bool:
        """True if the interval does not contain zero."""
        return not self.interval.contains_zero

    def needed_pairs(self, difference: float) -> int | None:
        """Return the number of pairs that find a true difference of this size; None if there are too many."""
        if not difference or not self.detectable:
            return None
        pairs = self.count * (self.detectable / difference) ** 2
        return ceil(pairs) if isfinite(pairs) and pairs <= _MAX_NEEDED_PAIRS else None

    def as_json(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "low": self.interval.low,
            "high": self.interval.high,
            "standard_error": self.standard_error,
            "count": self.count,
        }


class Bootstrap:
    """Estimates of means with intervals, reproducible by a seed. All measures and arms use the same resamples."""

    def __init__(self, seed: int = 0, resamples: int = RESAMPLES) -> None:
        self._seed = seed
        self._resamples = resamples
        self._weights: LimitedCache[tuple[object, ...], NDArray[np.float32]] = LimitedCache(_MAX_KEPT_WEIGHTS)

    def estimate(self, values: Values, *, level: float = LEVEL, is_share: bool = False) -> Estimate | None:
        """Return the mean with its interval; None if there are fewer than two values."""
        # The interval has the quantiles of the resampled means, stretched around the mean. Without the stretch,
        # intervals of few values would be too short. It makes the standard deviation of the resampled means equal
        # to the unbiased standard error, and replaces the normal quantile by Student's (Hesterberg 2015, expanded
        # percentile interval). If all values are equal and ``is_share`` is True, the interval has the bound of
        # Clopper and Pearson: if none of N texts has a property, other texts may still have it.
        is_present = ~np.isnan(values)
        has_values = is_present.any(axis=1)
        values = values[has_values]
        is_present = is_present[has_values]
        count = int(is_present.sum())
        if count < 2:
            return None
        prompt_means = np.nanmean(values, axis=1)
        mean = float(prompt_means.mean())
        spread = _standard_error(values, prompt_means, is_present.sum(axis=1))
        tail = (1 - level) / 2  # the probability on each side of the interval
        quantile = student_quantile(1 - tail, spread.degrees)
        detectable = (quantile + NormalDist().inv_cdf(POWER)) * spread.error
        are_values_different = spread.error > _MAX_ROUNDING_ERROR * float(np.nanmax(np.abs(values)))
        if are_values_different:
            deviations = self._resampled_means(values, is_present, spread.prompts_are_sampled) - mean
            stretch = spread.error / float(deviations.std())
            stretch *= quantile / NormalDist().inv_cdf(1 - tail)
            low, high = mean + stretch * np.quantile(deviations, [tail, 1 - tail])
            interval = Interval(float(low), float(high))
        elif is_share:
            bound = 1 - tail ** (1 / count)
            interval = Interval(max(mean - bound, -1.0), min(mean + bound, 1.0))
            detectable = 1 - (1 - POWER) ** (1 / count)
        else:
            interval = Interval(mean, mean)
        return Estimate(mean, interval, spread.error, count, spread.prompts_are_sampled, detectable)

    def column_means(self, rows: Values) -> Values:
        """Return the mean of each column in each resample of the rows, float64 (resamples, columns)."""
        weights = self._weights_for(np.ones((len(rows), 1), dtype=np.bool_), samples_prompts=True)
        return (weights @ rows.astype(np.float32)).astype(np.float64)

    def _resampled_means(self, values: Values, is_present: NDArray[np.bool_], samples_prompts: bool) -> Values:
        """Return the mean of each resample, float64 (resamples,)."""
        weights = self._weights_for(is_present, samples_prompts)
        return (weights @ values[is_present].astype(np.float32)).astype(np.float64)

    def _weights_for(self, is_present: NDArray[np.bool_], samples_prompts: bool) -> NDArray[np.float32]:
        key = (is_present.shape, is_present.tobytes(), samples_prompts)
        weights = self._weights.get(key)
        if weights is None:
            weights = self._draw_weights(is_present, samples_prompts)
            self._weights.put(key, weights)
        return weights

    def _draw_weights(self, is_present: NDArray[np.bool_], samples_prompts: bool) -> NDArray[np.float32]:
        """Return the weight of each value in each resample, float32 (resamples, values)."""
        random = np.random.default_rng(self._seed)
        prompt_count = is_present.shape[0]
        max_resamples = max(_MAX_WEIGHTS // int(is_present.sum()), _MIN_RESAMPLES)
        resamples = min(self._resamples, max_resamples)
        # how often each resample contains each prompt, int64 (resamples, prompts)
        prompt_repetitions = np.ones((resamples, prompt_count), dtype=np.int64)
        if samples_prompts:
            equal_shares = np.full(prompt_count, 1 / prompt_count)
            prompt_repetitions = random.multinomial(prompt_count, equal_shares, resamples)
        weights_of_prompts = []
        for prompt, seed_count in enumerate(is_present.sum(axis=1)):
            equal_shares = np.full(seed_count, 1 / seed_count)
            seed_repetitions = random.multinomial(prompt_repetitions[:, prompt] * seed_count, equal_shares)
            weights = seed_repetitions / (seed_count * prompt_count)
            weights_of_prompts.append(weights.astype(np.float32))
        return np.concatenate(weights_of_prompts, axis=1)


class _Spread(NamedTuple):
    """The standard error of a mean."""

    error: float
    degrees: int  # degrees of freedom
    prompts_are_sampled: bool  # see `Estimate`


def _standard_error(values: Values, prompt_means: Values, seed_counts: NDArray[np.int_]) -> _Spread:
    prompt_count = prompt_means.size
    has_several_seeds = bool((seed_counts > 1).all())
    if prompt_count >= MIN_SAMPLED_PROMPTS or not has_several_seeds:
        return _Spread(
            error=float(prompt_means.std(ddof=1)) / sqrt(prompt_count),
            degrees=prompt_count - 1,
            prompts_are_sampled=True,
        )
    variances = np.nanvar(values, axis=1, ddof=1) / seed_counts
    return _Spread(
        error=sqrt(float(variances.sum())) / prompt_count,
        degrees=int((seed_counts - 1).sum()),
        prompts_are_sampled=False,
    )


def adjusted_level(comparison_count: int) -> float:
    """Return the level of each interval, so that all of them together hold with the probability `LEVEL`."""
    # Bonferroni: each interval may fail with the probability 0.05 / n.
    return 1 - (1 - LEVEL) / max(comparison_count, 1)


def student_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, for a probability of at least 0.5."""
    # The distribution function for whole degrees of freedom is a finite sum (Abramowitz and Stegun 26.7.3,
    # 26.7.4). It is inverted by bisection, exact to 1e-10.
    if degrees < 1:
        return nan
    low = 0.0
    high = 1.0
    while _student_probability(high, degrees) < probability:
        low = high
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if _student_probability(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return high


# With more degrees of freedom, the normal distribution is used, which differs by less than 0.2 %
_MAX_DEGREES = 1_000


def _student_probability(t: float, degrees: int) -> float:
    """Return the probability that a value of Student's distribution is less than t, for t >= 0."""
    if degrees > _MAX_DEGREES:
        return NormalDist().cdf(t)
    angle = np.arctan2(t, sqrt(degrees))
    cosine = cos(angle)
    sine = sin(angle)
    is_odd = degrees % 2 == 1
    # the terms of the sum: the first one, and each following one from the one before it
    term = cosine if is_odd else 1.0
    total = 0.0 if degrees == 1 else term
    for k in range(2 if is_odd else 1, degrees - 1, 2):
        term *= k / (k + 1) * cosine * cosine
        total += term
    # the probability of a value between -t and t
    central_probability = 2 / pi * (angle + sine * total) if is_odd else sine * total
    return float((1 + central_probability) / 2)
