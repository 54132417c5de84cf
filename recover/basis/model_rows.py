"""Whole rows of logits of a local model, for a basis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...engine.model import Model
from ..errors import RecoverError
from ..numerics import Float64s
from .basis import Basis

_SPARE_ROWS = 64
"""Rows beyond the number of dimensions: they show it, and test the basis."""


def basis_from_rows(
    model: Model, count: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Basis:
    """Return a basis of whole rows: those after each token of texts of random tokens.

    Args:
        model: the model.
        count: number of rows; None: 64 more than the model has dimensions.
        progress: called with the number of rows that were read and that will be read.

    Raises ``RecoverError``, ``ModelError``.
    """
    vocabulary = model.vocabulary
    if count is None:
        count = _embedding_length(model) + _SPARE_ROWS
    if count < 2:
        raise RecoverError(f"rows: {count} is not ≥ 2")
    random = np.random.default_rng(0)
    text_tokens = [
        token for token, piece in enumerate(vocabulary.pieces) if piece and not vocabulary.is_control(token)
    ]
    rows: list[Float64s] = []
    while len(rows) < count:
        text = random.choice(text_tokens, min(model.context.length, count - len(rows))).tolist()
        for logits in model.context.read_each(text):
            rows.append(logits.astype(np.float64))
            if progress is not None:
                progress(len(rows), count)
    return Basis.of_rows(rows, f"{count} rows of {model.name}", vocabulary.pieces)


def _embedding_length(model: Model) -> int:
    """Return the number of dimensions of the model's hidden states."""
    name = f"{model.metadata.get('general.architecture', '')}.embedding_length"
    try:
        return int(model.metadata[name])
    except (KeyError, ValueError):
        raise RecoverError(f"{model.path}: it does not say its {name}; name the number of rows") from None
