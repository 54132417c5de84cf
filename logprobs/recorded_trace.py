"""A trace read back from a recorded line."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

Byte = Annotated[int, Field(ge=0, le=255)]
Nats = Annotated[float, Field(allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1.001)]
"""A probability; rounding may put it a little above 1."""


class RecordedStage(BaseModel):
    """A stage of a trace; see `TraceStage`."""

    name: str
    step: int | None = None
    kept: int
    entropy: Nats | None = None
    note: str | None = None
    roll: Nats | None = None


class RecordedCandidate(BaseModel):
    """A candidate of a trace; see `TraceCandidate`."""

    id: int
    data: Annotated[list[Byte], Field(alias="bytes")]
    logits: list[Nats | None]
    probs: list[Probability | None]
    dropped_by: int | None = None


class RecordedDraw(BaseModel):
    """The draw of a trace; see `TraceDraw`."""

    u: Nats
    low: Nats
    high: Nats


class RecordedTrace(BaseModel):
    """How a token was chosen; see `Trace`."""

    stages: Annotated[list[RecordedStage], Field(min_length=1)]
    candidates: list[RecordedCandidate]
    draw: RecordedDraw | None = None
    forced: bool = False

    @model_validator(mode="after")
    def _check_lengths(self) -> RecordedTrace:
        count = len(self.stages)
        for candidate in self.candidates:
            if len(candidate.logits) != count or len(candidate.probs) != count:
                raise ValueError(f"candidate {candidate.id} has not one logit and one probability per stage")
            if candidate.dropped_by is not None and not 0 <= candidate.dropped_by < count:
                raise ValueError(f"candidate {candidate.id}: dropped_by names no stage")
        return self

    def candidate(self, token_id: int | None) -> RecordedCandidate | None:
        """The candidate with this id, None if the trace does not have it."""
        return next((candidate for candidate in self.candidates if candidate.id == token_id), None)

    def likeliest(self) -> RecordedCandidate | None:
        """The likeliest candidate of the first stage, the model; None if there are no candidates."""
        return max(self.candidates, key=lambda candidate: candidate.probs[0] or 0.0, default=None)

    def fallen_likeliest(self) -> RecordedCandidate | None:
        """The model's likeliest token if a stage dropped it, so that it could not be drawn; None otherwise."""
        likeliest = self.likeliest()
        return None if likeliest is None or likeliest.dropped_by is None else likeliest
