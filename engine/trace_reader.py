"""Makes the trace of a token from what a chain did with the model's logits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..logprobs.records import Trace, TraceCandidate, TraceDraw, TraceStage
from ..models.errors import ModelError
from ..samplers.candidates import Candidates
from ..samplers.chain import Chain
from ..samplers.recorder import ChainRecord, ChainRecorder, StageRecord
from .native_context import Logits
from .vocabulary import Vocabulary


class TraceReader:
    """Samples with a chain, and tells of each token how it was chosen.

    Attributes:
        candidates: those that the last token was drawn from.
    """

    candidates: Candidates

    def __init__(self, vocabulary: Vocabulary, chain: Chain, top_count: int) -> None:
        """Take the chain of a run. Raises ``ModelError`` for a ``top_count`` that is not within the vocabulary.

        ``top_count``: how many of the likeliest tokens of each stage a trace has.
        """
        if not 1 <= top_count <= vocabulary.size:  # the likeliest token is told of in any case
            raise ModelError(f"trace: {top_count} is not within 1..{vocabulary.size}")
        self._vocabulary = vocabulary
        self._recorder = ChainRecorder(chain)
        self._top_count = top_count
        self._record: ChainRecord

    def sample(self, logits: Logits, mask: NDArray[np.bool_] | None) -> int:
        """Return the token that the chain draws; it is not accepted yet. ``logits``: float32 (V,)."""
        self._record = self._recorder.sample(logits, mask)
        self.candidates = self._record.stages[-1].candidates.candidates
        return self._record.token

    def read(self, token: int, is_forced: bool = False) -> Trace:
        """Return the trace of the last sample. The logits must not have been overwritten since.

        ``token``: the chosen one, which the trace has in any case.
        """
        draw = self._record.draw
        drawn = None if draw is None or is_forced else TraceDraw(*draw)
        return self.of_tokens(self.likeliest(token), drawn, is_forced)

    def of_tokens(self, ids: NDArray[np.integer], draw: TraceDraw | None = None, is_forced: bool = False) -> Trace:
        """Return the trace of the last sample with these candidates; ``draw``, ``is_forced``: as in `Trace`."""
        stages = tuple(_trace_stage(stage) for stage in self._record.stages)
        return Trace(stages, self._candidates(ids), draw, is_forced)

    def likeliest(self, *chosen: int) -> NDArray[np.integer]:
        """The ids of the likeliest tokens of every stage and the chosen ones, by the model's logits."""
        stages = [stage.candidates for stage in self._record.stages]
        ids: list[NDArray[np.integer]] = [np.array(chosen, dtype=np.int32)]
        ids.append(stages[0].candidates.top_positions(self._top_count))
        for before, stage in pairwise(stages):
            if not stage.is_same_row(before):
                ids.append(stage.ids[stage.candidates.top_positions(self._top_count)])
        return self.by_model_logits(np.unique(np.concatenate(ids)))

    def by_model_logits(self, ids: NDArray[np.integer]) -> NDArray[np.integer]:
        """The ids sorted by the model's logits, from high to low; of equal ones the lower id first."""
        return ids[(-self._record.stages[0].candidates.logits[ids]).argsort(kind="stable")]

    def _candidates(self, ids: NDArray[np.integer]) -> tuple[TraceCandidate, ...]:
        stages = self._record.stages
        columns = [_column(stages[0], ids)]
        for before, stage in pairwise(stages):
            is_same = stage.candidates.is_same_row(before.candidates)
            columns.append(columns[-1] if is_same else _column(stage, ids))
        logits = zip(*(column.logits for column in columns), strict=True)
        probs = zip(*(column.probs for column in columns), strict=True)
        piece = self._vocabulary.piece
        return tuple(
            TraceCandidate(token, piece(token), row, shares, _dropped_by(row))
            for token, row, shares in zip(ids.tolist(), logits, probs, strict=True)
        )


class _Column(NamedTuple):
    """A stage's logits and probabilities of some tokens; None for those that are not among its candidates."""

    logits: Sequence[float | None]
    probs: Sequence[float | None]


def _column(stage: StageRecord, ids: NDArray[np.integer]) -> _Column:
    """The logit and the probability of each token at a stage."""
    candidates = stage.candidates
    positions = candidates.positions_of(ids)
    row = candidates.logits[positions]
    logits, probs = row.tolist(), candidates.probs_of(row).tolist()
    for index in (positions < 0).nonzero()[0].tolist():
        logits[index] = probs[index] = None
    return _Column(logits, probs)


def _dropped_by(logits: Sequence[float | None]) -> int | None:
    """The stage after the last one at which a token has a logit; None if it has one at the last stage."""
    if logits[-1] is not None:
        return None
    return next(number for number in range(len(logits) - 1, 0, -1) if logits[number - 1] is not None)


def _trace_stage(stage: StageRecord) -> TraceStage:
    candidates = stage.candidates
    return TraceStage(stage.name, stage.step, len(candidates), candidates.entropy, stage.note, stage.roll)
