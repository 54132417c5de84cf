"""The task of a method: it asks questions through a task, and adds what it finds to the estimates."""

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
from .unbiased_window import DriftMonitor, UnbiasedWindow


@dataclass(frozen=True)
class RecoveryTask:
    """The parts of a running recovery.

    Args:
        session: asks the endpoint.
        settings: how the recovery is run.
        tokens: the requested ids, int (n,).
        unbiased_window: the window without a bias.
        profile: what the probe measured.
        bias_range: which biases are added as asked.
        estimates: what was found.
        drift_monitor: checks now and then whether answers changed.
        notes: findings in words; methods append to it.
    """

    session: QuerySession
    settings: RecoverySettings
    tokens: NDArray[np.intp]
    unbiased_window: UnbiasedWindow
    profile: EndpointProfile
    bias_range: BiasRange
    estimates: LogprobEstimates
    drift_monitor: DriftMonitor
    notes: list[str]

    @property
    def limits(self) -> EndpointLimits:
        """What the endpoint allows."""
        return self.session.endpoint.limits

    @property
    def anchor(self) -> int:
        """The likeliest token that may be drawn, see `QuerySession.prefer_whole_text`."""
        return self.session.prefer_complete_utf8(self.unbiased_window.ranked_tokens)[0]

    def send_queries(
        self, biases: Iterable[Bias], kind: QueryKind = QueryKind.NEXT_TOKEN
    ) -> Iterator[list[EndpointResponse]]:
        """Yield the answers to each question, as many as the probe found necessary to average."""
        for responses in self.session.send_queries(biases, self.unbiased_window.calls_per_query, kind=kind):
            yield responses
            self.drift_monitor.count_query()
            self.report_progress()

    def report_progress(self) -> None:
        """Tell how many of the requested logprobs are known."""
        if self.settings.progress is not None:
            self.settings.progress(self.estimates.count_known(self.tokens), len(self.tokens))


PointwiseMethod = Callable[[RecoveryTask, Sequence[int]], None]
"""A method that recovers named tokens."""


class LogprobEstimates:
    """Logprobs and their errors, and which tokens cannot have one. Only its methods change it.

    Args:
        vocab_size: number of tokens.
        unnameable_ids: ids that the endpoint cannot name.

    Attributes:
        logprobs: float64 (V,), nats, NaN where unknown.
        errors: float64 (V,), nats, NaN where unknown.
        unnameable_ids: ids that the endpoint cannot name.
        contradicted_ids: ids whose answers contradict one another, or the window without a bias.
        unmatched_logprobs: logprobs of likely tokens that were shown without a name.
        is_normalized: False while logprobs are relative to the likeliest token.
    """

    def __init__(self, vocab_size: int, unnameable_ids: frozenset[int] = frozenset()) -> None:
        self.logprobs: Float64s = np.full(vocab_size, np.nan)
        self.errors: Float64s = np.full(vocab_size, np.nan)
        self.unnameable_ids = unnameable_ids
        self.contradicted_ids: set[int] = set()
        self.unmatched_logprobs: tuple[float, ...] = ()
        self.is_normalized = True
        self._max_hidden_logprob = inf
        self._noise_nats = 0.0
        self._unbiased_tokens: Collection[int] = ()

    def apply_unbiased_limits(self, unbiased_window: UnbiasedWindow) -> None:
        """Refuse from now on values that the window without a bias contradicts."""
        self._max_hidden_logprob = unbiased_window.max_hidden_logprob
        self._noise_nats = unbiased_window.noise_nats
        self._unbiased_tokens = unbiased_window.logprobs.keys()
        self.record_unmatched_logprobs(unbiased_window.unmatched_logprobs)

    def add_unbiased_window(self, unbiased_window: UnbiasedWindow) -> None:
        """Take the logprobs of the window without a bias."""
        for token, logprob in unbiased_window.logprobs.items():
            self.logprobs[token] = min(logprob, 0.0)
            self.errors[token] = unbiased_window.errors[token]

    def add(self, token: int, values: Sequence[float], error: float) -> None:
        """Take a token's logprob as the mean of ``values``, each with this error, nats.

        A token that is likelier than all that the window without a bias hides is contradicted: its bias did not
        act as asked.
        """
        mean = mean_logprob(values, error, self._noise_nats)
        if token not in self._unbiased_tokens and self.exceeds_max_hidden_logprob(mean.logprob):
            self.contradicted_ids.add(token)
            return
        self.logprobs[token] = min(mean.logprob, 0.0)
        self.errors[token] = mean.error

    def exceeds_max_hidden_logprob(self, logprob: float) -> bool:
        """True if no token behind the windows so far can be as likely."""
        return logprob > self._max_hidden_logprob

    def lower_max_hidden_logprob(self, logprob: float) -> None:
        """No token that is found from now on can be likelier than this."""
        self._max_hidden_logprob = min(self._max_hidden_logprob, logprob)

    def mark_unnameable(self, tokens: frozenset[int]) -> None:
        """Note that the endpoint cannot name these tokens."""
        self.unnameable_ids |= tokens

    def forget(self, token: int) -> None:
        """Make a token unknown again, to be asked for once more."""
        self.logprobs[token] = self.errors[token] = np.nan

    def mark_contradicted(self, token: int) -> None:
        """Forget a token whose answers contradict one another; it is not asked for again."""
        self.forget(token)
        self.contradicted_ids.add(token)

    def record_unmatched_logprobs(self, logprobs: Sequence[float]) -> None:
        """Keep the logprobs of tokens without a name. Each window shows the same ones, so the most are kept."""
        if len(logprobs) > len(self.unmatched_logprobs):
            self.unmatched_logprobs = tuple(logprobs)

    def unknown_among(self, tokens: Sequence[int] | NDArray[np.intp]) -> list[int]:
        """Return those of the tokens whose logprob is unknown and can be found."""
        ids = np.asarray(tokens, dtype=np.intp)
        excluded = self.unnameable_ids | self.contradicted_ids
        return [int(token) for token in ids[np.isnan(self.logprobs[ids])] if int(token) not in excluded]

    def is_known(self, token: int) -> bool:
        """True if the token has a logprob."""
        return not np.isnan(self.logprobs[token])

    def known_by_logprob(self) -> list[int]:
        """Return the known tokens, likeliest first."""
        ids = np.flatnonzero(~np.isnan(self.logprobs))
        return [int(token) for token in ids[np.argsort(-self.logprobs[ids], kind="stable")]]

    def count_known(self, tokens: NDArray[np.intp]) -> int:
        """Return how many of the tokens have a logprob."""
        return int(np.isfinite(self.logprobs[tokens]).sum())

    def restart_relative_to(self, top_token: int, error: float) -> None:
        """Forget all, on another scale: the likeliest token ``top_token`` has 0, and others what they are
        below it.
        """
        self.logprobs[:] = self.errors[:] = np.nan
        self._max_hidden_logprob = inf
        self.logprobs[top_token] = 0.0
        self.errors[top_token] = error
        self.is_normalized = False

    def set_error(self, token: int, error: float) -> None:
        """Replace a token's error."""
        self.errors[token] = error

    def normalize(self) -> None:
        """Turn relative values into logprobs, if all tokens are known: their probabilities sum to 1.

        This moves all values by at most the mean error, which each error grows by.
        """
        self.is_normalized = not np.isnan(self.logprobs).any()
        if self.is_normalized:
            self.logprobs -= logsumexp(self.logprobs)
            self.errors += float(np.exp(self.logprobs) @ self.errors)

    def fill_unknown(self, row: Float64s, error: float) -> None:
        """Take all unknown logprobs from a whole row; relative values take their scale from its sum."""
        if not self.is_normalized:
            shift = logsumexp(row)
            row = row - shift
            self.logprobs -= shift
            self.is_normalized = True
        unknown = np.isnan(self.logprobs)
        self.logprobs[unknown] = np.minimum(row[unknown], 0.0)
        self.errors[unknown] = error
