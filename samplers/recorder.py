"""The recorder of a chain: the candidates after each step, for traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .base import Sampler, SamplerInfo, Selection, Selector
from .candidates import Candidates
from .chain import Chain, step_error
from .errors import SamplingError
from .kernels import Floats, SoftmaxWorkspace
from .stages import StageCandidates

# Names of the stages before the first step, in their order
MODEL_STAGE = "model"  # the model's logits
GUIDANCE_STAGE = "guidance"  # the logits after guidance
SUPPRESSED_STAGE = "suppressed"  # the tokens that the model's file does not suppress
GRAMMAR_STAGE = "grammar"  # the tokens that the grammar's mask allows
HEALING_STAGE = "healing"  # the tokens that spell the end of the prompt
BANS_STAGE = "bans"  # the tokens that a run did not drop here by going back


class NamedMask(NamedTuple):
    """A mask that is applied before the first step."""

    stage: str
    mask: NDArray[np.bool_]  # which tokens are allowed, bool (V,)


class ChangedLogits(NamedTuple):
    """The logits that the chain gets in place of the model's."""

    stage: str
    logits: Floats  # one logit per token, float32 (V,)
    note: str  # the change in words and numbers


class StageRecord(NamedTuple):
    """One stage of a chain: the model, the grammar, or a step, with the candidates that it left."""

    name: str
    """``model``, ``grammar``, or the name of the sampler."""
    step: int | None
    """The index of the step in `Chain.steps`; None for the model and the grammar."""
    candidates: StageCandidates
    """The candidates after the stage."""
    note: str | None = None
    """The effect of the step in words and numbers; see `Sampler.note`."""
    roll: float | None = None
    """The random number that decided whether the step had an effect; see `Sampler.roll`."""


class DrawInterval(NamedTuple):
    """A random draw: the random number, and the interval that belongs to the drawn token.

    ``low < u <= high``. Exception: for the first candidate, ``u`` and ``low`` may both be 0.
    """

    u: float
    """The random number, in [0, 1)."""
    low: float
    """The cumulative probability of the candidates ordered before the drawn token."""
    high: float
    """The cumulative probability that also includes the drawn token."""


class ChainRecord(NamedTuple):
    """The record of one token: the stages of the chain and the draw."""

    token: int
    """The id of the selected token."""
    stages: tuple[StageRecord, ...]
    """The model, the grammar if there is a mask, and then each step. The last stage has the candidates of the
    draw."""
    draw: DrawInterval | None
    """The random draw; None if the selection was not random."""


class ChainRecorder:
    """A recorder that samples with a chain and records every stage.

    Tokens, state and random numbers are the same as without the recorder: the chain's loop runs, with each step
    wrapped by an object that records the candidates.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._workspace = SoftmaxWorkspace()
        # the candidates that each step got, in the order of the steps
        self._input_candidates: list[Candidates] = []
        selector = chain.steps[-1]
        if not isinstance(selector, Selector):  # for mypy: `Chain` has checked this
            raise SamplingError(f"{selector.about.name} is not a Selector")
        self._recording_selector = _RecordingSelector(selector, self._input_candidates)
        recording_steps = tuple(_RecordingStep(step, self._input_candidates) for step in chain.steps[:-1])
        self._recording_chain = chain.with_steps(recording_steps, self._recording_selector)

    def sample(
        self,
        logits: Floats,
        mask: NDArray[np.bool_] | Sequence[NamedMask] | None = None,
        change: ChangedLogits | None = None,
    ) -> ChainRecord:
        """Sample as `Chain.sample` does, and return the record. The token is not accepted yet.

        Raises ``SamplingError`` as `Chain.sample` does.

        Args:
            logits: one logit per token, float32 (V,). The record refers to this array, so it must be read before
                the array is overwritten.
            mask: which tokens are allowed, bool (V,), or several masks that are applied one after the other; None
                allows all tokens. A single mask without a name is the grammar's.
            change: the logits that the chain gets in place of ``logits``; None if it gets these.
        """
        self._input_candidates.clear()
        masks = _accumulate_masks(mask)
        chain_logits = logits if change is None else change.logits
        token = self._recording_chain.sample(chain_logits, masks[-1].mask if masks else None)
        allowed_tokens = self._chain.allowed_tokens
        if allowed_tokens is not None:  # the chain itself drops the suppressed tokens
            masks = _accumulate_masks([NamedMask(SUPPRESSED_STAGE, allowed_tokens), *masks])
        selection = self._recording_selector.selection
        drawn_from = self._recording_selector.drawn_from
        with np.errstate(over="ignore"):  # as in `Chain`: the difference of two finite logits may exceed float32
            # The candidates before the first step, and after each step
            snapshots: list[StageCandidates] = []
            for candidates in (*self._input_candidates, drawn_from):
                previous = snapshots[-1] if snapshots else None
                snapshots.append(StageCandidates(candidates, self._workspace, previous))
            records: list[StageRecord] = []
            if change is not None:
                records.append(StageRecord(MODEL_STAGE, None, self._unmasked(logits)))
            unmasked = self._unmasked(chain_logits) if masks else snapshots[0]
            if change is None:
                records.append(StageRecord(MODEL_STAGE, None, unmasked))
            else:
                records.append(StageRecord(change.stage, None, unmasked, change.note))
            records += self._mask_records(masks, chain_logits, snapshots[0])
            for step_index, step in enumerate(self._chain.steps):
                before, after = snapshots[step_index], snapshots[step_index + 1]
                note = _describe_effect(step, before, after)
                records.append(StageRecord(step.about.name, step_index, after, note, step.roll))
            if selection.note is not None:
                records[-1] = records[-1]._replace(note=selection.note)
        return ChainRecord(token, tuple(records), _draw_interval(selection, drawn_from))

    def _unmasked(self, logits: Floats) -> StageCandidates:
        """Return all tokens as candidates."""
        return StageCandidates(Candidates(logits), self._workspace)

    def _mask_records(
        self, masks: Sequence[NamedMask], logits: Floats, after_last_mask: StageCandidates
    ) -> Iterator[StageRecord]:
        """Yield the record of each mask. Each mask is combined with the masks before it."""
        for number, (stage, mask) in enumerate(masks, 1):
            if number == len(masks):
                after = after_last_mask
            else:
                candidates = Candidates(logits)
                candidates.filter_rows(mask)
                after = StageCandidates(candidates, self._workspace)
            yield StageRecord(stage, None, after, _mask_note(mask))


class _RecordingStep:
    """A step that records its input: it stores a snapshot of the candidates, then runs the wrapped step."""

    def __init__(self, step: Sampler, inputs: list[Candidates]) -> None:
        self._step = step
        self._input_candidates = inputs

    @property
    def about(self) -> SamplerInfo:
        return self._step.about

    def apply(self, candidates: Candidates) -> None:
        self._input_candidates.append(candidates.snapshot())
        self._step.apply(candidates)


class _RecordingSelector:
    """A selector that records its input, the selected token, and the candidates of the draw."""

    def __init__(self, step: Selector, inputs: list[Candidates]) -> None:
        self._step = step
        self._input_candidates = inputs
        self.selection: Selection
        self.drawn_from: Candidates

    @property
    def about(self) -> SamplerInfo:
        return self._step.about

    def select(self, candidates: Candidates) -> int:
        self._input_candidates.append(candidates.snapshot())
        self.selection = self._step.trace_select(candidates)
        self.drawn_from = candidates
        return self.selection.token


def _describe_effect(step: Sampler, before: StageCandidates, after: StageCandidates) -> str | None:
    try:
        return step.note(before, after)
    except Exception as error:  # a sampler of another package may raise anything
        raise step_error(step, "note", error) from error


def _accumulate_masks(mask: NDArray[np.bool_] | Sequence[NamedMask] | None) -> list[NamedMask]:
    """Return the masks, each combined with the masks before it."""
    if mask is None:
        return []
    if isinstance(mask, np.ndarray):
        return [NamedMask(GRAMMAR_STAGE, mask)]
    combined_masks: list[NamedMask] = []
    for stage, is_allowed in mask:
        combined_mask = combined_masks[-1].mask & is_allowed if combined_masks else is_allowed
        combined_masks.append(NamedMask(stage, combined_mask))
    return combined_masks


def _mask_note(mask: NDArray[np.bool_]) -> str:
    allowed_count = int(np.count_nonzero(mask))
    return f"{allowed_count:,} of {mask.size:,} tokens allowed"


def _draw_interval(selection: Selection, drawn_from: Candidates) -> DrawInterval | None:
    """Return the interval of cumulative probability that contains the random number."""
    if selection.u is None or selection.weights is None:
        return None
    weights = selection.weights.astype(np.float64)
    position = int((drawn_from.ids == selection.token).argmax())
    weight_before = weights[:position].sum()
    total = weight_before + weights[position:].sum()
    weight_up_to_token = weight_before + weights[position]
    return DrawInterval(selection.u, low=float(weight_before / total), high=float(weight_up_to_token / total))
