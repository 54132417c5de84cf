"""Records of tokens, and their JSON.

The record of a token has the logprobs that were read at its step, and optionally a trace. The trace shows what
each stage did to the candidates: the model, the grammar and the steps of the chain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

LogprobSource = Literal["model", "chain"]
"""The logits that logprobs are computed from, by log-softmax.

``model``: the model's logits, before the chain. ``chain``: the logits after the chain, from which the token is
drawn.
"""

Part = Literal["reasoning", "answer"]
"""The part of a text that a token belongs to. The tags around the reasoning belong to it."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its logprob.

    Attributes:
        id: the token's id.
        data: the token's bytes.
        logprob: the natural logarithm of the token's probability; None if there is no logprob.
    """

    id: int
    data: bytes
    logprob: float | None

    @property
    def text(self) -> str:
        """The bytes as a string. Bytes that are not UTF-8 are escaped, see `display_text`."""
        return display_text(self.data)

    def as_json(self) -> dict[str, object]:
        """Return the JSON fields ``id, token, bytes, logprob``."""
        return {
            "id": self.id,
            "token": self.text,
            "bytes": list(self.data),
            "logprob": finite_or_none(self.logprob),
        }


@dataclass(frozen=True, slots=True)
class Distribution:
    """The values that were read from one distribution over the vocabulary.

    Attributes:
        source: the logits that the distribution is computed from.
        logprob: logprob of the chosen token, nats; None if the chain removed the token.
        top: the most probable tokens, in descending order of their probability.
        named: the tokens whose logprobs were requested by id.
        entropy: the distribution's entropy, nats; None if the entropy was not computed.
        row: the logprob of each token, in the order of the ids, as little-endian float32; -inf for tokens that the
            chain removed. None if the row was not requested.
        kept: number of tokens that the chain kept; None for the model's distribution.
        rank: the chosen token's place among all tokens, counted from 1 for the most probable one; None if the rank
            was not computed.
    """

    source: LogprobSource
    logprob: float | None
    top: tuple[TokenLogprob, ...] = ()
    named: tuple[TokenLogprob, ...] = ()
    entropy: float | None = None
    row: bytes | None = None
    kept: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of a text, with the distributions that were read at its step.

    Attributes:
        index: the token's position in the text, counted from 0.
        id: the token's id.
        data: the token's bytes.
        text: the text that becomes complete with this token; shorter than the bytes if a character is incomplete
            or a stop string may have begun.
        is_control: True for a control token, whose bytes are not part of the text. The control tokens of the tags
            around the reasoning are part of the text.
        distributions: the distributions that were read, one for each source; empty if none was read.
        added_bytes: number of leading bytes that the tokenizer added. SentencePiece adds a space before a text.
        healed_bytes: number of leading bytes that spell the end of the prompt again.
        trace: the record of how the token was chosen; None if the run is not traced.
        part: the part of the text; None if the text has no parts.
        is_forced: True if the token was not drawn: the grammar, a phase or the end of a sentence that is completed
            allowed only its text.
        model_logprob: the model's logprob of a drawn token, nats; None unless the run measures its confidence.
    """

    index: int
    id: int
    data: bytes
    text: str
    is_control: bool
    distributions: tuple[Distribution, ...] = ()
    added_bytes: int = 0
    healed_bytes: int = 0
    trace: Trace | None = None
    part: Part | None = None
    is_forced: bool = False
    model_logprob: float | None = None

    @property
    def own_data(self) -> bytes:
        """The token's bytes without those that the tokenizer added, and without those of the prompt's end."""
        return self.data[self.added_bytes + self.healed_bytes :]

    @property
    def chosen(self) -> TokenLogprob:
        """The token with its logprob in the first distribution; the logprob is None without a distribution."""
        return TokenLogprob(self.id, self.data, self.distributions[0].logprob if self.distributions else None)

    @property
    def top(self) -> tuple[TokenLogprob, ...]:
        """The most probable tokens of the first distribution; empty without a distribution."""
        return self.distributions[0].top if self.distributions else ()


@dataclass(frozen=True, slots=True)
class TraceStage:
    """A stage of a trace: the model, the grammar's mask or a step of the chain.

    Attributes:
        name: ``model``, ``grammar`` or the sampler's name.
        step: the step's index in the chain, as in `Start.chain`; None for the model and the grammar.
        kept: number of candidates after the stage.
        entropy: entropy of the candidates after the stage, nats.
        note: what the step did, in words and numbers; None if the sampler writes no note.
        roll: the random number that decided whether the step acts (``xtc``); None for steps without such a number.
    """

    name: str
    step: int | None
    kept: int
    entropy: float
    note: str | None = None
    roll: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields ``name, step, kept, entropy, note``, and ``roll`` unless it is None."""
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
    """A token with its logit and probability after each stage of a trace.

    Attributes:
        id: the token's id.
        data: the token's bytes.
        logits: the token's logit after each stage, nats; None after a stage that leaves the token out.
        probs: the token's probability after each stage; None after a stage that leaves the token out.
        dropped_by: index of the stage that dropped the token; None if the token is a candidate after the last
            stage.
    """

    id: int
    data: bytes
    logits: tuple[float | None, ...]
    probs: tuple[float | None, ...]
    dropped_by: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields ``id, token, bytes, logits, probs, dropped_by``. A logit of -inf becomes null."""
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
    """A draw: the random number, and the interval of the cumulative distribution that contains the number.

    The candidates are in the order of the last stage. ``low < u <= high``; for the first candidate ``u`` may be 0.

    Attributes:
        u: the random number, between 0 and 1.
        low: cumulative probability of the candidates that precede the chosen token.
        high: ``low`` plus the probability of the chosen token.
    """

    u: float
    low: float
    high: float

    def as_json(self) -> dict[str, float]:
        """Return the JSON fields ``u, low, high``."""
        return {"u": self.u, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Trace:
    """The record of how a token was chosen.

    Attributes:
        stages: the stages in order, from the model to the distribution that the token is drawn from.
        candidates: the most probable tokens of each stage and the chosen token, in descending order of the model's
            logits.
        draw: the random draw; None if the token was chosen without a random number.
        forced: True if the grammar allowed only this token, so that the chain's draw was ignored.
    """

    stages: tuple[TraceStage, ...]
    candidates: tuple[TraceCandidate, ...]
    draw: TraceDraw | None = None
    forced: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields ``stages[], candidates[], draw``, and ``forced`` if it is true."""
        return {
            "stages": [stage.as_json() for stage in self.stages],
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "draw": None if self.draw is None else self.draw.as_json(),
            **({"forced": True} if self.forced else {}),
        }


def display_text(data: bytes) -> str:
    """Return a token's bytes as a string. Bytes that are not UTF-8 become ``bytes:\\xNN…``, as in OpenAI's API."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)


def finite_or_none(value: float | None) -> float | None:
    """Return the number if it is finite, otherwise None, because JSON has no NaN and no Infinity."""
    return value if value is not None and math.isfinite(value) else None
