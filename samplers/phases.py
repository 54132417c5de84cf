"""Phases: parts of a text that are drawn with different chains, such as the reasoning and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .chain import StepSpec


@dataclass(frozen=True)
class Phase:
    """A part of a text before the last part. The last part has the chain of the run.

    Attributes:
        steps: the steps of the chain; the last step selects the token.
        until: the text that ends the phase, with the token that completes it; None: the tag with which the model's
            chat template ends the reasoning.
        max_tokens: maximum number of tokens of the phase, without those of ``then``; None: no limit.
        then: the text that is forced after ``max_tokens`` tokens; empty: the next phase begins immediately.
        adds_end: whether the text of ``until`` is forced after ``then``.
    """

    steps: tuple[StepSpec, ...]
    until: str | None = None
    max_tokens: int | None = None
    then: str = ""
    adds_end: bool = False

    def as_setting(self) -> dict[str, Any]:
        """Return the phase as a preset writes it."""
        table: dict[str, Any] = {"chain": [{step.name: step.sampler.model_dump()} for step in self.steps]}
        if self.until is not None:
            table["until"] = self.until
        if self.max_tokens is not None:
            table["max_tokens"] = self.max_tokens
        if self.then:
            table["then"] = self.then
        return table
