"""Recovery of a complete row from the logprobs of about d tokens, with a basis of the model's logits that has d
dimensions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.text import count_noun
from ..basis import Basis
from ..errors import RecoverError
from ..task import PointwiseMethod, RecoveryTask

# Number of tokens that test the solution. Of the remaining tokens, about 1 in 60 has an error above the tested
# maximum.
_HELD_OUT_TOKENS = 60
# more logprobs than dimensions are queried, so that errors average out
_SPARE_FRACTION, _MIN_SPARE_TOKENS = 0.25, 20


def count_queried(basis: Basis) -> int:
    """Return the number of queried tokens: a quarter more than the basis has dimensions, and those held out."""
    return basis.rank + max(_MIN_SPARE_TOKENS, int(_SPARE_FRACTION * basis.rank)) + _HELD_OUT_TOKENS


def check_basis(basis: Basis, vocab_size: int) -> None:
    """Raise ``RecoverError`` for a basis with another number of tokens."""
    if basis.vocab_size != vocab_size:
        raise RecoverError(
            f"the basis has {basis.vocab_size:,} tokens, but the endpoint has {vocab_size:,}; use a basis of "
            f"the same model"
        )


def by_basis(task: RecoveryTask, basis: Basis, pointwise: PointwiseMethod) -> None:
    """Recover a complete row: some tokens by another method, the others by least squares."""
    # The error is the largest error on random tokens that are held out of the solution. A final solution includes
    # them. If the error exceeds ``max_held_out_error_nats``, the basis belongs to another model, and only the
    # queried tokens are kept.
    estimates = task.estimates
    held_out_tokens = _query_tokens(task, basis, pointwise)
    recovered_tokens = np.flatnonzero(~np.isnan(estimates.logprobs))
    tested_tokens = np.intersect1d(held_out_tokens, recovered_tokens)
    fitted_tokens = np.setdiff1d(recovered_tokens, tested_tokens)
    if len(fitted_tokens) < basis.rank or not len(tested_tokens):
        task.notes.append(
            f"{count_noun(len(recovered_tokens), 'logprob')} recovered, "
            f"too few for a basis of {basis.rank:,} dimensions"
        )
        return
    row = basis.solve(fitted_tokens, estimates.logprobs[fitted_tokens])
    max_error_nats = float(np.abs(row[tested_tokens] - estimates.logprobs[tested_tokens]).max())
    if max_error_nats > task.settings.max_held_out_error_nats:
        task.notes.append(
            f"the basis does not fit the model: the error of held-out tokens is {max_error_nats:.2g} nats, more "
            f"than {task.settings.max_held_out_error_nats:g}; only the queried tokens are kept"
        )
        return
    task.notes.append(
        f"{count_noun(len(recovered_tokens), 'logprob')} queried; "
        f"the largest error of {len(tested_tokens)} held-out tokens is "
        f"{max_error_nats:.1e} nats"
    )
    estimates.fill_unknown(basis.solve(recovered_tokens, estimates.logprobs[recovered_tokens]), max_error_nats)
    task.report_progress()


def _query_tokens(task: RecoveryTask, basis: Basis, pointwise: PointwiseMethod) -> NDArray[np.intp]:
    """Recover the tokens that determine the row, and random held-out tokens, whose ids are returned, int (n,)."""
    vocab_size = task.session.endpoint.vocab_size
    check_basis(basis, vocab_size)
    held_out_tokens = np.random.default_rng(1).choice(vocab_size, min(_HELD_OUT_TOKENS, vocab_size), replace=False)
    held_out_ids = set(held_out_tokens.tolist())
    fitted_tokens = [int(token) for token in basis.determining_tokens if token not in held_out_ids][
        : count_queried(basis) - _HELD_OUT_TOKENS
    ]
    pointwise(task, [*fitted_tokens, *held_out_tokens.tolist()])
    return held_out_tokens
