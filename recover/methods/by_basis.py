"""The whole row from about d logprobs, if a basis of the model's logits is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.text import count_noun
from ..basis import Basis
from ..errors import RecoverError
from ..task import PointwiseMethod, RecoveryTask

_HELD_OUT_TOKENS = 60
"""Tokens that test the solution: their largest error is exceeded by 1 token in 60 of the rest."""
_SPARE_FRACTION, _MIN_SPARE_TOKENS = 0.25, 20
"""More logprobs than dimensions are asked for, so that errors average out."""


def count_queried(basis: Basis) -> int:
    """Return how many logprobs are asked for: a quarter more than there are dimensions, and those held out."""
    return basis.rank + max(_MIN_SPARE_TOKENS, int(_SPARE_FRACTION * basis.rank)) + _HELD_OUT_TOKENS


def check_basis(basis: Basis, vocab_size: int) -> None:
    """Raise ``RecoverError`` for a basis of another number of tokens."""
    if basis.vocab_size != vocab_size:
        raise RecoverError(
            f"the basis has {basis.vocab_size:,} tokens and the endpoint {vocab_size:,}: it is of another model"
        )


def by_basis(task: RecoveryTask, basis: Basis, pointwise: PointwiseMethod) -> None:
    """Recover the whole row: some logprobs by another method, the rest by least squares.

    The error is the largest one on random tokens that are held out of the solution; afterwards they join it. Where
    it exceeds ``tolerance``, the basis is not that of this model: only what was asked for is kept.
    """
    estimates = task.estimates
    held_out = _query_tokens(task, basis, pointwise)
    recovered = np.flatnonzero(~np.isnan(estimates.logprobs))
    tested = np.intersect1d(held_out, recovered)
    fitted = np.setdiff1d(recovered, tested)
    if len(fitted) < basis.rank or not len(tested):
        task.notes.append(
            f"{count_noun(len(recovered), 'logprob')} found, too few for a basis of {basis.rank:,} dimensions"
        )
        return
    row = basis.solve(fitted, estimates.logprobs[fitted])
    max_error_nats = float(np.abs(row[tested] - estimates.logprobs[tested]).max())
    if max_error_nats > task.settings.max_held_out_error_nats:
        task.notes.append(
            f"the basis does not fit: held-out tokens are off by up to {max_error_nats:.2g} nats, more than "
            f"{task.settings.max_held_out_error_nats:g}; only what was asked for is kept"
        )
        return
    task.notes.append(
        f"{count_noun(len(recovered), 'logprob')} asked for; {len(tested)} held out, off by up to "
        f"{max_error_nats:.1e} nats"
    )
    estimates.fill_unknown(basis.solve(recovered, estimates.logprobs[recovered]), max_error_nats)
    task.report_progress()


def _query_tokens(task: RecoveryTask, basis: Basis, pointwise: PointwiseMethod) -> NDArray[np.intp]:
    """Ask for the tokens that determine the row, and for random ones, which are returned."""
    size = task.session.endpoint.vocab_size
    check_basis(basis, size)
    held_out = np.random.default_rng(1).choice(size, min(_HELD_OUT_TOKENS, size), replace=False)
    excluded = set(held_out.tolist())
    fitted = [int(token) for token in basis.determining_tokens if token not in excluded][
        : count_queried(basis) - _HELD_OUT_TOKENS
    ]
    pointwise(task, [*fitted, *held_out.tolist()])
    return held_out
