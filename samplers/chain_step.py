"""What a chain needs of its steps, so that a recorder can stand in for them."""

from __future__ import annotations

from typing import Protocol

from .base import About
from .candidates import Candidates


class ApplyingStep(Protocol):
    """What a chain needs of a step before the draw: a `Sampler`, or what stands in for one."""

    @property
    def about(self) -> About:
        """The facts of the sampler."""
        ...

    def apply(self, candidates: Candidates) -> None:
        """Drop rows or change logits, in place."""
        ...


class SelectingStep(Protocol):
    """What a chain needs of its last step: a `Selector`, or what stands in for one."""

    @property
    def about(self) -> About:
        """The facts of the sampler."""
        ...

    def select(self, candidates: Candidates) -> int:
        """Return the id of one of the candidates."""
        ...
