"""The task that a method works on: it sends queries, and its estimates collect the recovered logprobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from .endpoints.base import Bias, EndpointLimits, EndpointResponse, QueryKind
from .numerics import Float64s, logsumexp, mean_logprob
from .probe import BiasRange, EndpointProfile
from .request import RecoverySettings
from .session import QuerySession
from .unbiased_response import DriftMonitor, UnbiasedResponse


@dataclass(frozen=True)
class RecoveryTask:
    """A running recovery, as a method sees it."""

    session: QuerySession
    settings: RecoverySettings
    tokens: NDArray[np.intp]
    unbiased_response: UnbiasedResponse  # the logprobs that the endpoint shows without a bias
    profile: EndpointProfile  # the effect of biases at this endpoint, as the probe measured it
    bias_range: BiasRange  # the biases that the endpoint adds exactly
    estimates: LogprobEstimates
    drift_monitor: DriftMonitor  # checks periodically whether the responses have changed
    notes: list[str]  # findings for the user; methods append to the list

    @property
    def limits(self) -> EndpointLimits:
        """The limits that the endpoint declares."""
        return self.session.endpoint.limits

    @property
    def anchor(self) -> int:
        """The most likely token whose bytes are complete UTF-8, see `QuerySession.prefer_complete_utf8`."""
        return self.session.prefer_complete_utf8(self.unbiased_response.ranked_tokens)[0]

    def send_queries(
        self, biases: Iterable[Bias], kind: QueryKind = QueryKind.NEXT_TOKEN
    ) -> Iterator[list[EndpointResponse]]:
        """Yield the responses to each query, sent as often as the probe found necessary, to be averaged."""
        for responses in self.session.send_queries(biases, self.unbiased_response.calls_per_query, kind=kind):
            yield responses
            self.drift_monitor.count_query()
            self.report_progress()

    def report_progress(self) -> None:
        """Report how many of the requested logprobs are known."""
        if self.settings.progress is not None:
            self.settings.progress(self.estimates.count_known(self.tokens), len(self.tokens))


# a method that recovers the tokens it is given, each on its own
PointwiseMethod = Callable[[RecoveryTask, Sequence[int]], None]


class LogprobEstimates:
    """Recovered logprobs with their errors, and the tokens that cannot be recovered."""

    def __init__(self, vocab_size: int, unnameable_ids: frozenset[int] = frozenset()) -> None:
        self.logprobs: Float64s = np.full(vocab_size, np.nan)  # float64 (V,), nats; NaN where unknown
        # estimated errors of the logprobs, float64 (V,), nats; NaN where unknown
        self.errors: Float64s = np.full(vocab_size, np.nan)
        self.unnameable_ids = unnameable_ids  # ids that the endpoint cannot name
        # ids whose responses contradict each other, or the unbiased response
        self.contradicted_ids: set[int] = set()
        # logprobs, in nats, that were shown for texts that are not the text of exactly one token
        self.unmatched_logprobs: tuple[float, ...] = ()
        # whether ``logprobs`` are true logprobs; False while they are relative to the most likely token
        self.is_normalized = True
        self._max_hidden_logprob = inf
        self._noise_nats = 0.0
        self._unbiased_tokens: Collection[int] = ()

    def apply_unbiased_limits(self, unbiased_response: UnbiasedResponse) -> None:
        """Reject all values added from now on that contradict the unbiased response."""
        self._max_hidden_logprob = unbiased_response.max_hidden_logprob
        self._noise_nats = unbiased_response.noise_nats
        self._unbiased_tokens = unbiased_response.logprobs.keys()
        self.record_unmatched_logprobs(unbiased_response.unmatched_logprobs)

    def add_unbiased_response(self, unbiased_response: UnbiasedResponse) -> None:
        """Add the logprobs that the endpoint shows without a bias."""
        for token, logprob in unbiased_response.logprobs.items():
            self.logprobs[token] = min(logprob, 0.0)
            self.errors[token] = unbiased_response.errors[token]

    def add(self, token: int, values: Sequence[float], error: float) -> None:
        """Set a token's logprob to the mean of measured values."""
        # A token that is more likely than any token hidden from the unbiased response is contradicted: its bias
        # was not added exactly.
        mean_of_values = mean_logprob(values, error, self._noise_nats)
        if token not in self._unbiased_tokens and self.exceeds_max_hidden_logprob(mean_of_values.logprob):
            self.contradicted_ids.add(token)
            return
        self.logprobs[token] = min(mean_of_values.logprob, 0.0)
        self.errors[token] = mean_of_values.error

    def exceeds_max_hidden_logprob(self, logprob: float) -> bool:
        """Return whether a logprob is too high for a token that no response has shown yet."""
        return logprob > self._max_hidden_logprob

    def lower_max_hidden_logprob(self, logprob: float) -> None:
        """Reject all tokens found from now on that are more likely than this logprob."""
        self._max_hidden_logprob = min(self._max_hidden_logprob, logprob)

    def mark_unnameable(self, tokens: frozenset[int]) -> None:
        self.unnameable_ids |= tokens

    def forget(self, token: int) -> None:
        """Remove the logprob of a token, so that the token is queried again."""
        self.logprobs[token] = self.errors[token] = np.nan

    def mark_contradicted(self, token: int) -> None:
        """Remove the logprob of a token whose responses contradict each other, and exclude the token."""
        self.forget(token)
        self.contradicted_ids.add(token)

    def record_unmatched_logprobs(self, logprobs: Sequence[float]) -> None:
        """Keep logprobs of texts without a token: the longest list, because all responses show the same ones."""
        if len(logprobs) > len(self.unmatched_logprobs):
            self.unmatched_logprobs = tuple(logprobs)

    def unknown_among(self, tokens: Sequence[int] | NDArray[np.intp]) -> list[int]:
        """Return the given tokens whose logprob is unknown and may still be recovered."""
        ids = np.asarray(tokens, dtype=np.intp)
        excluded_ids = self.unnameable_ids | self.contradicted_ids
        return [int(token) for token in ids[np.isnan(self.logprobs[ids])] if int(token) not in excluded_ids]

    def is_known(self, token: int) -> bool:
        """Return whether the token has a logprob."""
        return not np.isnan(self.logprobs[token])

    def known_by_logprob(self) -> list[int]:
        """Return the known tokens, most likely first."""
        ids = np.flatnonzero(~np.isnan(self.logprobs))
        return [int(token) for token in ids[np.argsort(-self.logprobs[ids], kind="stable")]]

    def count_known(self, tokens: NDArray[np.intp]) -> int:
        """Return the number of given tokens that have a logprob."""
        return int(np.isfinite(self.logprobs[tokens]).sum())

    def restart_relative_to(self, top_token: int, error: float) -> None:
        """Discard all logprobs, and measure them relative to the most likely token from now on."""
        self.logprobs[:] = self.errors[:] = np.nan
        self._max_hidden_logprob = inf
        self.logprobs[top_token] = 0.0
        self.errors[top_token] = error
        self.is_normalized = False

    def set_error(self, token: int, error: float) -> None:
        """Replace a token's error, in nats."""
        self.errors[token] = error

    def normalize(self) -> None:
        """Turn relative values into logprobs, if all tokens are known: their probabilities sum to 1."""
        # The shift that this needs is wrong by at most the mean error, which is added to each token's error.
        self.is_normalized = not np.isnan(self.logprobs).any()
        if self.is_normalized:
            self.logprobs -= logsumexp(self.logprobs)
            self.errors += float(np.exp(self.logprobs) @ self.errors)

    def fill_unknown(self, row: Float64s, error: float) -> None:
        """Set all unknown logprobs from a complete row."""
        # Relative values are first made absolute with the sum of the row.
        if not self.is_normalized:
            log_sum = logsumexp(row)
            row = row - log_sum
            self.logprobs -= log_sum
            self.is_normalized = True
        is_unknown = np.isnan(self.logprobs)
        self.logprobs[is_unknown] = np.minimum(row[is_unknown], 0.0)
        self.errors[is_unknown] = error
