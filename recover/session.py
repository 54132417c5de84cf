"""Sends questions about one prompt to one endpoint, within a budget of calls.

Several calls run concurrently, no question is sent twice, and each answer is stored before it is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from threading import Lock
from typing import Any, TypeVar

from ..common.text import is_utf8
from .endpoints.base import Bias, Endpoint, EndpointResponse, QueryKind, checked_response
from .errors import RecoverError
from .journal import MAX_STORED_REPETITIONS, QueryJournal, QueryKey, reject_change, response_change
from .request import RecoverySettings

_INTERRUPT_CHECK_SECONDS = 0.2
"""How often a waiting run looks whether it was interrupted: at once for a person, seldom for a processor."""


_T = TypeVar("_T")


class QuerySession:
    """Questions about one prompt.

    Attributes: ``new_call_count``: calls of this run. ``total_call_count``: calls behind all answers, those of
        the journal included.
    ``token_bytes``: bytes of tokens that the endpoint named.
    """

    def __init__(self, endpoint: Endpoint, prompt: str, settings: RecoverySettings) -> None:
        self.endpoint = endpoint
        self.new_call_count = 0
        self.total_call_count = 0
        self.token_bytes: dict[int, bytes] = {}
        self._prompt = prompt
        self._settings = settings
        self._journal: QueryJournal | None = None
        self._budget = _CallBudget(settings.max_calls)
        self._failure: BaseException | None = None
        self._is_resumed_endpoint_checked = False
        self._lock = Lock()
        endpoint.allow_retries()

    def open_journal(self) -> None:
        """Open the checkpoint, if the settings name one. Raises ``RecoverError``, ``RecoveryStoppedError``."""
        path = self._settings.checkpoint
        if path is not None:
            run = {"endpoint": self.identity(), "prompt": self._prompt}
            self._journal = QueryJournal(path, run, self._settings.resume)

    def close(self) -> None:
        """Close the checkpoint."""
        if self._journal is not None:
            self._journal.close()

    def send_queries(
        self,
        biases: Iterable[Bias],
        calls_per_query: int = 1,
        *,
        kind: QueryKind = QueryKind.NEXT_TOKEN,
        first_repetition: int = 0,
        drift_check: int = 0,
    ) -> Iterator[list[EndpointResponse]]:
        """Yield the answers to each question, in order.

        Raises ``RecoverError`` as the endpoint does, and ``RecoveryStoppedError``; calls that were sent by then
        are
        counted and stored.

        Args:
            biases: one question each.
            calls_per_query: how often each question is asked.
            kind: what is asked for; `QuestionKind.NEXT_TOKEN` if the endpoint has no other way.
            first_repetition: number of the first repetition.
            drift_check: number of the drift check that asks, from 1; 0: none.
        """
        if not self.endpoint.has_top_token_query:
            kind = QueryKind.NEXT_TOKEN
        numbers = range(first_repetition, first_repetition + calls_per_query)
        pool = ThreadPoolExecutor(self._settings.max_concurrent_calls)
        pending: deque[list[Future[EndpointResponse]]] = deque()
        early_stop: RecoveryStoppedError | None = None
        try:
            for bias in biases:
                keys = [QueryKey.of(bias, kind, number, drift_check) for number in numbers]
                try:
                    pending.append([self._submit(pool, bias, key) for key in keys])
                except RecoveryStoppedError as stop:
                    early_stop = stop
                    break
                if len(pending) > self._settings.max_concurrent_calls:
                    yield [self._result(future) for future in pending.popleft()]
            while pending:
                yield [self._result(future) for future in pending.popleft()]
            if early_stop is not None:
                raise early_stop
        finally:
            pool.shutdown(wait=True, cancel_futures=early_stop is None)

    def vocab_size(self) -> int:
        """Return the size of the vocabulary, for which the endpoint may ask its server. Raises as
        `send_queries` does.
        """
        return self._run_interruptibly(lambda: self.endpoint.vocab_size)

    def identity(self) -> Mapping[str, Any]:
        """Return the endpoint's identity, for which it may ask its server. Raises as `send_queries` does."""
        return self._run_interruptibly(lambda: dict(self.endpoint.identity))

    def prefer_complete_utf8(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return those of the tokens that are whole UTF-8 text, as far as is known, or all if none is.

        llama.cpp's server hides the logprobs when it draws a token that ends inside a character. Do not bias such
        a token upwards.
        """
        return [token for token in tokens if is_utf8(self.token_bytes.get(token, b""))] or tokens

    def _submit(self, pool: ThreadPoolExecutor, bias: Bias, key: QueryKey) -> Future[EndpointResponse]:
        """Take the answer from the journal, or claim a call and ask in a thread."""
        stored_response = self._journal.get(key) if self._journal is not None else None
        if stored_response is not None:
            done: Future[EndpointResponse] = Future()
            with self._lock:
                done.set_result(self._count_calls(stored_response))
            return done
        self._check_interrupt()
        self._check_resumed_endpoint(pool)
        self._budget.claim()
        return pool.submit(self._call, dict(bias), key.kind, key)

    def _call(self, bias: Bias, kind: QueryKind, key: QueryKey | None) -> EndpointResponse:
        """Ask, for one claimed call, and store the answer under its key, if it has one."""
        if self._failure is not None:  # all calls fail with the first failure
            raise self._failure
        try:
            response = self._get_response(bias, kind)
            with self._lock:
                if self._journal is not None and key is not None:
                    self._journal.add(key, response)
                return self._count_calls(response)
        except RecoveryStoppedError:
            raise
        except BaseException as error:
            with self._lock:
                failure = self._failure = self._failure or error
            self.endpoint.stop_retries()  # which may be why this call failed
            raise failure from None

    def _get_response(self, bias: Bias, kind: QueryKind) -> EndpointResponse:
        """Return the endpoint's answer. Its calls are counted even if it needs more than are allowed."""
        calls = 1

        def claim_call() -> None:
            nonlocal calls
            self._budget.claim()
            calls += 1

        try:
            raw_response = self.endpoint.answer(self._prompt, bias, kind, claim_call)
        except RecoveryStoppedError:
            with self._lock:
                self.new_call_count += calls
                self.total_call_count += calls
            raise
        except RecoverError as error:
            error.has_checkpoint = bool(self._journal)
            raise
        response = checked_response(raw_response, self.endpoint)
        with self._lock:
            self._budget.add_unclaimed_calls(response.calls - calls)
            self.new_call_count += response.calls
        return response

    def _check_resumed_endpoint(self, pool: ThreadPoolExecutor) -> None:
        """Before the first new question after a journal's: refuse an endpoint that answers differently now."""
        journal = self._journal
        if self._is_resumed_endpoint_checked or journal is None or not journal.resumed_response_count:
            return
        self._is_resumed_endpoint_checked = True
        kind = QueryKind.NEXT_TOKEN
        if self.endpoint.has_top_token_query and not self.endpoint.limits.window:
            kind = QueryKind.TOP_TOKEN

        def query_again(count: int) -> list[EndpointResponse]:
            for _ in range(count):
                self._budget.claim()
            futures = [pool.submit(self._call, {}, kind, None) for _ in range(count)]
            return [self._result(future) for future in futures]

        keys = [QueryKey.of({}, kind, repetition) for repetition in range(MAX_STORED_REPETITIONS)]
        stored_responses = [response for key in keys if (response := journal.get(key)) is not None]
        reject_change(
            journal.path, response_change(stored_responses, query_again, self.endpoint.limits.relative_error)
        )

    def _count_calls(self, response: EndpointResponse) -> EndpointResponse:
        self.total_call_count += response.calls
        self.token_bytes.update(response.token_bytes)
        return response

    def _result(self, future: Future[_T]) -> _T:
        """Wait for a result. Raises ``RecoveryStoppedError`` if the run is interrupted meanwhile."""
        while True:
            try:
                return future.result(timeout=_INTERRUPT_CHECK_SECONDS)
            except NotYetError:
                if future.done():  # the endpoint's own time-out
                    raise
                self._check_interrupt()

    def _run_interruptibly(self, function: Callable[[], _T]) -> _T:
        with ThreadPoolExecutor(1) as pool:
            return self._result(pool.submit(function))

    def _check_interrupt(self) -> None:
        """Raise ``RecoveryStoppedError`` if the run was interrupted; then the endpoint's retries end too."""
        if self._settings.is_interrupted is not None and self._settings.is_interrupted():
            self.endpoint.stop_retries()
            raise RecoveryStoppedError("interrupted")


def endpoint_identity(endpoint: Endpoint, settings: RecoverySettings) -> Mapping[str, Any]:
    """Return an endpoint's identity, which may ask its server. Raises ``RecoverError``, ``KeyboardInterrupt``."""
    try:
        return QuerySession(endpoint, "", settings).identity()
    except RecoveryStoppedError:
        raise KeyboardInterrupt from None


class RecoveryStoppedError(Exception):
    """No further call is allowed; ``reason`` is ``max_calls`` or ``interrupted``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _CallBudget:
    """Counts claimed calls; threads may share it. ``max_calls`` None: no limit."""

    def __init__(self, max_calls: int | None) -> None:
        self._max_calls = max_calls
        self._claimed = 0
        self._lock = Lock()

    def claim(self) -> None:
        """Claim one call. Raises ``RecoveryStoppedError`` if no further one is allowed."""
        with self._lock:
            if self._max_calls is not None and self._claimed >= self._max_calls:
                raise RecoveryStoppedError("max_calls")
            self._claimed += 1

    def add_unclaimed_calls(self, call_count: int) -> None:
        """Correct the count: an answer took so many calls more (or fewer) than were claimed for it."""
        with self._lock:
            self._claimed += call_count
