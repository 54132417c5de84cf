"""Asks an endpoint: several calls in flight, none twice, no more than allowed, each answer kept at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from threading import Lock
from typing import Any, TypeVar

from .endpoints.base import Bias, Endpoint, EndpointAnswer, Query, checked, greedy
from .errors import RecoverError
from .further import leave_by
from .query_journal import QueryJournal, key_of
from .resume_check import TURNS, confirm
from .settings import RecoverySettings

T = TypeVar("T")
_LOOK = 0.2
"""Seconds between two looks at whether the run was interrupted."""


def question(bias: Bias, turn: int, likeliest: bool) -> str:
    """The journal's key of a question, or of the one for the likeliest token, which has turns of its own."""
    return key_of(bias, -1 - turn if likeliest else turn)


class StopAskingError(Exception):
    """No further call is allowed; ``reason`` is ``max_calls`` or ``interrupted``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class QuerySession:
    """Questions about one prompt.

    Attributes: ``sent``, calls of this run; ``queries``, with those of the ``journal``; ``pieces``, tokens' bytes.
    """

    def __init__(self, endpoint: Endpoint, prompt: str, settings: RecoverySettings) -> None:
        self.endpoint = endpoint
        self.sent = 0
        self.queries = 0
        self.pieces: dict[int, bytes] = {}
        self._prompt = prompt
        self._settings = settings
        self.journal: QueryJournal | None = None
        self._claimed = 0
        self._failure: BaseException | None = None
        self._confirmed = False
        self._lock = Lock()
        self._tell("start")

    def ask(
        self, biases: Iterable[Bias], turns: int = 1, first: int = 0, likeliest: bool = False
    ) -> Iterator[list[EndpointAnswer]]:
        """The answers to each question, in order; each is asked ``turns`` times, numbered from ``first`` on.

        ``likeliest``: the likeliest token is wanted, not one that was drawn.
        Raises ``RecoverError`` as the endpoint does, and ``StopAskingError``; what was sent by then is kept.
        """
        pool = ThreadPoolExecutor(self._settings.in_flight)
        chooser = greedy(self.endpoint) if likeliest else None
        pending: deque[list[Future[EndpointAnswer]]] = deque()
        enough: StopAskingError | None = None
        try:
            for bias in biases:
                try:
                    pending.append([self._submit(pool, bias, first + turn, chooser) for turn in range(turns)])
                except StopAskingError as stop:
                    enough = stop
                    break
                if len(pending) > self._settings.in_flight:
                    yield [self._result(future) for future in pending.popleft()]
            while pending:
                yield [self._result(future) for future in pending.popleft()]
            if enough is not None:
                raise enough
        finally:
            pool.shutdown(wait=True, cancel_futures=enough is None)

    def _submit(
        self, pool: ThreadPoolExecutor, bias: Bias, turn: int, chooser: Query | None
    ) -> Future[EndpointAnswer]:
        key = question(bias, turn, chooser is not None)
        known = self.journal.get(key) if self.journal is not None else None
        if known is not None:
            done: Future[EndpointAnswer] = Future()
            with self._lock:
                done.set_result(self._noted(known))
            return done
        self._look()
        self._confirm(pool)
        self._claim()
        return pool.submit(self._call, chooser or self.endpoint.query, dict(bias), key)

    def _claim(self) -> None:
        """Ask leave for one call; raises ``StopAskingError`` where no further one is allowed."""
        with self._lock:
            if self._settings.max_calls is not None and self._claimed >= self._settings.max_calls:
                raise StopAskingError("max_calls")
            self._claimed += 1

    def _call(self, query: Query, bias: Bias, key: str | None) -> EndpointAnswer:
        """Ask, for one claimed call, and keep the answer under its key."""
        if self._failure is not None:  # one sentence of what is wrong is enough
            raise self._failure
        try:
            answer = self._answer(query, bias)
            with self._lock:
                if self.journal is not None and key is not None:
                    self.journal.add(key, answer)
                return self._noted(answer)
        except StopAskingError:
            raise
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
            self._tell("stop")
            raise

    def _answer(self, query: Query, bias: Bias) -> EndpointAnswer:
        """The endpoint's answer; what it took is counted, also where further calls for it are not allowed."""
        calls = 1

        def more() -> None:
            nonlocal calls
            self._claim()
            calls += 1

        try:
            with leave_by(more):
                said = query(self._prompt, bias)
        except StopAskingError:
            with self._lock:
                self.sent += calls
                self.queries += calls
            raise
        except RecoverError as error:
            error.kept = bool(self.journal)
            raise
        answer = checked(said, self.endpoint)
        with self._lock:
            self._claimed += answer.calls - calls
            self.sent += answer.calls
        return answer

    def _confirm(self, pool: ThreadPoolExecutor) -> None:
        """Before the first new question behind a journal: does the endpoint still answer as it did?"""
        if self._confirmed or self.journal is None or not self.journal.resumed:
            return
        self._confirmed = True
        chooser = None if self.endpoint.limits.window else greedy(self.endpoint)
        query = chooser or self.endpoint.query

        def again(count: int) -> list[EndpointAnswer]:
            for _ in range(count):
                self._claim()
            looks = [pool.submit(self._call, query, {}, None) for _ in range(count)]
            return [self._result(look) for look in looks]

        keys = [question({}, turn, chooser is not None) for turn in range(TURNS)]
        confirm(self.journal, keys, again, self.endpoint.limits.precision)

    def _noted(self, answer: EndpointAnswer) -> EndpointAnswer:
        self.queries += answer.calls
        self.pieces.update(answer.pieces)
        return answer

    def _result(self, future: Future[T]) -> T:
        while True:
            try:
                return future.result(timeout=_LOOK)
            except NotYetError:
                if future.done():  # the endpoint's own time-out
                    raise
                self._look()

    def vocab_size(self) -> int:
        """How many tokens the endpoint has, which it may have to ask for. Raises as `ask` does."""
        return self._told(lambda: self.endpoint.vocab_size)

    def identity(self) -> Mapping[str, Any]:
        """What tells the endpoint from others, which it may have to ask for. Raises as `ask` does."""
        return self._told(lambda: dict(self.endpoint.identity))

    def _told(self, what: Callable[[], T]) -> T:
        with ThreadPoolExecutor(1) as pool:
            return self._result(pool.submit(what))

    def _look(self) -> None:
        """Stop once the run is interrupted; an endpoint that waits to try again is told so."""
        if self._settings.interrupted is not None and self._settings.interrupted():
            self._tell("stop")
            raise StopAskingError("interrupted")

    def _tell(self, what: str) -> None:
        """Tell an endpoint that tries again by itself to ``stop`` that, or to ``start``."""
        method = getattr(self.endpoint, what, None)
        if method is not None:
            method()


def endpoint_identity(endpoint: Endpoint, settings: RecoverySettings) -> Mapping[str, Any]:
    """What tells an endpoint from others; it may have to ask. Raises ``RecoverError``, ``KeyboardInterrupt``."""
    try:
        return QuerySession(endpoint, "", settings).identity()
    except StopAskingError:
        raise KeyboardInterrupt from None
