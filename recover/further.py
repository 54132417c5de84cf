"""Leave for further requests: some endpoints need several for one answer, and ``max_calls`` counts each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LEAVE: ContextVar[Callable[[], object] | None] = ContextVar("leave", default=None)


def further() -> None:
    """To be called by an endpoint before each request but the first; raises where no further one is allowed."""
    leave = _LEAVE.get()
    if leave is not None:
        leave()


@contextmanager
def leave_by(ask: Callable[[], object]) -> Iterator[None]:
    """While inside, in this thread, `further` calls this."""
    before = _LEAVE.set(ask)
    try:
        yield
    finally:
        _LEAVE.reset(before)
