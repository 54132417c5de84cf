"""Records what each step of a chain leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .base import Sampler, SamplerInfo, Selection, Selector
from .candidates import Candidates
from .chain import Chain, step_error
from .errors import SamplingError
from .kernels import Floats, SoftmaxWorkspace
from .stages import StageCandidates

MODEL_STAGE, GRAMMAR_STAGE = "model", "grammar"
"""The stages before the first step: all candidates, and those that the mask allows."""


class StageRecord(NamedTuple):
    """A stage of a chain: its name, the step that made it, and the candidates after it."""

    name: str
    step: int | None
    """The index in `Chain.steps`; None for the model and the grammar."""
    candidates: StageCandidates
    note: str | None = None
    """What the step did, in words and numbers; see `Sampler.note`."""
    roll: float | None = None
    """The random number that decided whether the step acts; see `Sampler.roll`."""


class DrawInterval(NamedTuple):
    """A draw: ``u`` lies between ``low`` and ``high``, the cumulative probability before the token and with it.

    The interval is that of the token, so ``low < u <= high``, or ``0 = u = low`` at the first row.
    """

    u: float
    low: float
    high: float


class ChainRecord(NamedTuple):
    """What a chain did with one row of logits."""

    token: int
    stages: tuple[StageRecord, ...]
    """The model, the grammar if there is a mask, each step before the draw, and what was drawn from."""
    draw: DrawInterval | None
    """None if the token was not drawn by chance."""


class ChainRecorder:
    """Samples with a chain and records every stage. Tokens, state and random numbers are those of the chain alone.

    The chain's own loop runs, with a watcher in the place of each step.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._workspace = SoftmaxWorkspace()
        self._inputs: list[Candidates] = []
        """The candidates that each step got, in order."""
        selector = chain.steps[-1]
        if not isinstance(selector, Selector):  # the chain has checked it
            raise SamplingError(f"{selector.about.name} does not select")
        self._selecting = _WatchedSelector(selector, self._inputs)
        watched = tuple(_WatchedStep(step, self._inputs) for step in chain.steps[:-1])
        self._watched_chain = chain.with_steps(watched, self._selecting)

    def sample(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> ChainRecord:
        """Do what `Chain.sample` does, and return how. The token is not accepted yet.

        ``logits``: float32 (V,). The record refers to them, so read it before they are overwritten. Raises
        ``SamplingError``.
        """
        self._inputs.clear()
        token = self._watched_chain.sample(logits, mask)
        selection, drawn_from = self._selecting.selection, self._selecting.drawn_from
        with np.errstate(over="ignore"):  # as in the chain
            stages: list[StageCandidates] = []
            for candidates in (*self._inputs, drawn_from):
                stages.append(StageCandidates(candidates, self._workspace, stages[-1] if stages else None))
            records = [StageRecord(MODEL_STAGE, None, stages[0])]
            if mask is not None:
                records = [
                    StageRecord(MODEL_STAGE, None, StageCandidates(Candidates(logits), self._workspace)),
                    StageRecord(GRAMMAR_STAGE, None, stages[0], _mask_note(mask)),
                ]
            for number, step in enumerate(self._chain.steps):
                before, after = stages[number], stages[number + 1]
                note = _note_of(step, before, after)
                records.append(StageRecord(step.about.name, number, after, note, step.roll))
            if selection.note is not None:
                records[-1] = records[-1]._replace(note=selection.note)
        return ChainRecord(token, tuple(records), _draw_interval(selection, drawn_from))


class _WatchedStep:
    """Stands in for a step: keeps the candidates as they come in, then lets the step act."""

    def __init__(self, step: Sampler, inputs: list[Candidates]) -> None:
        self._step, self._inputs = step, inputs

    @property
    def about(self) -> SamplerInfo:
        return self._step.about

    def apply(self, candidates: Candidates) -> None:
        self._inputs.append(candidates.snapshot())
        self._step.apply(candidates)


class _WatchedSelector:
    """Stands in for the selector: keeps the candidates as they come in, what was drawn, and from what."""

    def __init__(self, step: Selector, inputs: list[Candidates]) -> None:
        self._step, self._inputs = step, inputs
        self.selection: Selection
        self.drawn_from: Candidates

    @property
    def about(self) -> SamplerInfo:
        return self._step.about

    def select(self, candidates: Candidates) -> int:
        self._inputs.append(candidates.snapshot())
        self.selection = self._step.trace_select(candidates)
        self.drawn_from = candidates
        return self.selection.token


def _note_of(step: Sampler, before: StageCandidates, after: StageCandidates) -> str | None:
    try:
        return step.note(before, after)
    except Exception as error:  # the step may be another package's
        raise step_error(step, "note", error) from error


def _mask_note(mask: NDArray[np.bool_]) -> str:
    allowed = int(np.count_nonzero(mask))
    return f"{allowed:,} of {mask.size:,} tokens allowed"


def _draw_interval(selection: Selection, drawn_from: Candidates) -> DrawInterval | None:
    """Return where the random number lies among the running sums of the weights."""
    if selection.u is None or selection.weights is None:
        return None
    weights = selection.weights.astype(np.float64)
    position = int((drawn_from.ids == selection.token).argmax())
    below, above = weights[:position].sum(), weights[position:].sum()
    total = below + above
    return DrawInterval(selection.u, float(below / total), float((below + weights[position]) / total))
