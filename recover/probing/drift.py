"""Does the endpoint still answer as it did at the beginning of the run?"""

from __future__ import annotations

from collections.abc import Callable

from ..query_session import QuerySession
from .base_window import BaseWindow

QUESTIONS_PER_CHECK = 100
"""Questions between two checks: they cost one call in a hundred."""
_PRECISION_FACTOR, _SPREAD_FACTOR, _NOISE_FACTOR = 20, 3, 5
"""A change is drift if it is larger than so many times the precision, the spread and the noise."""


class DriftMonitor:
    """Asks a question with a known answer after every 100 questions.

    Args:
        session: asks the endpoint.
        base: the window without a bias, the known answer.
        precision: relative error of an answered probability.

    Attributes: ``largest``: the largest change of an answer in the course of the run, nats; 0: none.
    """

    def __init__(self, session: QuerySession, base: BaseWindow, precision: float) -> None:
        self.largest = 0.0
        self._session = session
        self._base = base
        self._explained = max(
            _PRECISION_FACTOR * precision, _SPREAD_FACTOR * base.spread, _NOISE_FACTOR * base.noise
        )
        self._questions = 0
        self._measure: Callable[[int], float] = self._base_window_change

    def measure_by(self, measure: Callable[[int], float]) -> None:
        """Replace the check: ``measure`` gets its number, from 1, and returns the change in nats."""
        self._measure = measure

    def count_question(self) -> None:
        """Count a question, and check after every hundredth."""
        self._questions += 1
        if self._questions % QUESTIONS_PER_CHECK == 0:
            self.largest = max(self.largest, self._measure(self._questions // QUESTIONS_PER_CHECK))

    def _base_window_change(self, number: int) -> float:
        """Ask again without a bias; return the change that precision and noise do not explain, nats."""
        ((answer,),) = self._session.ask([{}], drift_check=number)
        base = self._base.logprobs
        common = answer.logprobs.keys() & base.keys()
        change = max((abs(answer.logprobs[token] - base[token]) for token in common), default=0.0)
        return change if change > self._explained else 0.0
