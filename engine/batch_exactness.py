"""What holds for the answers of a batch: whether other requests can change them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ExactnessLevel(Enum):
    """How far the answers of a batch can be relied on.

    ``EXACT``: each answer is what the request gets alone. ``AMONG_THEMSELVES``: each answer is the same for every
    number of slots from 2 on, every order and all other requests, but differs from what the request gets alone.
    ``ROUNDING``: other requests may move the logits by a rounding error, which may change a token.
    """

    EXACT = "exact"
    AMONG_THEMSELVES = "exact among themselves"
    ROUNDING = "to rounding"


@dataclass(frozen=True)
class BatchExactness:
    """What holds for the answers of a batch.

    Attributes: ``level``; ``largest_difference``, the largest difference between logits that were computed with
    other numbers of rows than the batch relies on, as far as it was measured; 0 if none was seen;
    ``alone_tokens``, how many tokens a prompt and its answer may have together to be exact; longer ones are exact
    among themselves. None: any number.
    """

    level: ExactnessLevel
    largest_difference: float = 0.0
    alone_tokens: int | None = None

    def of_text(self, tokens: int) -> BatchExactness:
        """What holds for one answer; ``tokens``: how many it has together with its prompt."""
        if self.level is not ExactnessLevel.EXACT or self.alone_tokens is None:
            return self
        level = ExactnessLevel.EXACT if tokens <= self.alone_tokens else ExactnessLevel.AMONG_THEMSELVES
        return BatchExactness(level, self.largest_difference)

    def __str__(self) -> str:
        if self.level is not ExactnessLevel.ROUNDING or not self.largest_difference:
            return self.level.value
        return f"{self.level.value} ({self.largest_difference:.0e})".replace("e-0", "e-")


EXACT = BatchExactness(ExactnessLevel.EXACT)
"""What holds for requests that are computed one by one."""
