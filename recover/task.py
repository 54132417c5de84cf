"""The task that a method works on: it sends queries, and its estimates collect the recovered logprobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from .endpoints.base import Bias, Endpoint, EndpointLimits, EndpointResponse, QueryKind
from .numerics import Float64s, mean_logprob
from .probe import EndpointProfile, find_unnameable_ids, probe
from .request import RecoveryRequest, RecoverySettings
from .session import QuerySession
from .unbiased_response import UnbiasedResponse, measure_unbiased_response, truncation_note

QUERIES_PER_CHECK = 100  # number of queries between two drift checks, which therefore cost one call in a hundred
# a change is drift if it exceeds each of these by this factor
_RELATIVE_ERROR_FACTOR = 20
_SPREAD_FACTOR = 3
_NOISE_FACTOR = 5


class RecoveryTask:
    """A running recovery, as a method sees it."""

    unbiased_response: UnbiasedResponse  # the logprobs that the endpoint shows without a bias
    profile: EndpointProfile  # the effect of biases at this endpoint

    def __init__(
        self, session: QuerySession, request: RecoveryRequest, settings: RecoverySettings, vocab_size: int
    ) -> None:
        self.session = session
        self.endpoint = session.endpoint
        self.settings = settings
        # number of most likely tokens to recover; None if other tokens are requested
        self.top_count = request.top_count
        self.method = request.method  # the method that is used; ``auto`` until one is chosen
        self.tokens = request.tokens(vocab_size)  # ids that may be part of the result, int (n,)
        self.estimates = LogprobEstimates(vocab_size, self.endpoint)
        self.notes: list[str] = []  # findings for the user; methods append to the list
        self.stop_reason: str | None = None  # ``max_calls`` or ``interrupted`` if the run ended early
        self.max_drift_nats = 0.0  # the largest change of a repeated response during the run, nats; 0: no change
        # A check whether the endpoint still responds in the same way, called every hundred queries. It gets the
        # number of the check, counted from 1, and returns the change in nats. `bisection` has a check of its own.
        self.measure_drift: Callable[[int], float] = self._change_of_unbiased_response
        self._query_count = 0

    def measure_unbiased_response(self) -> UnbiasedResponse:
        """Query without a bias. From now on, values that contradict the response are rejected."""
        self.unbiased_response = measure_unbiased_response(self.session, self.settings.calls_per_query)
        self.estimates.set_limits(self.unbiased_response)
        note = truncation_note(self.unbiased_response, self.endpoint)
        if note is not None:
            self.notes.append(note)
        return self.unbiased_response

    def probe_biases(self) -> EndpointProfile:
        """Measure the effect of biases, and find the tokens that cannot be named."""
        self.profile = probe(self.session, self.unbiased_response)
        self.estimates.unnameable_ids |= find_unnameable_ids(self.session, self.tokens)
        self.notes += self.profile.findings
        return self.profile

    @property
    def limits(self) -> EndpointLimits:
        """The limits that the endpoint declares."""
        return self.endpoint.limits

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
            self._query_count += 1
            if self._query_count % QUERIES_PER_CHECK == 0:
                drift_nats = self.measure_drift(self._query_count // QUERIES_PER_CHECK)
                self.max_drift_nats = max(self.max_drift_nats, drift_nats)
            self.report_progress()

    def report_progress(self) -> None:
        """Report how many of the requested logprobs are known."""
        if self.settings.progress is not None:
            known_count = int(np.isfinite(self.estimates.logprobs[self.tokens]).sum())
            self.settings.progress(known_count, len(self.tokens))

    def _change_of_unbiased_response(self, check_number: int) -> float:
        """Query without a bias; return the change that rounding and noise do not explain, nats."""
        ((response,),) = self.session.send_queries([{}], drift_check=check_number)
        unbiased = self.unbiased_response
        shared_tokens = response.logprobs.keys() & unbiased.logprobs.keys()
        changes = [abs(response.logprobs[token] - unbiased.logprobs[token]) for token in shared_tokens]
        change_nats = max(changes, default=0.0)
        max_explained_nats = max(
            _RELATIVE_ERROR_FACTOR * self.profile.relative_error,
            _SPREAD_FACTOR * unbiased.spread_nats,
            _NOISE_FACTOR * unbiased.noise_nats,
        )
        return change_nats if change_nats > max_explained_nats else 0.0


# a method that recovers the tokens it is given, each on its own
PointwiseMethod = Callable[[RecoveryTask, Sequence[int]], None]


class LogprobEstimates:
    """Recovered logprobs with their errors, and the tokens that cannot be recovered."""

    def __init__(self, vocab_size: int, endpoint: Endpoint) -> None:
        self.logprobs: Float64s = np.full(vocab_size, np.nan)  # float64 (V,), nats; NaN where unknown
        # estimated errors of the logprobs, float64 (V,), nats; NaN where unknown
        self.errors: Float64s = np.full(vocab_size, np.nan)
        # whether ``logprobs`` are true logprobs; False while they are relative to the most likely token
        self.is_normalized = True
        self.unnameable_ids = endpoint.unnameable_ids  # ids that the endpoint cannot name
        # ids whose responses contradict each other, or the unbiased response
        self.contradicted_ids: set[int] = set()
        # logprobs, in nats, that were shown for texts that are not the text of exactly one token
        self.unmatched_logprobs: tuple[float, ...] = ()
        self.max_hidden_logprob = inf  # upper limit of the logprobs of tokens that are found from now on, nats
        self._shown_tokens: frozenset[int] = frozenset()  # the tokens of the unbiased response
        self._noise_nats = 0.0

    def set_limits(self, unbiased_response: UnbiasedResponse) -> None:
        """Reject all values added from now on that contradict the unbiased response."""
        self.max_hidden_logprob = unbiased_response.max_hidden_logprob
        self._noise_nats = unbiased_response.noise_nats
        self._shown_tokens = frozenset(unbiased_response.logprobs)
        self.record_unmatched_logprobs(unbiased_response.unmatched_logprobs)

    def add(self, token: int, values: Sequence[float], error: float) -> None:
        """Set a token's logprob to the mean of measured values."""
        logprob, mean_error = mean_logprob(values, error, self._noise_nats)
        is_hidden = token not in self._shown_tokens  # in the unbiased response, which shows the most likely tokens
        if is_hidden and logprob > self.max_hidden_logprob:  # its bias was not added exactly
            self.contradicted_ids.add(token)
        else:
            self.set(token, logprob, mean_error)

    def set(self, token: int, logprob: float, error: float) -> None:
        self.logprobs[token] = min(logprob, 0.0)
        self.errors[token] = error

    def forget(self, token: int) -> None:
        """Remove the logprob of a token, so that the token is queried again."""
        self.logprobs[token] = np.nan
        self.errors[token] = np.nan

    def mark_contradicted(self, token: int) -> None:
        """Remove the logprob of a token whose responses contradict each other, and exclude the token."""
        self.forget(token)
        self.contradicted_ids.add(token)

    def record_unmatched_logprobs(self, logprobs: Sequence[float]) -> None:
        """Keep logprobs of texts without a token: the longest list, because all responses show the same ones."""
        if len(logprobs) > len(self.unmatched_logprobs):
            self.unmatched_logprobs = tuple(logprobs)

    def is_known(self, token: int) -> bool:
        return not np.isnan(self.logprobs[token])

    def known_tokens(self) -> NDArray[np.intp]:
        """Return the ids of the tokens that have a logprob, in ascending order."""
        return np.flatnonzero(~np.isnan(self.logprobs))

    def known_by_logprob(self) -> list[int]:
        """Return the tokens that have a logprob, most likely first."""
        ids = self.known_tokens()
        return [int(token) for token in ids[np.argsort(-self.logprobs[ids], kind="stable")]]

    def unknown_among(self, tokens: Sequence[int] | NDArray[np.intp]) -> list[int]:
        """Return the given tokens whose logprob is unknown and may still be recovered."""
        ids = np.asarray(tokens, dtype=np.intp)
        unknown_ids: list[int] = ids[np.isnan(self.logprobs[ids])].tolist()
        excluded_ids = self.unnameable_ids | self.contradicted_ids
        return [token for token in unknown_ids if token not in excluded_ids]
