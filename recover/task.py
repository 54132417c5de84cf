"""What a method works with: it asks questions and adds to the estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .endpoints.base import Bias, EndpointAnswer, EndpointLimits, QuestionKind
from .estimates import LogprobEstimates
from .probing.base_window import BaseWindow
from .probing.bias_range import BiasRange
from .probing.drift import DriftMonitor
from .probing.profile import EndpointProfile
from .query_session import QuerySession
from .settings import RecoverySettings


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
