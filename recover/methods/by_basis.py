"""The whole row out of about d logprobs, where a basis of the model's logits is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..basis.basis import Basis
from ..errors import RecoverError
from ..numerics import Float64s, logsumexp
from ..run import RecoveryRun

_HELD_OUT = 60
_SPARE = 0.25


def asked(basis: Basis) -> int:
    """How many logprobs are asked for: a quarter more than there are dimensions, and those held out."""
    return basis.rank + max(20, int(_SPARE * basis.rank)) + _HELD_OUT


def check_basis(basis: Basis, size: int) -> None:
    """Refuse a basis for another number of tokens. Raises ``RecoverError``."""
    if basis.vocab_size != size:
        raise RecoverError(
            f"the basis has {basis.vocab_size:,} tokens and the endpoint {size:,}: it is of another model"
        )


def by_basis(run: RecoveryRun, basis: Basis, pointwise: Callable[[RecoveryRun, Sequence[int]], None]) -> None:
    """Recover the whole row: some logprobs by another method, the rest by least squares.

    The error is the largest one on tokens that were drawn by chance and held out of the solution; afterwards they
    join it. Where it exceeds ``tolerance``, the basis is not that of this model: only what was asked for is kept.
    """
    held = _asked_for(run, basis, pointwise)
    known = np.flatnonzero(~np.isnan(run.logprobs))
    outside = np.intersect1d(held, known)
    inside = np.setdiff1d(known, outside)
    if len(inside) < basis.rank or not len(outside):
        run.notes.append(f"{len(known):,} logprobs were found, too few for a basis of {basis.rank:,} dimensions")
        return
    row = basis.solve(inside, run.logprobs[inside])
    error = float(np.abs(row[outside] - run.logprobs[outside]).max())
    if error > run.settings.tolerance:
        run.notes.append(
            f"the basis does not fit: held-out tokens are off by up to {error:.2g} nats, more than "
            f"{run.settings.tolerance:g}; only what was asked for is kept"
        )
        return
    run.notes.append(
        f"{len(known):,} logprobs asked for; {len(outside)} held out are off by up to {error:.1e} nats"
    )
    _fill(run, basis.solve(known, run.logprobs[known]), error)


def _asked_for(
    run: RecoveryRun, basis: Basis, pointwise: Callable[[RecoveryRun, Sequence[int]], None]
) -> NDArray[np.intp]:
    """Ask for the tokens that tell most and for some drawn by chance; returns these. Raises ``RecoverError``."""
    size = run.asker.endpoint.vocab_size
    check_basis(basis, size)
    held = np.random.default_rng(1).choice(size, min(_HELD_OUT, size), replace=False)
    fitted = [int(token) for token in basis.order if token not in set(held.tolist())][: asked(basis) - _HELD_OUT]
    pointwise(run, [*fitted, *held.tolist()])
    return held


def _fill(run: RecoveryRun, row: Float64s, error: float) -> None:
    """Take what is not known from the solution; where all is relative, its sum tells the scale."""
    if not run.normalised:
        shift = logsumexp(row)
        row -= shift
        run.logprobs -= shift
        run.normalised = True
    filled = np.isnan(run.logprobs)
    run.logprobs[filled] = np.minimum(row[filled], 0.0)
    run.errors[filled] = error
    run.tell()
