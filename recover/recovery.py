"""`recover`: choose a method, run it, and say what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .asker import Asker, StopAskingError
from .basis import Basis
from .endpoint import Endpoint, pieces_of, unnamed
from .errors import RecoverError
from .journal import Journal
from .methods import bisection, by_basis, forced, parallel, ranking, single, top_n
from .numerics import logsumexp
from .probe import probe
from .run import Findings, Run
from .settings import Recovery, Settings

METHODS = ("auto", "single", "parallel", "top_n", "bisection", "forced", "basis")
NO_BASIS = "the method basis needs a basis; make one with gen recover-basis"
_POINTWISE: Mapping[str, Callable[[Run, Sequence[int]], None]] = {
    "single": single,
    "parallel": parallel,
    "forced": forced,
    "bisection": bisection,
}


def recover(  # noqa: PLR0913 - each is one thing to be said by name
    endpoint: Endpoint,
    prompt: str,
    method: str = "auto",
    n: int | None = None,
    tokens: Sequence[int] | None = None,
    *,
    settings: Settings | None = None,
) -> Recovery:
    """Recover logprobs of the token after ``prompt``: of all tokens, of the ``n`` likeliest, or of ``tokens``.

    ``method``: ``single``, ``parallel``, ``top_n`` (needs ``n``), ``bisection``, ``forced``, ``basis`` (needs
    ``settings.basis``), or ``auto``: a few calls find out what the endpoint allows, and the cheapest way is taken;
    ``notes`` tell. Logprobs are in nats. Raises ``RecoverError``, and ``KeyboardInterrupt`` where it is
    interrupted before anything was asked.
    """
    settings = settings or Settings()
    settings.check()
    check(prompt, method, n, tokens)
    asker = Asker(endpoint, prompt, settings)
    try:
        size = asker.vocab_size()
        check_size(size, n, tokens)
        wanted = np.arange(size) if tokens is None else np.unique(np.asarray(tokens, dtype=np.intp))
        run = Run(asker, settings, wanted, np.full(size, np.nan), np.full(size, np.nan), method)
        run.blocked = unnamed(endpoint)
        asker.journal = _journal(asker, prompt, settings)
        stopped = None
        try:
            _recover(run, n, tokens is None)
        except StopAskingError as stop:
            stopped = stop.reason
    except StopAskingError:
        raise KeyboardInterrupt from None  # before there was anything to keep
    finally:
        if asker.journal is not None:
            asker.journal.close()
    return _result(run, n, stopped)


def check(prompt: str, method: str, n: int | None, tokens: Sequence[int] | None) -> None:
    """Refuse what no endpoint is needed to see. Raises ``RecoverError``."""
    if method not in METHODS:
        raise RecoverError(f"method: {method!r} is none of {', '.join(METHODS)}")
    if not prompt:
        raise RecoverError("the prompt is empty: there is nothing that a token could follow")
    if n is not None and tokens is not None:
        raise RecoverError("n and tokens: ask for the likeliest or for named tokens, not both")
    if method == "top_n" and n is None:
        raise RecoverError("top_n needs n, the number of likeliest tokens")
    if tokens is not None and not len(tokens):
        raise RecoverError("tokens: there are none")


def check_size(size: int, n: int | None, tokens: Sequence[int] | None) -> None:
    """Refuse tokens that a vocabulary of this size has not. Raises ``RecoverError``."""
    if n is not None and not 1 <= n <= size:
        raise RecoverError(f"n: {n} is not within 1..{size}")
    for token in tokens or ():
        if not 0 <= token < size:
            raise RecoverError(f"token id {token} is not within 0..{size - 1}")


def _journal(asker: Asker, prompt: str, settings: Settings) -> Journal | None:
    if settings.checkpoint is None:
        return None
    about = {"endpoint": asker.identity(), "prompt": prompt}
    return Journal(settings.checkpoint, about, settings.resume)


def _recover(run: Run, n: int | None, whole: bool) -> None:
    """Find out what the endpoint allows, and run the method."""
    probe(run)
    run.notes.extend(run.found.lines)
    run.method = chosen = _chosen(run, n, whole)
    allowed(run.found, chosen)
    if chosen == "top_n":
        top_n(run, n or 0)
    elif chosen == "basis":
        if run.settings.basis is None:
            raise RecoverError(NO_BASIS)
        by_basis(run, run.settings.basis, _POINTWISE[run.found.pointwise])
    elif n is None or n > len(run.base):
        tokens = ranking(run, n) if n is not None and chosen == "bisection" else run.wanted
        _POINTWISE[chosen](run, [int(token) for token in tokens])


def _chosen(run: Run, n: int | None, whole: bool) -> str:
    """The method that was named, else the cheapest that works."""
    if run.method != "auto":
        return run.method
    if n is not None and run.found.moves:
        return "top_n"
    if takes_basis(run.settings.basis, None if whole else len(run.wanted)):
        return "basis"
    return run.found.pointwise


def takes_basis(basis: Basis | None, count: int | None) -> bool:
    """Does ``auto`` take the basis for so many named tokens (None: for all)? Fewer than it needs are asked for."""
    return basis is not None and (count is None or count > basis.rank)


def allowed(found: Findings, method: str) -> None:
    """Refuse a method that would give wrong numbers on this endpoint. Raises ``RecoverError``."""
    works = {
        "single": found.moves,
        "top_n": found.moves,
        "parallel": found.moves and found.window > 1,
        "forced": found.forces,
    }.get(method, True)
    if not works:
        raise RecoverError(
            f"{method} does not work on this endpoint ({'; '.join(found.lines)}); {found.pointwise} or auto may"
        )


def _result(run: Run, n: int | None, stopped: str | None) -> Recovery:
    """Keep what was asked for, and no more."""
    kept = _likeliest(run, n) if n is not None else run.wanted
    logprobs, errors = np.full_like(run.logprobs, np.nan), np.full_like(run.errors, np.nan)
    logprobs[kept], errors[kept] = run.logprobs[kept], run.errors[kept]
    missing = int(np.isnan(logprobs[kept]).sum())
    notes = list(run.notes)
    if missing and stopped is None:
        notes += _why_missing(run, kept[np.isnan(logprobs[kept])])
    if not missing and run.normalised and n is None and len(kept) == len(logprobs) and run.method != "basis":
        notes.append(f"the probabilities sum to 1{np.expm1(logsumexp(logprobs)):+.1e}")
    known = errors[~np.isnan(errors)]
    pieces = dict(run.asker.pieces)
    for source in (pieces_of(run.asker.endpoint), run.settings.basis.pieces if run.settings.basis else ()):
        pieces |= {token: piece for token, piece in enumerate(source) if piece is not None}
    complete = not missing and stopped is None and (n is None or len(kept) == n)
    return Recovery(
        logprobs,
        errors,
        float(known.max()) if len(known) else float("nan"),
        run.asker.queries,
        run.asker.sent,
        run.method,
        complete,
        run.normalised,
        tuple(notes),
        pieces,
        stopped,
    )


def _likeliest(run: Run, n: int) -> NDArray[np.intp]:
    """The ids of the n likeliest tokens that are known."""
    known = np.flatnonzero(~np.isnan(run.logprobs))
    return known[np.argsort(-run.logprobs[known], kind="stable")][:n]


def _why_missing(run: Run, missing: NDArray[np.intp]) -> list[str]:
    unnamed_ = sum(int(token) in run.blocked for token in missing)
    said = []
    if unnamed_:
        said.append(f"{unnamed_:,} tokens have no text of their own, by which the endpoint could name them")
    if len(missing) > unnamed_:
        said.append(f"{len(missing) - unnamed_:,} tokens were not shown with any bias that the endpoint takes")
    return said
