"""A recorded run, as far as it was read, and what is shown of each token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...logprobs import RecordedDistribution, RecordedDone, RecordedStart, RecordedTokenLine


@dataclass(frozen=True)
class InspectedToken:
    """A token, and the distribution that is shown of it; None if the run has none.

    ``fallen``: the stage that dropped the likeliest token; None if that one could be drawn, or without a trace.
    """

    line: RecordedTokenLine
    distribution: RecordedDistribution | None
    fallen: str | None

    @property
    def logprob(self) -> float | None:
        """The token's logprob in nats."""
        return None if self.distribution is None else self.distribution.logprob


@dataclass
class InspectedRun:
    """A run: its first and its last line, if they are there, and its tokens."""

    start: RecordedStart | None = None
    done: RecordedDone | None = None
    tokens: list[InspectedToken] = field(default_factory=list)
