"""`basis`: a complete row of V logprobs from about d of them, with a basis of the model's logits.

All rows of logprobs of a model lie in a space of d dimensions, whose basis is a matrix B (V, d), see `Basis`:

    log p = B w

The weights w are the least-squares solution for the tokens that another method recovers. Source: Finlayson, Ren &
Swayamdipta 2024, "Logits of API-Protected LLMs Leak Proprietary Information".

Random tokens are recovered, but held out of the solution. Their largest error is the error of the row.
"""

from __future__ import annotations

import numpy as np

from ...common.text import count_noun
from ..basis import Basis
from ..errors import RecoverError
from ..numerics import logsumexp
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
    # If the error of the held-out tokens exceeds ``max_held_out_error_nats``, the basis belongs to another model,
    # and only the queried tokens are kept. Otherwise a final solution includes the held-out tokens.
    vocab_size, estimates = task.endpoint.vocab_size, task.estimates
    check_basis(basis, vocab_size)
    held_out_tokens = np.random.default_rng(1).choice(vocab_size, min(_HELD_OUT_TOKENS, vocab_size), replace=False)
    other_tokens = basis.determining_tokens[~np.isin(basis.determining_tokens, held_out_tokens)]
    determining_tokens = other_tokens[: count_queried(basis) - _HELD_OUT_TOKENS]
    pointwise(task, [*determining_tokens.tolist(), *held_out_tokens.tolist()])
    recovered_tokens = estimates.known_tokens()
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
    row = basis.solve(recovered_tokens, estimates.logprobs[recovered_tokens])
    if not estimates.is_normalized:  # values relative to the most likely token, by `bisection`
        log_sum = logsumexp(row)
        row -= log_sum
        estimates.logprobs -= log_sum
        estimates.is_normalized = True
    unknown = np.isnan(estimates.logprobs)
    estimates.logprobs[unknown] = np.minimum(row[unknown], 0.0)
    estimates.errors[unknown] = max_error_nats
    task.report_progress()
