"""The task of a method: it asks questions through a task, and adds what it finds to the estimates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from .base_window import BaseWindow, DriftMonitor
from .endpoints.base import Bias, EndpointAnswer, EndpointLimits, QuestionKind
from .numerics import Float64s, logsumexp, mean_logprob
from .probe import BiasRange, EndpointProfile
from .request import RecoverySettings
from .session import QuerySession


@dataclass(frozen=True)
class RecoveryTask:
    """The parts of a running recovery.

    Args:
        session: asks the endpoint.
        settings: how the recovery is run.
        tokens: the requested ids, int (n,).
        base: the window without a bias.
        profile: what the probe measured.
        bias_range: which biases are added as asked.
        estimates: what was found.
        drift: checks now and then whether answers changed.
        notes: findings in words; methods append to it.
    """

    session: QuerySession
    settings: RecoverySettings
    tokens: NDArray[np.intp]
    base: BaseWindow
    profile: EndpointProfile
    bias_range: BiasRange
    estimates: LogprobEstimates
    drift: DriftMonitor
    notes: list[str]

    @property
    def limits(self) -> EndpointLimits:
        """What the endpoint allows."""
        return self.session.endpoint.limits

    @property
    def anchor(self) -> int:
        """The likeliest token that may be drawn, see `QuerySession.prefer_whole_text`."""
        return self.session.prefer_whole_text(self.base.ranked)[0]

    def ask(
        self, biases: Iterable[Bias], kind: QuestionKind = QuestionKind.NEXT_TOKEN
    ) -> Iterator[list[EndpointAnswer]]:
        """Yield the answers to each question, as many as the probe found necessary to average."""
        for answers in self.session.ask(biases, self.base.repeats, kind=kind):
            yield answers
            self.drift.count_question()
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
        unnameable: ids that the endpoint cannot name.

    Attributes:
        logprobs: float64 (V,), nats, NaN where unknown.
        errors: float64 (V,), nats, NaN where unknown.
        unnameable: ids that the endpoint cannot name.
        contradicted: ids whose answers contradict one another, or the window without a bias.
        unnamed: logprobs of likely tokens that were shown without a name.
        is_normalised: False while logprobs are relative to the likeliest token.
    """

    def __init__(self, vocab_size: int, unnameable: frozenset[int] = frozenset()) -> None:
        self.logprobs: Float64s = np.full(vocab_size, np.nan)
        self.errors: Float64s = np.full(vocab_size, np.nan)
        self.unnameable = unnameable
        self.contradicted: set[int] = set()
        self.unnamed: tuple[float, ...] = ()
        self.is_normalised = True
        self._ceiling = inf
        self._noise = 0.0
        self._base_tokens: Collection[int] = ()

    def limit_by(self, base: BaseWindow) -> None:
        """Refuse from now on values that the window without a bias contradicts."""
        self._ceiling = base.ceiling
        self._noise = base.noise
        self._base_tokens = base.logprobs.keys()
        self.note_unnamed(base.unnamed)

    def add_base(self, base: BaseWindow) -> None:
        """Take the logprobs of the window without a bias."""
        for token, logprob in base.logprobs.items():
            self.logprobs[token] = min(logprob, 0.0)
            self.errors[token] = base.errors[token]

    def add(self, token: int, values: Sequence[float], error: float) -> None:
        """Take a token's logprob as the mean of ``values``, each with this error, nats.

        A token that is likelier than all that the window without a bias hides is contradicted: its bias did not
        act as asked.
        """
        mean = mean_logprob(values, error, self._noise)
        if token not in self._base_tokens and self.exceeds_ceiling(mean.logprob):
            self.contradicted.add(token)
            return
        self.logprobs[token] = min(mean.logprob, 0.0)
        self.errors[token] = mean.error

    def exceeds_ceiling(self, logprob: float) -> bool:
        """True if no token behind the windows so far can be as likely."""
        return logprob > self._ceiling

    def lower_ceiling(self, logprob: float) -> None:
        """No token that is found from now on can be likelier than this."""
        self._ceiling = min(self._ceiling, logprob)

    def exclude(self, tokens: frozenset[int]) -> None:
        """Note that the endpoint cannot name these tokens."""
        self.unnameable |= tokens

    def forget(self, token: int) -> None:
        """Make a token unknown again, to be asked for once more."""
        self.logprobs[token] = self.errors[token] = np.nan

    def contradict(self, token: int) -> None:
        """Forget a token whose answers contradict one another; it is not asked for again."""
        self.forget(token)
        self.contradicted.add(token)

    def note_unnamed(self, logprobs: Sequence[float]) -> None:
        """Keep the logprobs of tokens without a name. Each window shows the same ones, so the most are kept."""
        if len(logprobs) > len(self.unnamed):
            self.unnamed = tuple(logprobs)

    def unknown(self, tokens: Sequence[int] | NDArray[np.intp]) -> list[int]:
        """Return those of the tokens whose logprob is unknown and can be found."""
        ids = np.asarray(tokens, dtype=np.intp)
        excluded = self.unnameable | self.contradicted
        return [int(token) for token in ids[np.isnan(self.logprobs[ids])] if int(token) not in excluded]

    def is_known(self, token: int) -> bool:
        """True if the token has a logprob."""
        return not np.isnan(self.logprobs[token])

    def ranked(self) -> list[int]:
        """Return the known tokens, likeliest first."""
        ids = np.flatnonzero(~np.isnan(self.logprobs))
        return [int(token) for token in ids[np.argsort(-self.logprobs[ids], kind="stable")]]

    def count_known(self, tokens: NDArray[np.intp]) -> int:
        """Return how many of the tokens have a logprob."""
        return int(np.isfinite(self.logprobs[tokens]).sum())

    def restart_from(self, top: int, error: float) -> None:
        """Forget all, on another scale: the likeliest token ``top`` has 0, and others what they are below it."""
        self.logprobs[:] = self.errors[:] = np.nan
        self._ceiling = inf
        self.logprobs[top] = 0.0
        self.errors[top] = error
        self.is_normalised = False

    def set_error(self, token: int, error: float) -> None:
        """Replace a token's error."""
        self.errors[token] = error

    def normalise(self) -> None:
        """Turn relative values into logprobs, if all tokens are known: their probabilities sum to 1.

        This moves all values by at most the mean error, which each error grows by.
        """
        self.is_normalised = not np.isnan(self.logprobs).any()
        if self.is_normalised:
            self.logprobs -= logsumexp(self.logprobs)
            self.errors += float(np.exp(self.logprobs) @ self.errors)

    def fill(self, row: Float64s, error: float) -> None:
        """Take all unknown logprobs from a whole row; relative values take their scale from its sum."""
        if not self.is_normalised:
            shift = logsumexp(row)
            row = row - shift
            self.logprobs -= shift
            self.is_normalised = True
        unknown = np.isnan(self.logprobs)
        self.logprobs[unknown] = np.minimum(row[unknown], 0.0)
        self.errors[unknown] = error
