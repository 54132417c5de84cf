"""Reads logprobs out of the model's logits, and out of the candidates that the chain kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..logprobs.records import Distribution, LogprobSource, TokenLogprob
from ..models.errors import ModelError
from ..samplers.candidates import Candidates
from ..samplers.kernels import LeadingRows, SoftmaxWorkspace
from .native_context import Logits
from .vocabulary import Vocabulary

SOURCES: dict[str, tuple[LogprobSource, ...]] = {
    "model": ("model",),
    "chain": ("chain",),
    "both": ("model", "chain"),
}
"""The distributions that each value of ``logprobs_from`` stands for."""


@dataclass(frozen=True)
class LogprobRequest:
    """Which logprobs to read at each step.

    Attributes:
        top_count: how many of the likeliest tokens are read beside the chosen one; None: nothing is read; -1: a
            row with all tokens.
        source: ``model``, ``chain`` or ``both``.
        token_ids: tokens that are read at every step.
    """

    top_count: int | None = None
    source: str = "model"
    token_ids: tuple[int, ...] = ()

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise ``ModelError`` for values that are not allowed."""
        if self.top_count is not None and not -1 <= self.top_count <= vocabulary.size:
            raise ModelError(f"top_logprobs: {self.top_count} is not within -1..{vocabulary.size}")
        if self.top_count is None and (self.token_ids or self.source != "model"):
            raise ModelError("logprob_of and logprobs_from need top_logprobs, 0 or more")
        if self.source not in SOURCES:
            raise ModelError(f"logprobs_from: {self.source!r} is none of {', '.join(SOURCES)}")
        vocabulary.check(self.token_ids)


class LogprobReader:
    """Makes one `Distribution` per source at each step. Logprobs are in nats; sums are float64."""

    def __init__(self, vocabulary: Vocabulary, request: LogprobRequest) -> None:
        request.check(vocabulary)
        self._vocabulary = vocabulary
        self._sources = () if request.top_count is None else SOURCES[request.source]
        self._top_count = request.top_count or 0
        self._token_ids = np.array(request.token_ids, dtype=np.intp)
        self._workspace = SoftmaxWorkspace()

    def read(self, logits: Logits, token: int, candidates: Candidates | None = None) -> tuple[Distribution, ...]:
        """Return the distributions of one step.

        ``logits``: the model's, float32 (V,); ``token``: the chosen one; ``candidates``: what the chain kept of
        these logits.
        """
        leading = None if candidates is None else candidates.leading
        distributions = []
        for source in self._sources:
            if source == "model":
                distributions.append(self._of_model(logits, token, leading))
            elif candidates is not None:
                distributions.append(self._of_chain(candidates, token))
        return tuple(distributions)

    def _of_model(self, logits: Logits, token: int, leading: LeadingRows | None) -> Distribution:
        """The model's own distribution: log-softmax of its logits."""
        top_count = max(self._top_count, 0)
        if leading is None or top_count > leading[0].size:
            candidates = Candidates(logits, expects_top=top_count > 0)
            top_ids, highest = candidates.top_positions(top_count), candidates.max
            top_logits = logits[top_ids]
        else:
            top_ids, top_logits, highest = leading[0][:top_count], leading[1][:top_count], leading[1][0]
        sums = self._workspace.sums(logits, highest)
        log_total, entropy = sums.log_total, sums.entropy
        return Distribution(
            "model",
            float(logits[token]) - log_total,
            self._token_logprobs(top_ids, top_logits, log_total) if top_count else (),
            self._requested_logprobs(logits, log_total),
            entropy,
            _row_bytes(logits, log_total) if self._top_count < 0 else None,
        )

    def _of_chain(self, candidates: Candidates, token: int) -> Distribution:
        """The distribution that the token was drawn from. Tokens that the chain removed have no logprob."""
        sums = self._workspace.sums(candidates.logits, candidates.max)
        log_total, entropy = sums.log_total, sums.entropy
        chosen = np.flatnonzero(candidates.ids == token)
        top_count = self._top_count
        top = candidates.top_positions(top_count)
        row = None
        if top_count < 0 or self._token_ids.size:
            row = np.full(self._vocabulary.size, -np.inf, dtype=np.float32)
            row[candidates.ids] = candidates.logits
        return Distribution(
            "chain",
            float(candidates.logits[chosen[0]]) - log_total if chosen.size else None,
            self._token_logprobs(candidates.ids[top], candidates.logits[top], log_total) if top_count > 0 else (),
            () if row is None else self._requested_logprobs(row, log_total),
            entropy,
            _row_bytes(row, log_total) if row is not None and top_count < 0 else None,
        )

    def _requested_logprobs(self, row: Logits, log_total: float) -> tuple[TokenLogprob, ...]:
        """The tokens that are read at every step, with their logprobs. ``row``: logits by token id."""
        ids = self._token_ids
        return self._token_logprobs(ids, row[ids], log_total) if ids.size else ()

    def _token_logprobs(
        self, ids: NDArray[np.integer], logits: Logits, log_total: float
    ) -> tuple[TokenLogprob, ...]:
        """The tokens ``ids`` with their logprobs; ``logits`` are theirs, in the same order."""
        piece = self._vocabulary.piece
        return tuple(
            TokenLogprob(token, piece(token), logit - log_total)
            for token, logit in zip(ids.tolist(), logits.tolist(), strict=True)
        )


def _row_bytes(logits: Logits, log_total: float) -> bytes:
    """The logprobs of a whole row, float32 (V,), as little-endian bytes."""
    return (logits.astype(np.float64) - log_total).astype("<f4").tobytes()
