"""Records of what each stage of a chain did to the candidates for one token, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .records import display_text, finite_or_none


@dataclass(frozen=True, slots=True)
class TraceStage:
    """A stage: the model, the grammar's mask, a step of the chain, and last what the token was drawn from.

    Attributes:
        name: ``model``, ``grammar`` or the sampler's name.
        step: the step's index in the chain, as in `Start.chain`; None for the model and the grammar.
        kept: how many candidates there are after it.
        entropy: theirs, in nats.
        note: what the step did, in words and numbers; None where there is nothing to add.
        roll: the random number that decided whether the step acts (``xtc``); None for steps without one.
    """

    name: str
    step: int | None
    kept: int
    entropy: float
    note: str | None = None
    roll: float | None = None

    def as_json(self) -> dict[str, Any]:
        """``name, step, kept, entropy, note``, and ``roll`` if there is one."""
        return {
            "name": self.name,
            "step": self.step,
            "kept": self.kept,
            "entropy": finite_or_none(self.entropy),
            "note": self.note,
            **({} if self.roll is None else {"roll": self.roll}),
        }


@dataclass(frozen=True, slots=True)
class TraceCandidate:
    """A token at every stage.

    Attributes:
        id: its id.
        data: its bytes.
        logits: one a stage, in nats; None where it is not among the candidates.
        probs: its probability at each stage; likewise.
        dropped_by: the index of the stage that dropped it; None if it is among the last stage's candidates.
    """

    id: int
    data: bytes
    logits: tuple[float | None, ...]
    probs: tuple[float | None, ...]
    dropped_by: int | None

    def as_json(self) -> dict[str, Any]:
        """``id, token, bytes, logits, probs, dropped_by``. A logit of -inf is null, its probability 0."""
        return {
            "id": self.id,
            "token": display_text(self.data),
            "bytes": list(self.data),
            "logits": [finite_or_none(logit) for logit in self.logits],
            "probs": list(self.probs),
            "dropped_by": self.dropped_by,
        }


@dataclass(frozen=True, slots=True)
class TraceDraw:
    """A draw: the random number ``u``, and the interval of the cumulative distribution in which it lies.

    The interval is the token's: ``low`` is the probability of all candidates before it, in the order of the last
    stage, and ``high`` adds its own. ``low < u <= high``; for the first candidate ``u`` may be 0.
    """

    u: float
    low: float
    high: float

    def as_json(self) -> dict[str, float]:
        """``u, low, high``."""
        return {"u": self.u, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Trace:
    """How a token was chosen.

    Attributes:
        stages: from the model's logits to the draw.
        candidates: the likeliest at any stage and the chosen one, by the model's logits from high to low.
        draw: None if the token was not drawn by chance.
        forced: True if the grammar left no choice, and what the chain drew does not count.
    """

    stages: tuple[TraceStage, ...]
    candidates: tuple[TraceCandidate, ...]
    draw: TraceDraw | None = None
    forced: bool = False

    def as_json(self) -> dict[str, Any]:
        """``stages[], candidates[], draw``, and ``forced`` if it is true."""
        return {
            "stages": [stage.as_json() for stage in self.stages],
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "draw": None if self.draw is None else self.draw.as_json(),
            **({"forced": True} if self.forced else {}),
        }
