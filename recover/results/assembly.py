"""What came of a run: what was asked for and no more, with errors that its sum does not belie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..endpoints.base import pieces_of
from ..numerics import Float64s, logsumexp
from ..run import RecoveryRun
from ..settings import Recovery

_BELIEVED = 5.0
"""The sum may be off by this many times what the errors that are told allow."""
_ROUNDING = 1e-9


def outcome(run: RecoveryRun, n: int | None, stopped: str | None) -> Recovery:
    """Keep what was asked for, and say what is missing, or wrong."""
    kept = _likeliest(run, n) if n is not None else run.wanted
    logprobs, errors = np.full_like(run.logprobs, np.nan), np.full_like(run.errors, np.nan)
    logprobs[kept], errors[kept] = run.logprobs[kept], run.errors[kept]
    errors = np.maximum(errors, run.drift)
    gaps = kept[np.isnan(logprobs[kept])]
    notes = list(run.notes)
    if len(gaps) and stopped is None:
        notes += _why_missing(run, gaps)
    if run.drift:
        notes.append(f"the answer to one question changed by up to {run.drift:.1e} nats in the course of the run")
    whole = not len(gaps) and run.normalised and n is None and len(kept) == len(logprobs)
    sound = run.method == "bisection" or _check_sum(logprobs, errors, notes, whole)
    if n is not None:
        sound &= _check_names(run, logprobs[kept], notes)
    known = errors[~np.isnan(errors)]
    return Recovery(
        logprobs,
        errors,
        float(known.max()) if len(known) else float("nan"),
        run.asker.queries,
        run.asker.sent,
        run.method,
        not len(gaps) and stopped is None and (n is None or len(kept) == n) and sound,
        run.normalised,
        tuple(notes),
        _pieces(run),
        stopped,
    )


def _check_sum(logprobs: Float64s, errors: Float64s, notes: list[str], whole: bool) -> bool:
    """Is the sum of all probabilities as near 1 as the errors say? If not, they grow to what it tells.

    |log sum p| <= sum p_i error_i, where the errors are the largest there are. A part of all may have less.
    """
    known = ~np.isnan(logprobs)
    off = logsumexp(logprobs[known]) if known.any() else -np.inf
    allowed = _BELIEVED * float(np.exp(logprobs[known]) @ errors[known]) + _ROUNDING
    sound = off <= allowed and (off >= -allowed or not whole)
    if whole or not sound:
        notes.append(f"the probabilities sum to 1{np.expm1(off):+.1e}")
    if sound:
        return True
    errors[:] = np.maximum(errors, abs(off))
    notes.append(
        "that is not 1 within the errors: answers contradict one another, or the endpoint cuts off or reshapes "
        "its probabilities (top_p, temperature, penalties)"
    )
    return False


def _check_names(run: RecoveryRun, logprobs: Float64s, notes: list[str]) -> bool:
    """Were likelier tokens than the last one shown without a name?"""
    least = float(logprobs.min()) if len(logprobs) else -np.inf
    above = [value for value in run.nameless if value > least]
    if above:
        notes.append(
            f"{len(above):,} or more tokens that belong to the likeliest have no name of their own and are left "
            f"out; the first of them has the logprob {max(above):.4f}"
        )
    return not above


def _pieces(run: RecoveryRun) -> dict[int, bytes]:
    """The bytes of tokens, from wherever they are known."""
    found = dict(run.asker.pieces)
    for source in (pieces_of(run.asker.endpoint), run.settings.basis.pieces if run.settings.basis else ()):
        found |= {token: piece for token, piece in enumerate(source) if piece is not None}
    return found


def _likeliest(run: RecoveryRun, n: int) -> NDArray[np.intp]:
    """The ids of the n likeliest tokens that are known."""
    known = np.flatnonzero(~np.isnan(run.logprobs))
    return known[np.argsort(-run.logprobs[known], kind="stable")][:n]


def _why_missing(run: RecoveryRun, missing: NDArray[np.intp]) -> list[str]:
    gaps = set(missing.tolist())
    nameless, doubted = len(gaps & run.blocked), len(gaps & run.doubted)
    rest = len(gaps) - nameless - doubted
    said = []
    if nameless:
        said.append(f"{nameless:,} tokens have no text of their own, by which the endpoint could name them")
    if doubted:
        said.append(f"{doubted:,} tokens are left out: their answers contradict others, as if a bias were ignored")
    if rest:
        said.append(f"{rest:,} tokens were not shown with any bias that the endpoint takes")
    return said
