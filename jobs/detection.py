"""The detection of SynthID-Text watermarks: how many g values of a text are 1, and how unlikely that is.

The p value is the probability that a text without the watermark scores at least as high. Its distribution is the
one of the table that the sampler uses. The mean of the table is not exactly one half, and with a long text
the difference would count as a watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import erfc, exp, pi, sinh, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..samplers.methods.synthid import Synthid
from ..samplers.watermark import GValues, Hashes, ngram_hashes


@dataclass(frozen=True)
class WatermarkScore:
    """The score of a text, and its p value."""

    token_count: int  # number of tokens of the text
    counted_count: int  # number of tokens that count: those after a complete and new context
    mean: float | None  # mean g value of these tokens, over all keys; None if no token counts
    # mean g value, in which the first key weighs ten times as much as the last one; None if no token counts
    weighted_mean: float | None
    expected_mean: float  # the value that both means have on average in a text without the watermark
    # distance of the weighted mean from the expected one, in standard deviations; None if no token counts
    z: float | None
    # probability that a text without the watermark has at least this weighted mean; None if no token counts
    p_value: float | None


class WatermarkDetector:
    """A detector of the watermark of one `Synthid` sampler."""

    # Its g values and masks are those of transformers 5.24 (``SynthIDTextWatermarkLogitsProcessor``). An n-gram
    # that occurs several times counts once, also beyond the history of contexts, because a repetition adds no
    # evidence. The scores are the mean and the weighted mean of Dathathri et al. 2024.

    def __init__(self, watermark: Synthid) -> None:
        # Raises ``ValueError`` for a sampler without keys.
        if not watermark.keys:
            raise ValueError("the watermark has no keys")
        self.watermark = watermark  # the sampler with the keys
        self._g_values = GValues(watermark.keys, watermark.sampling_table_size, watermark.sampling_table_seed)
        self._weights = layer_weights(len(watermark.keys))

    def score(self, tokens: Sequence[int], end_tokens: Collection[int] = ()) -> WatermarkScore:
        """Return the score of a text; the first end-of-generation token in it and later tokens do not count."""
        expected_mean = float(self._g_values.table.mean())
        hashes = self.counted_hashes(tokens, end_tokens)
        if not hashes.size:
            return WatermarkScore(
                token_count=len(tokens),
                counted_count=0,
                mean=None,
                weighted_mean=None,
                expected_mean=expected_mean,
                z=None,
                p_value=None,
            )
        sum_of_key = [int(np.add.reduce(g, dtype=np.int64)) for g in self._g_values.of_hashes(hashes)]
        weighted_sum = sum(weight * g_sum for weight, g_sum in zip(self._weights, sum_of_key, strict=True))
        unmarked = self._unmarked
        return WatermarkScore(
            token_count=len(tokens),
            counted_count=hashes.size,
            mean=sum(sum_of_key) / (hashes.size * self._g_values.depth),
            weighted_mean=weighted_sum / (hashes.size * sum(self._weights)),
            expected_mean=expected_mean,
            z=unmarked.z(weighted_sum, hashes.size),
            p_value=unmarked.tail_probability(weighted_sum, hashes.size),
        )

    def counted_hashes(self, tokens: Sequence[int], end_tokens: Collection[int] = ()) -> Hashes:
        """Return the hashes of the n-grams that count, in their order. The arguments are those of `score`."""
        ngram_length = self.watermark.ngram_len
        text_length = next((index for index, token in enumerate(tokens) if token in end_tokens), len(tokens))
        if text_length < ngram_length:
            return np.empty(0, dtype=np.int64)
        ids = np.array(tokens[:text_length], dtype=np.int64)
        hashes = ngram_hashes(ids, ngram_length)
        context_hashes = ngram_hashes(ids[:-1], ngram_length - 1)
        has_new_context = new_context_mask(context_hashes, self.watermark.context_history_size)
        counted_hashes = hashes[has_new_context]
        _, first_positions = np.unique(counted_hashes, return_index=True)
        return counted_hashes[np.sort(first_positions)]

    @cached_property
    def _unmarked(self) -> UnmarkedDistribution:
        sums = np.zeros(self._g_values.table.size, dtype=np.int64)
        for weight, g in zip(self._weights, self._g_values.of_remainders(), strict=True):
            sums += g * np.int64(weight)
        return UnmarkedDistribution(sums)


def new_context_mask(context_hashes: Hashes, history_size: int) -> NDArray[np.bool_]:
    """Return for each context whether it differs from the ``history_size`` before it, bool (n,)."""
    # As in transformers, the history begins with zeros.
    last_position = {0: -1}
    is_new = []
    for position, context in enumerate(context_hashes.tolist()):
        previous = last_position.get(context)
        is_new.append(previous is None or position - previous > history_size)
        last_position[context] = position
    return np.array(is_new, dtype=np.bool_)


def layer_weights(depth: int) -> list[int]:
    """Return the integer weights of the keys: proportional to ``linspace(10, 1, depth)``, as in the paper."""
    if depth == 1:
        return [1]
    return [10 * (depth - 1) - 9 * layer for layer in range(depth)]


# Up to this distance from the mean, in standard deviations, the saddlepoint formula would lose digits
_NEAR_MEAN = 1e-3
_MAX_SADDLEPOINT_STEPS = 200


class _Cumulants(NamedTuple):
    log_moment: float  # logarithm of the moment generating function
    mean: float  # its first derivative
    variance: float  # its second derivative


class UnmarkedDistribution:
    """The distribution of the weighted sum of g values of n independent tokens without a watermark."""

    def __init__(self, sums: NDArray[np.int64]) -> None:
        # ``sums``: the equally probable weighted sums of one token, (size,)
        values, counts = np.unique(sums, return_counts=True)
        self._values = values.astype(np.float64)
        self._shares = counts / sums.size
        # All sums are multiples of this number apart. With equal keys it is greater than the greatest common
        # divisor of the weights.
        self._span = int(np.gcd.reduce(np.diff(values)))
        self._mean = float(self._shares @ self._values)
        self._deviation = sqrt(float(self._shares @ (self._values - self._mean) ** 2))

    def z(self, total: int, count: int) -> float:
        """Return the distance of the sum of ``count`` tokens from its mean, in standard deviations."""
        if not self._deviation:  # all tokens have the same sum, for example with a table of one entry
            return 0.0
        return (total - count * self._mean) / (sqrt(count) * self._deviation)

    def tail_probability(self, total: int, count: int) -> float:
        """Return the probability that ``count`` tokens have at least the sum ``total``."""
        # The saddlepoint approximation with a continuity correction (Lugannani & Rice 1980, Daniels 1987). A
        # normal distribution would underestimate it for few tokens.
        lowest, highest = float(self._values[0]), float(self._values[-1])
        corrected_mean = (total - self._span / 2) / count
        if corrected_mean <= lowest:
            return 1.0
        if total >= count * highest:
            return float(self._shares[-1]) ** count
        z = (corrected_mean - self._mean) * sqrt(count) / self._deviation
        if abs(z) < _NEAR_MEAN:
            return erfc(z / sqrt(2)) / 2
        theta = self._saddlepoint(corrected_mean)
        cumulants = self._cumulants(theta)
        square = max(2 * count * (theta * corrected_mean - cumulants.log_moment), 0.0)
        root = sqrt(square) if theta > 0 else -sqrt(square)
        scaled_theta = 2 / self._span * sinh(theta * self._span / 2) * sqrt(count * cumulants.variance)
        normal_tail = erfc(root / sqrt(2)) / 2
        normal_density = exp(-square / 2) / sqrt(2 * pi)
        probability = normal_tail + normal_density * (1 / scaled_theta - 1 / root)
        return min(max(probability, 0.0), 1.0)

    def _saddlepoint(self, mean: float) -> float:
        """Return the tilt of the distribution with which one token has this mean."""
        # Newton's method. A step that would leave the bounds is replaced by the middle between them.
        low, high = -np.inf, np.inf
        theta = (mean - self._mean) / self._deviation**2
        for _ in range(_MAX_SADDLEPOINT_STEPS):
            tilted = self._cumulants(theta)
            error = tilted.mean - mean
            if abs(error) < 1e-10 * self._deviation:
                break
            if error > 0:
                high = theta
            else:
                low = theta
            next_theta = theta - error / tilted.variance if tilted.variance > 0 else np.inf
            if not low < next_theta < high:
                has_both_bounds = np.isfinite(low + high)
                next_theta = (low + high) / 2 if has_both_bounds else 2 * theta
            theta = next_theta
        return theta

    def _cumulants(self, theta: float) -> _Cumulants:
        """Return the cumulants of one token, whose distribution is tilted by ``theta``."""
        exponents = theta * self._values
        highest = float(exponents.max())
        weights = self._shares * np.exp(exponents - highest)
        total = float(weights.sum())
        mean = float(weights @ self._values) / total
        variance = float(weights @ (self._values - mean) ** 2) / total
        return _Cumulants(highest + float(np.log(total)), mean, variance)
