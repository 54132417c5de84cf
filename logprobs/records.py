"""Records of a token, and their JSON.

A record has the distributions that the token was drawn from, and the trace: what each stage of a chain did to the
candidates for this token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

LogprobSource = Literal["model", "chain"]
"""``model``: log-softmax of the untouched logits; ``chain``: of what the chain left, which was drawn from."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token by id and bytes, with its log-probability in nats; None where there is none."""

    id: int
    data: bytes
    logprob: float | None

    @property
    def text(self) -> str:
        """The bytes as text; see `display_text` for bytes that are not."""
        return display_text(self.data)

    def as_json(self) -> dict[str, object]:
        """``id, token, bytes, logprob``."""
        return {
            "id": self.id,
            "token": self.text,
            "bytes": list(self.data),
            "logprob": finite_or_none(self.logprob),
        }


@dataclass(frozen=True, slots=True)
class Distribution:
    """What was read of one distribution over the vocabulary; logprobs and entropy in nats.

    Attributes:
        source: which distribution it is.
        logprob: the chosen token's; None if the chain removed it.
        top: the likeliest tokens, from high to low.
        named: the tokens whose logprobs were requested by id.
        entropy: the entropy; None if it was not computed.
        row: every token's logprob by id, float32 in little-endian bytes; -inf for tokens that the chain removed.
    """

    source: LogprobSource
    logprob: float | None
    top: tuple[TokenLogprob, ...] = ()
    named: tuple[TokenLogprob, ...] = ()
    entropy: float | None = None
    row: bytes | None = None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of a text, with the distributions that it came from, if they were read.

    Attributes:
        index: its position in the text, from 0.
        id: its id.
        data: its bytes.
        text: the text that can be shown once the token is there; it may lag behind the bytes.
        special: True for a control token that is not part of the text.
        distributions: one per source.
        added_bytes: how many of the first bytes the tokenizer added: the space that SentencePiece puts before a
            text.
        trace: how it was chosen; None if the run is not traced.
    """

    index: int
    id: int
    data: bytes
    text: str
    special: bool
    distributions: tuple[Distribution, ...] = ()
    added_bytes: int = 0
    trace: Trace | None = None

    @property
    def own_data(self) -> bytes:
        """The token's bytes without those that the tokenizer added."""
        return self.data[self.added_bytes :]

    def without_added_bytes(self) -> TokenRecord:
        """Return the token with its own bytes alone."""
        return replace(self, data=self.own_data, added_bytes=0) if self.added_bytes else self

    @property
    def chosen(self) -> TokenLogprob:
        """The token with its logprob in the first distribution, None if there is none."""
        return TokenLogprob(self.id, self.data, self.distributions[0].logprob if self.distributions else None)

    @property
    def top(self) -> tuple[TokenLogprob, ...]:
        """The likeliest tokens of the first distribution."""
        return self.distributions[0].top if self.distributions else ()


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


def display_text(data: bytes) -> str:
    """A token as text. Bytes that are not UTF-8 become ``bytes:`` and hexadecimal escapes, as with OpenAI."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)


def finite_or_none(value: float | None) -> float | None:
    """The number if it is finite; else None, since JSON has no NaN and no Infinity."""
    return value if value is not None and math.isfinite(value) else None
