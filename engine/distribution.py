"""Reads logprobs out of the model's logits, and out of what the chain left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, log

import numpy as np
from numpy.typing import NDArray

from ..logprobs import Distribution, LogprobSource, TokenLogprob
from ..samplers import Candidates
from .errors import ModelError
from .vocabulary import Vocabulary

Floats = NDArray[np.float32]

SOURCES: dict[str, tuple[LogprobSource, ...]] = {
    "model": ("model",),
    "chain": ("chain",),
    "both": ("model", "chain"),
}


@dataclass(frozen=True)
class LogprobRequest:
    """Which logprobs to read at each step.

    ``top``: how many likely tokens beside the chosen one; None: nothing is read; -1: every token's, as a row.
    ``sources``: ``model``, ``chain`` or ``both``. ``named``: ids of tokens that are read at every step.
    """

    top: int | None = None
    sources: str = "model"
    named: tuple[int, ...] = ()

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise ``ModelError`` for what there is not."""
        if self.top is not None and not -1 <= self.top <= vocabulary.size:
            raise ModelError(f"top_logprobs: {self.top} is not within -1..{vocabulary.size}")
        if self.top is None and (self.named or self.sources != "model"):
            raise ModelError("logprob_of and logprobs_from need top_logprobs, 0 or more")
        if self.sources not in SOURCES:
            raise ModelError(f"logprobs_from: {self.sources!r} is none of {', '.join(SOURCES)}")
        vocabulary.check(self.named)


class LogprobReader:
    """Makes a `Distribution` of each source at each step; logprobs in nats, summed in float64."""

    def __init__(self, vocabulary: Vocabulary, wanted: LogprobRequest) -> None:
        wanted.check(vocabulary)
        self.wanted = wanted
        self._vocabulary = vocabulary
        self._sources = () if wanted.top is None else SOURCES[wanted.sources]
        self.reads_chain = "chain" in self._sources
        self._named = np.array(wanted.named, dtype=np.intp)
        self._below = self._weights = np.empty(0, dtype=np.float32)

    def read(self, logits: Floats, token: int, left: Candidates | None = None) -> tuple[Distribution, ...]:
        """What is known of a step: ``logits``, float32 (V,), the chosen ``token``, and what the chain ``left``."""
        found = []
        for source in self._sources:
            if source == "model":
                found.append(self.of_model(logits, token))
            elif left is not None:
                found.append(self._of_chain(left, token))
        return tuple(found)

    def of_model(self, logits: Floats, token: int) -> Distribution:
        """The model's own distribution: log-softmax of its logits."""
        row = Candidates(logits)
        total, entropy = self._sums(logits, row.max)
        top = self.wanted.top or 0
        positions = row.top_positions(top)
        return Distribution(
            "model",
            float(logits[token]) - total,
            self._tokens(positions, logits, total),
            self._tokens(self._named, logits, total),
            entropy,
            self._row(logits, total) if top < 0 else None,
        )

    def _of_chain(self, left: Candidates, token: int) -> Distribution:
        """What was drawn from. A token that the chain removed has no logprob."""
        total, entropy = self._sums(left.logits, left.max)
        place = np.flatnonzero(left.ids == token)
        top = self.wanted.top or 0
        positions = left.top_positions(top)
        whole = None
        if top < 0 or self._named.size:
            whole = np.full(self._vocabulary.size, -np.inf, dtype=np.float32)
            whole[left.ids] = left.logits
        return Distribution(
            "chain",
            float(left.logits[place[0]]) - total if place.size else None,
            self._tokens(left.ids[positions], left.logits[positions], total, by_id=False),
            () if whole is None else self._tokens(self._named, whole, total),
            entropy,
            self._row(whole, total) if whole is not None and top < 0 else None,
        )

    def _sums(self, logits: Floats, highest: np.float32) -> tuple[float, float]:
        """The log of the sum of exp(logit), and the entropy, both in nats."""
        if self._below.size < logits.size:
            self._below, self._weights = (np.empty(logits.size, dtype=np.float32) for _ in range(2))
        below, weights = self._below[: logits.size], self._weights[: logits.size]
        with np.errstate(over="ignore"):  # two finite logits may lie further apart than float32 reaches
            np.subtract(logits, highest, out=below)
        np.exp(below, out=weights)
        mass = float(np.add.reduce(weights, dtype=np.float64))
        moment = float(below.dot(weights))
        if isnan(moment):  # 0 · -inf, of tokens that cannot come
            there = weights > 0
            moment = float(below[there].dot(weights[there]))
        return float(highest) + log(mass), log(mass) - moment / mass

    def _tokens(
        self, places: Sequence[int] | NDArray[np.integer], logits: Floats, total: float, by_id: bool = True
    ) -> tuple[TokenLogprob, ...]:
        """Tokens with their logprobs. ``logits``: of the whole vocabulary, or, not ``by_id``, of these tokens."""
        if not len(places):
            return ()
        piece = self._vocabulary.piece
        ids = np.asarray(places)
        values = (logits[ids] if by_id else logits).tolist()
        return tuple(
            TokenLogprob(token, piece(token), logit - total)
            for token, logit in zip(ids.tolist(), values, strict=True)
        )

    def _row(self, logits: Floats, total: float) -> bytes:
        return (logits.astype(np.float64) - total).astype("<f4").tobytes()
