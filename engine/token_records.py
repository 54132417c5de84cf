"""The logprobs and the trace of a token, from the model's logits and from the candidates that the chain kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..logprobs.records import (
    Distribution,
    LogprobSource,
    TokenLogprob,
    Trace,
    TraceCandidate,
    TraceDraw,
    TraceStage,
)
from ..models.errors import ModelError
from ..samplers.candidates import Candidates
from ..samplers.chain import Chain
from ..samplers.kernels import SoftmaxWorkspace, TopRows
from ..samplers.recorder import GUIDANCE_STAGE, ChainRecord, ChainRecorder, ChangedLogits, NamedMask, StageRecord
from .guidance import GuidedLogits
from .native.context import Logits
from .vocabulary import Vocabulary

_SOURCES_BY_NAME: dict[str, tuple[LogprobSource, ...]] = {
    "model": ("model",),
    "chain": ("chain",),
    "both": ("model", "chain"),
}


@dataclass(frozen=True)
class LogprobRequest:
    """A request for logprobs of each token.

    Attributes:
        top_count: number of most likely tokens that are read in addition to the chosen one; None: no logprobs; -1:
            a row with all tokens.
        source: ``model``, ``chain`` or ``both``.
        token_ids: tokens that are read at every step.
        label: the name of ``top_count`` in error messages, which is that of a flag or a field.
        lowest: the lowest ``top_count`` that this flag or field allows.
    """

    top_count: int | None = None
    source: str = "model"
    token_ids: tuple[int, ...] = ()
    label: str = "top_logprobs"
    lowest: int = -1

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise ``ModelError`` if a value is not allowed."""
        if self.top_count is not None and not self.lowest <= self.top_count <= vocabulary.size:
            allowed = f"{self.lowest}..{vocabulary.size}"
            raise ModelError(f"{self.top_count} is not within {allowed}", origin=self.label)
        if self.top_count is None and (self.token_ids or self.source != "model"):
            raise ModelError("logprob_of and logprobs_from need top_logprobs, 0 or more")
        if self.source not in _SOURCES_BY_NAME:
            raise ModelError(
                f"{self.source!r} is not one of {', '.join(_SOURCES_BY_NAME)}", origin="logprobs_from"
            )
        vocabulary.check(self.token_ids, "logprobs")


class LogprobReader:
    """A maker of one `Distribution` per source for each token: in nats, sums in float64."""

    def __init__(
        self, vocabulary: Vocabulary, request: LogprobRequest, *, measures_confidence: bool = False
    ) -> None:
        request.check(vocabulary)
        self._vocabulary = vocabulary
        self._sources = () if request.top_count is None else _SOURCES_BY_NAME[request.source]
        self._top_count = request.top_count or 0
        self._token_ids = np.array(request.token_ids, dtype=np.intp)
        self._workspace = SoftmaxWorkspace()
        self._measures_confidence = measures_confidence

    def read_of_text(self, logits: Logits, token: int) -> tuple[Distribution, ...]:
        """Return the distributions of a token of a given text, with its rank among all tokens."""
        return tuple(replace(distribution, rank=_rank(logits, token)) for distribution in self.read(logits, token))

    def read(
        self, logits: Logits, token: int, candidates: Candidates | None = None, *, is_same_row: bool = True
    ) -> tuple[Distribution, ...]:
        """Return the distributions of one token."""
        # ``is_same_row``: whether the chain got these logits; False under guidance.
        top_rows = None if candidates is None or not is_same_row else candidates.top_rows
        distributions = []
        for source in self._sources:
            if source == "model":
                distributions.append(self._read_from_model(logits, token, top_rows))
            elif candidates is not None:
                distributions.append(self._read_from_chain(candidates, token))
        return tuple(distributions)

    def model_logprob(self, logits: Logits, token: int, distributions: Sequence[Distribution]) -> float | None:
        """Return the model's logprob of a drawn token; None unless the confidence is measured."""
        # ``distributions``: those that were read for the token, which may have the logprob.
        if not self._measures_confidence:
            return None
        for distribution in distributions:
            if distribution.source == "model":
                return distribution.logprob
        return float(logits[token]) - self._workspace.sums(logits, logits.max()).log_total

    def _read_from_model(self, logits: Logits, token: int, top_rows: TopRows | None) -> Distribution:
        """Return the model's distribution: the log-softmax of its logits."""
        top_count = max(self._top_count, 0)
        if top_rows is None or top_count > top_rows[0].size:
            candidates = Candidates(logits, expects_top=top_count > 0)
            top_ids = candidates.top_positions(top_count)
            max_logit = candidates.max
            top_logits = logits[top_ids]
        else:
            row_ids, row_logits = top_rows
            top_ids = row_ids[:top_count]
            top_logits = row_logits[:top_count]
            max_logit = row_logits[0]
        sums = self._workspace.sums(logits, max_logit)
        log_total = sums.log_total
        top_logprobs = self._token_logprobs(top_ids, top_logits, log_total) if top_count else ()
        row = _row_bytes(logits, log_total) if self._top_count < 0 else None
        return Distribution(
            "model",
            float(logits[token]) - log_total,
            top_logprobs,
            self._requested_logprobs(logits, log_total),
            sums.entropy,
            row,
        )

    def _read_from_chain(self, candidates: Candidates, token: int) -> Distribution:
        """Return the distribution that the token was drawn from. Tokens that the chain removed have no logprob."""
        sums = self._workspace.sums(candidates.logits, candidates.max)
        log_total = sums.log_total
        chosen_positions = np.flatnonzero(candidates.ids == token)
        logprob = None
        if chosen_positions.size:
            logprob = float(candidates.logits[chosen_positions[0]]) - log_total
        top_logprobs: tuple[TokenLogprob, ...] = ()
        if self._top_count > 0:
            positions = candidates.top_positions(self._top_count)
            top_logprobs = self._token_logprobs(candidates.ids[positions], candidates.logits[positions], log_total)
        requested_logprobs: tuple[TokenLogprob, ...] = ()
        row_bytes = None
        returns_row = self._top_count < 0
        if returns_row or self._token_ids.size:
            row = np.full(self._vocabulary.size, -np.inf, dtype=np.float32)
            row[candidates.ids] = candidates.logits
            requested_logprobs = self._requested_logprobs(row, log_total)
            row_bytes = _row_bytes(row, log_total) if returns_row else None
        return Distribution(
            "chain", logprob, top_logprobs, requested_logprobs, sums.entropy, row_bytes, len(candidates)
        )

    def _requested_logprobs(self, row: Logits, log_total: float) -> tuple[TokenLogprob, ...]:
        """Return the logprobs of the tokens that are read at every step. ``row``: logits by token id."""
        ids = self._token_ids
        return self._token_logprobs(ids, row[ids], log_total) if ids.size else ()

    def _token_logprobs(
        self, ids: NDArray[np.integer], logits: Logits, log_total: float
    ) -> tuple[TokenLogprob, ...]:
        """Return the logprobs of the tokens ``ids``, whose ``logits`` are in the same order."""
        piece = self._vocabulary.piece
        return tuple(
            TokenLogprob(token, piece(token), logit - log_total)
            for token, logit in zip(ids.tolist(), logits.tolist(), strict=True)
        )


def _rank(logits: Logits, token: int) -> int:
    """Return the place of a token among all, counted from 1; of equal logits, the lower id comes first."""
    logit = logits[token]
    return 1 + int(np.count_nonzero(logits > logit)) + int(np.count_nonzero(logits[:token] == logit))


def _row_bytes(logits: Logits, log_total: float) -> bytes:
    return (logits.astype(np.float64) - log_total).astype("<f4").tobytes()


def check_trace_count(top_count: int, vocabulary: Vocabulary) -> None:
    """Raise ``ModelError`` for a number of traced candidates that is not within the vocabulary."""
    if not 1 <= top_count <= vocabulary.size:  # a trace always has the most likely token
        raise ModelError(f"{top_count} is not within 1..{vocabulary.size}", origin="trace")


class TraceReader:
    """A sampler of tokens with a chain, which reads a trace of each token."""

    candidates: Candidates  # the candidates that the last token was drawn from

    def __init__(self, vocabulary: Vocabulary, chain: Chain, top_count: int) -> None:
        check_trace_count(top_count, vocabulary)
        self._vocabulary = vocabulary
        self._recorder = ChainRecorder(chain)
        self._top_count = top_count
        self._chain_record: ChainRecord

    def sample(self, row: Logits | GuidedLogits, mask: NDArray[np.bool_] | Sequence[NamedMask] | None) -> int:
        """Return the token that the chain draws, without accepting it. ``mask``: see `ChainRecorder.sample`."""
        if isinstance(row, GuidedLogits):
            change = ChangedLogits(GUIDANCE_STAGE, row.guided, f"scale {row.scale:g}")
            self._chain_record = self._recorder.sample(row.model, mask, change)
        else:
            self._chain_record = self._recorder.sample(row, mask)
        self.candidates = self._chain_record.stages[-1].candidates.candidates
        return self._chain_record.token

    def read(self, token: int, is_forced: bool = False) -> Trace:
        """Return the trace of the last sample, whose logits must still be there; ``token`` is always in it."""
        draw = self._chain_record.draw
        drawn = None if draw is None or is_forced else TraceDraw(*draw)
        return self.make_trace(self.top_ids(token), drawn, is_forced)

    def make_trace(
        self, ids: NDArray[np.integer], draw: TraceDraw | None = None, is_forced: bool = False
    ) -> Trace:
        """Return the trace of the last sample, with the tokens ``ids`` as candidates, in order."""
        stages = tuple(_trace_stage(stage) for stage in self._chain_record.stages)
        return Trace(stages, self._trace_candidates(ids), draw, is_forced)

    def top_ids(self, *chosen_ids: int) -> NDArray[np.integer]:
        """Return the ids of the most likely tokens of every stage and the chosen ids, sorted by model logits."""
        stages = [stage.candidates for stage in self._chain_record.stages]
        id_arrays: list[NDArray[np.integer]] = [np.array(chosen_ids, dtype=np.int32)]
        id_arrays.append(stages[0].candidates.top_positions(self._top_count))
        for previous, stage in pairwise(stages):
            if not stage.is_same_row(previous):
                id_arrays.append(stage.ids[stage.candidates.top_positions(self._top_count)])
        return self.sort_by_model_logits(np.unique(np.concatenate(id_arrays)))

    def sort_by_model_logits(self, ids: NDArray[np.integer]) -> NDArray[np.integer]:
        """Return the ids sorted by the model's logits, from high to low; of equal logits, the lower id first."""
        return ids[(-self._chain_record.stages[0].candidates.logits[ids]).argsort(kind="stable")]

    def _trace_candidates(self, ids: NDArray[np.integer]) -> tuple[TraceCandidate, ...]:
        stages = self._chain_record.stages
        values_by_stage = [_values_at_stage(stages[0], ids)]
        for previous, stage in pairwise(stages):
            if stage.candidates.is_same_row(previous.candidates):
                values_by_stage.append(values_by_stage[-1])
            else:
                values_by_stage.append(_values_at_stage(stage, ids))
        logits = zip(*(values.logits for values in values_by_stage), strict=True)
        probs = zip(*(values.probs for values in values_by_stage), strict=True)
        piece = self._vocabulary.piece
        return tuple(
            TraceCandidate(token, piece(token), token_logits, token_probs, _dropping_stage(token_logits))
            for token, token_logits, token_probs in zip(ids.tolist(), logits, probs, strict=True)
        )


class _StageValues(NamedTuple):
    """Logits and probabilities of tokens at one stage; None for tokens that are not candidates there."""

    logits: Sequence[float | None]
    probs: Sequence[float | None]


def _values_at_stage(stage: StageRecord, ids: NDArray[np.integer]) -> _StageValues:
    """Return the logit and the probability of each token at a stage."""
    candidates = stage.candidates
    positions = candidates.positions_of(ids)
    candidate_logits = candidates.logits[positions]
    logits = candidate_logits.tolist()
    probs = candidates.probs_of(candidate_logits).tolist()
    (missing_indices,) = (positions < 0).nonzero()
    for index in missing_indices.tolist():
        logits[index] = None
        probs[index] = None
    return _StageValues(logits, probs)


def _dropping_stage(logits: Sequence[float | None]) -> int | None:
    """Return the number of the stage that dropped a token, from its logit at each stage; None if none did."""
    if logits[-1] is not None:
        return None
    last_stage_with_token = max(stage for stage, logit in enumerate(logits) if logit is not None)
    return last_stage_with_token + 1


def _trace_stage(stage: StageRecord) -> TraceStage:
    candidates = stage.candidates
    return TraceStage(stage.name, stage.step, len(candidates), candidates.entropy, stage.note, stage.roll)
