"""Whole rows of logprobs of a model that runs here, for a basis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...engine import Model
from ..errors import RecoverError
from ..numerics import Float64s
from .basis import Basis

_SPARE = 64


def basis_from_rows(
    model: Model, count: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Basis:
    """A basis out of whole rows: those behind each token of texts of random tokens.

    ``count``: how many rows; by default 64 more than the model has dimensions. Raises ``RecoverError``,
    ``ModelError``.
    """
    vocabulary = model.vocabulary
    if count is None:
        count = _dimensions(model) + _SPARE
    if count < 2:
        raise RecoverError(f"rows: {count} is not ≥ 2")
    random = np.random.default_rng(0)
    plain = [token for token, piece in enumerate(vocabulary.pieces) if piece and not vocabulary.is_control(token)]
    rows: list[Float64s] = []
    while len(rows) < count:
        text = random.choice(plain, min(model.context.length, count - len(rows))).tolist()
        for logits in model.context.read_each(text):
            rows.append(logits.astype(np.float64))
            if progress is not None:
                progress(len(rows), count)
    return Basis.of_rows(rows, f"{count} rows of {model.name}", vocabulary.pieces)


def _dimensions(model: Model) -> int:
    """The width of the model's hidden states."""
    name = f"{model.metadata.get('general.architecture', '')}.embedding_length"
    try:
        return int(model.metadata[name])
    except (KeyError, ValueError):
        raise RecoverError(f"{model.path}: it does not say its {name}; name the number of rows") from None
