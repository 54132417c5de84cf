"""Measures on a model and this processor which numbers of rows are computed in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..logprobs.events import ExactnessLevel
from ..models.errors import AbortedError, ModelError
from .context_options import ContextOptions
from .decode_plan import DecodePlan, ProbeRow, choose_decode_plan, common_plan, largest_count, rounding_plan
from .native_context import NativeContext, SequenceSpan
from .native_model import NativeModel

_CONTEXT_TOKENS = 256
"""The shortest sequence that llama.cpp makes. Beyond, flash attention has a kernel for a token alone."""
_FEW_LAYERS = 8
"""Below, a difference gets lost in some rows: llama.cpp rounds activations to 8 bits before each product."""
_CONTENTS, _CONTENTS_OF_FEW_LAYERS = 2, 8
"""How many different sequences are compared. Each takes time; several are needed where differences get lost."""
_MIXTURE_ROWS = 8
"""The most rows that are decoded at once in a mixture of experts: every number up to it takes time to test."""


class ContextRows:
    """`ProbeRows` in a context of their own. Different sequences have other tokens and another length."""

    def __init__(self, native: NativeContext, sequences: int, contents: int) -> None:
        self._native = native
        self.contents = contents
        self._lengths = [1 + sequence % contents % 2 for sequence in range(sequences)]
        native.decode_spans([self._history(sequence) for sequence in range(contents)], all_logits=False)
        for sequence in range(contents, sequences):
            native.copy(sequence % contents, sequence)

    def decode(self, first: int, count: int, copies: int = 1) -> list[ProbeRow]:
        """Decode rows, see `ProbeRows`."""
        native, sequences = self._native, range(first, first + count)
        native.decode_spans([self._next_token(number, copies) for number in sequences])
        indices = range(0, count * copies, copies)
        rows = [ProbeRow(native.logits_at(index).copy(), native.state_at(index).copy()) for index in indices]
        for number in sequences:
            native.forget(self._lengths[number], number)
        return rows

    def _history(self, sequence: int) -> SequenceSpan:
        return SequenceSpan([self._token(sequence, step) for step in range(self._lengths[sequence])], 0, sequence)

    def _next_token(self, sequence: int, copies: int) -> SequenceSpan:
        return SequenceSpan([self._token(sequence, -1)] * copies, self._lengths[sequence], sequence)

    def _token(self, sequence: int, step: int) -> int:
        """A token from anywhere in the vocabulary."""
        return (7919 * (sequence % self.contents + 1) + 104_729 * (step + 2)) % self._native.width


def probe_decode_plan(
    model: NativeModel, context: ContextOptions, adapters: Sequence[tuple[object, float]] = ()
) -> DecodePlan:
    """Choose how the batch that ``context`` is for decodes rows, by measuring it on this model and processor.

    It takes about as long as 15 tokens, in a context of its own, which is freed before this returns.
    """
    slots = context.sequences
    if model.uses_gpu or not model.can_truncate:
        # A GPU divides the attention by the longest request. A recurrent or hybrid model computes the sequences of
        # a batch together, and cannot read a single token twice to compute it as one of two rows.
        return rounding_plan(slots, 0.0, model.can_truncate)
    contents = _CONTENTS_OF_FEW_LAYERS if model.layers < _FEW_LAYERS else _CONTENTS
    try:
        plan = _probe(model, context, adapters, contents)
        if model.is_mixture:  # equal rows all go to the same experts, which may get any of these numbers of rows
            few = replace(context, sequences=min(slots, _MIXTURE_ROWS))
            plan = common_plan(plan, _probe(model, few, adapters, 1, is_every_count=True), slots)
    except AbortedError:
        raise
    except ModelError:  # no memory for it; the batch may need less
        return rounding_plan(slots, 0.0)
    if plan.exactness.level is ExactnessLevel.EXACT and context.length > _CONTEXT_TOKENS:
        # Then `generate`, which reads a token alone, gets another kernel of flash attention.
        plan.exactness = replace(plan.exactness, alone_tokens=_CONTEXT_TOKENS)
    return plan


def _probe(
    model: NativeModel,
    context: ContextOptions,
    adapters: Sequence[tuple[object, float]],
    contents: int,
    is_every_count: bool = False,
) -> DecodePlan:
    largest = largest_count(context.sequences)
    sequences = max(largest, contents) + 1
    options = ContextOptions(_CONTEXT_TOKENS, context.threads, 2 * sequences, sequences, True, context.compute)
    native = NativeContext(model, options, adapters)
    try:
        rows = ContextRows(native, sequences, contents)
        return choose_decode_plan(rows, context.sequences, is_every_count)
    finally:
        native.close()
