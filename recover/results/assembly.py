"""From estimates to a result: what was asked for, with errors that agree with the sum of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...common.text import count_noun
from ..basis.basis import Basis
from ..estimates import LogprobEstimates
from ..numerics import Float64s, logsumexp
from ..query_session import QuerySession
from .recovery_result import Recovery

_ERROR_FACTOR = 5.0
"""The sum may differ from 1 by so many times what the errors allow: estimated errors are not exact."""
_ROUNDING = 1e-9
"""Probability that summing a vocabulary in float64 may miss."""


@dataclass(frozen=True)
class RunRecord:
    """How a run went.

    Args:
        tokens: the requested ids, int (n,); all if ``n`` likeliest are asked for.
        n: number of likeliest tokens; None: not so asked.
        method: the method that was used.
        notes: findings.
        drift: largest change of an answer in the course of the run, nats.
        stopped: why it ended early, None if it did not.
        basis: the basis that the settings name.
    """

    tokens: NDArray[np.intp]
    n: int | None
    method: str
    notes: tuple[str, ...]
    drift: float
    stopped: str | None
    basis: Basis | None


@dataclass(frozen=True)
class _SumCheck:
    """Whether probabilities sum to 1 within their errors, the errors that the sum allows, and notes."""

    is_consistent: bool
    errors: Float64s
    notes: tuple[str, ...]


def assemble_recovery(session: QuerySession, estimates: LogprobEstimates, record: RunRecord) -> Recovery:
    """Return what was asked for, and note what is missing or wrong."""
    n = record.n
    tokens = record.tokens if n is None else np.asarray(estimates.ranked()[:n], dtype=np.intp)
    logprobs, errors = np.full_like(estimates.logprobs, np.nan), np.full_like(estimates.errors, np.nan)
    logprobs[tokens], errors[tokens] = estimates.logprobs[tokens], estimates.errors[tokens]
    errors = np.maximum(errors, record.drift)
    missing = tokens[np.isnan(logprobs[tokens])]
    notes = list(record.notes)
    if len(missing) and record.stopped is None:
        notes += _missing_notes(estimates, missing)
    if record.drift:
        notes.append(
            f"the answer to one question changed by up to {record.drift:.1e} nats in the course of the run"
        )
    is_consistent = True
    if record.method != "bisection":  # it normalises, so the sum shows nothing
        is_whole = not len(missing) and estimates.is_normalised and n is None and len(tokens) == len(logprobs)
        check = _check_sum(logprobs, errors, is_whole)
        is_consistent, errors = check.is_consistent, check.errors
        notes += check.notes
    if n is not None:
        note = _unnamed_note(estimates.unnamed, logprobs[tokens])
        is_consistent &= note is None
        notes += [] if note is None else [note]
    known_errors = errors[~np.isnan(errors)]
    is_complete = not len(missing) and record.stopped is None and (n is None or len(tokens) == n)
    return Recovery(
        logprobs=logprobs,
        errors=errors,
        error=float(known_errors.max()) if len(known_errors) else float("nan"),
        queries=session.queries,
        sent=session.sent,
        method=record.method,
        complete=is_complete and is_consistent,
        normalised=estimates.is_normalised,
        notes=tuple(notes),
        pieces=_pieces(session, record.basis),
        stopped=record.stopped,
    )


def _check_sum(logprobs: Float64s, errors: Float64s, is_whole: bool) -> _SumCheck:
    """Check that probabilities sum to 1 as exactly as the errors say; if not, errors grow to the difference.

    |log sum p| <= sum p_i error_i, where the errors are the largest there are. A part of a vocabulary may sum to
    less.
    """
    is_recovered = ~np.isnan(logprobs)
    log_sum = logsumexp(logprobs[is_recovered]) if is_recovered.any() else -np.inf
    allowed = _ERROR_FACTOR * float(np.exp(logprobs[is_recovered]) @ errors[is_recovered]) + _ROUNDING
    is_consistent = log_sum <= allowed and (log_sum >= -allowed or not is_whole)
    notes = (f"the probabilities sum to 1{np.expm1(log_sum):+.1e}",) if is_whole or not is_consistent else ()
    if is_consistent:
        return _SumCheck(True, errors, notes)
    contradiction = (
        "that is not 1 within the errors: answers contradict one another, or the endpoint cuts off or reshapes "
        "its probabilities (top_p, temperature, penalties)"
    )
    return _SumCheck(False, np.maximum(errors, abs(log_sum)), (*notes, contradiction))


def _unnamed_note(unnamed: Sequence[float], logprobs: Float64s) -> str | None:
    """Return a note if tokens without a name are likelier than the last one of the result."""
    least = float(logprobs.min()) if len(logprobs) else -np.inf
    above = [value for value in unnamed if value > least]
    if not above:
        return None
    return (
        f"{len(above):,} or more tokens that belong to the likeliest have no name of their own and are left "
        f"out; the first of them has the logprob {max(above):.4f}"
    )


def _pieces(session: QuerySession, basis: Basis | None) -> dict[int, bytes]:
    """Return the bytes of tokens, from the answers, the endpoint's vocabulary and the basis."""
    pieces = dict(session.pieces)
    for source in (session.endpoint.pieces, basis.pieces if basis else ()):
        pieces |= {token: piece for token, piece in enumerate(source) if piece is not None}
    return pieces


def _missing_notes(estimates: LogprobEstimates, missing: NDArray[np.intp]) -> list[str]:
    """Return why tokens are missing."""
    tokens = set(missing.tolist())
    unnameable, contradicted = len(tokens & estimates.unnameable), len(tokens & estimates.contradicted)
    hidden = len(tokens) - unnameable - contradicted
    notes = []
    if unnameable:
        notes.append(
            f"the endpoint cannot name {count_noun(unnameable, 'token')}: no text stands for one of these alone"
        )
    if contradicted:
        notes.append(
            f"left out: {count_noun(contradicted, 'token')}; answers contradict others, as if a bias were ignored"
        )
    if hidden:
        notes.append(f"not shown with any bias that the endpoint takes: {count_noun(hidden, 'token')}")
    return notes
