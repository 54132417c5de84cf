"""`recover`: choose a method, run it, and say what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .basis.basis import Basis
from .endpoints.base import Endpoint, unnamed
from .errors import RecoverError
from .methods import bisection, by_basis, forced, parallel, ranking, single, top_n
from .probing.probe import probe
from .query_journal import QueryJournal
from .query_session import QuerySession, StopAskingError
from .results.assembly import outcome
from .run import EndpointProfile, RecoveryRun
from .settings import Recovery, RecoverySettings

_MOST_TOKENS = 1 << 24
METHODS = ("auto", "single", "parallel", "top_n", "bisection", "forced", "basis")
NO_BASIS = "the method basis needs a basis; make one with gen recover-basis"
_POINTWISE: Mapping[str, Callable[[RecoveryRun, Sequence[int]], None]] = {
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
    tokens: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    *,
    settings: RecoverySettings | None = None,
) -> Recovery:
    """Recover logprobs of the token after ``prompt``: of all tokens, of the ``n`` likeliest, or of ``tokens``.

    ``method``: ``single``, ``parallel``, ``top_n`` (needs ``n``), ``bisection``, ``forced``, ``basis`` (needs
    ``settings.basis``), or ``auto``: a few calls find out what the endpoint allows, and the cheapest way is taken;
    ``notes`` tell. Logprobs are in nats. Raises ``RecoverError``, and ``KeyboardInterrupt`` where it is
    interrupted before anything was asked.
    """
    settings = settings or RecoverySettings()
    settings.check()
    ids = None if tokens is None else token_ids(tokens)
    check(prompt, method, n, ids)
    asker = QuerySession(endpoint, prompt, settings)
    try:
        size = asker.vocab_size()
        check_size(size, n, ids)
        wanted = np.arange(size) if ids is None else np.unique(np.asarray(ids, dtype=np.intp))
        run = RecoveryRun(asker, settings, wanted, np.full(size, np.nan), np.full(size, np.nan), method)
        run.blocked = unnamed(endpoint)
        asker.journal = _journal(asker, prompt, settings)
        stopped = None
        try:
            _recover(run, n, ids is None)
        except StopAskingError as stop:
            stopped = stop.reason
    except StopAskingError:
        raise KeyboardInterrupt from None  # before there was anything to keep
    finally:
        if asker.journal is not None:
            asker.journal.close()
    return outcome(run, n, stopped)


def token_ids(tokens: Iterable[object]) -> list[int]:
    """The ids as ints. Raises ``RecoverError``."""
    found = []
    for token in tokens:
        try:
            found.append(index(token))  # type: ignore[arg-type] # what has no index is told of
        except TypeError:
            raise RecoverError(f"tokens: {token!r} is no token id") from None
    return found


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
    if tokens is not None and not tokens:
        raise RecoverError("tokens: there are none")


def check_size(size: int, n: int | None, tokens: Sequence[int] | None) -> None:
    """Refuse tokens that a vocabulary of this size has not. Raises ``RecoverError``."""
    if not 1 <= size <= _MOST_TOKENS:
        raise RecoverError(f"the endpoint says that it has {size} tokens, which is not within 1..{_MOST_TOKENS}")
    if n is not None and not 1 <= n <= size:
        raise RecoverError(f"n: {n} is not within 1..{size}")
    for token in tokens or ():
        if not 0 <= token < size:
            raise RecoverError(f"token id {token} is not within 0..{size - 1}")


def _journal(asker: QuerySession, prompt: str, settings: RecoverySettings) -> QueryJournal | None:
    if settings.checkpoint is None:
        return None
    about = {"endpoint": asker.identity(), "prompt": prompt}
    return QueryJournal(settings.checkpoint, about, settings.resume)


def _recover(run: RecoveryRun, n: int | None, whole: bool) -> None:
    """Find out what the endpoint allows, and run the method."""
    probe(run)
    run.notes.extend(run.found.lines)
    run.method = chosen = _chosen(run, n, whole)
    shown = n is not None and n <= len(run.base)
    if chosen != "basis" and (shown or not (n or run.unknown(run.wanted))):
        return
    allowed(run.found, chosen)
    if chosen == "top_n":
        top_n(run, n or 0)
    elif chosen == "basis":
        if run.settings.basis is None:
            raise RecoverError(NO_BASIS)
        by_basis(run, run.settings.basis, _POINTWISE[run.found.pointwise])
    else:
        tokens = ranking(run, n) if n is not None and chosen == "bisection" else run.wanted
        _POINTWISE[chosen](run, [int(token) for token in tokens])


def _chosen(run: RecoveryRun, n: int | None, whole: bool) -> str:
    """The method that was named, else the cheapest that works."""
    if run.method != "auto":
        return run.method
    if n is not None and run.found.moves and run.found.together:
        return "top_n"
    if takes_basis(run.settings.basis, None if whole else len(run.wanted)):
        return "basis"
    return run.found.pointwise


def takes_basis(basis: Basis | None, count: int | None) -> bool:
    """Does ``auto`` take the basis for so many named tokens (None: for all)? Fewer than it needs are asked for."""
    return basis is not None and (count is None or count > basis.rank)


def allowed(found: EndpointProfile, method: str) -> None:
    """Refuse a method that would give wrong numbers on this endpoint. Raises ``RecoverError``."""
    if not (found.moves or found.chooses):
        raise RecoverError(f"nothing can be recovered from this endpoint: {'; '.join(found.lines)}")
    works = {
        "single": found.moves,
        "top_n": found.moves and found.together,
        "parallel": found.moves and found.together and found.window > 1,
        "forced": found.forces,
        "bisection": not found.step,
    }.get(method, True)
    if not works:
        raise RecoverError(
            f"{method} does not work on this endpoint ({'; '.join(found.lines)}); {found.pointwise} or auto may"
        )
