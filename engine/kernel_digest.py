"""Tells processors apart that compute other logits, by the logits of fixed tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from .compute_options import ComputeOptions
from .context_options import ContextOptions
from .native_context import NativeContext, SequenceSpan
from .native_model import NativeModel

_LENGTH = 256
"""The shortest context that llama.cpp makes."""
_PIECE, _ROWS = 64, 8
"""Tokens that are read at once, as a prompt is; rows that are decoded at once, as the slots of a batch are."""


def kernel_digest(
    model: NativeModel, threads: int, compute: ComputeOptions, adapters: Sequence[tuple[object, float]]
) -> str:
    """Return SHA-256, in hexadecimal, of the logits of fixed tokens: of a piece of a prompt, of one row, of eight.

    Two machines with the same digest compute these logits alike, bit for bit. It takes about as long as 75 tokens
    of a prompt, in a context of its own. Raises ``ModelError``.

    Args:
        model: the model.
        threads: of the context.
        compute: what else its logits depend on.
        adapters: with their scales.
    """
    digest = hashlib.sha256()
    sequences = _ROWS + 1 if model.decodes_sequences_together else 1
    native = NativeContext(model, ContextOptions(_LENGTH, threads, _LENGTH, sequences, False, compute), adapters)
    try:
        native.decode(_tokens(0, _PIECE, native.width), 0)
        digest.update(native.logits().tobytes())
        native.decode(_tokens(1, 1, native.width), _PIECE)
        digest.update(native.logits().tobytes())
        if sequences > 1:
            native.decode_spans(
                [SequenceSpan(_tokens(row, 1, native.width), 0, row) for row in range(1, sequences)]
            )
            for row in range(_ROWS):
                digest.update(native.logits_at(row).tobytes())
    finally:
        native.close()
    return digest.hexdigest()


def _tokens(first: int, count: int, vocabulary: int) -> list[int]:
    """Tokens from anywhere in the vocabulary."""
    return [(7919 * (first + place + 1)) % vocabulary for place in range(count)]
