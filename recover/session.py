"""Queries about one prompt to one endpoint, within a budget of calls.

Calls run concurrently, no query is sent twice, and each response is saved before it is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as NotYetError
from threading import Lock
from typing import Any, TypeVar

from ..common.errors import Word
from ..common.text import is_utf8
from .endpoints.base import Bias, Endpoint, EndpointResponse, QueryKind, checked_response
from .errors import RecoverError
from .journal import QueryJournal, check_unchanged, query_key
from .request import RecoverySettings

# maximum number of saved responses without a bias: the first query is sent up to this many times
_MAX_STORED_REPETITIONS = 4
# Interval at which a waiting run checks for an interrupt: short for the user, long for the processor
_INTERRUPT_CHECK_SECONDS = 0.2


_T = TypeVar("_T")


class QuerySession:
    """A sender of queries about one prompt."""

    def __init__(self, endpoint: Endpoint, prompt: str, settings: RecoverySettings) -> None:
        self.endpoint = endpoint
        self.new_call_count = 0  # number of calls of this run
        # number of calls behind all responses, including those that the checkpoint holds
        self.total_call_count = 0
        self.token_bytes: dict[int, bytes] = {}  # token id -> bytes of the token, as far as responses showed them
        self._prompt = prompt
        self._settings = settings
        self._journal: QueryJournal | None = None
        self._claimed_call_count = 0  # number of calls that threads have claimed, at most ``max_calls``
        self._failure: BaseException | None = None
        self._is_resumed_endpoint_checked = False
        self._lock = Lock()
        endpoint.allow_retries()

    def open_journal(self) -> None:
        path = self._settings.checkpoint
        if path is not None:
            run_identity = {"endpoint": self.identity(), "prompt": self._prompt}
            self._journal = QueryJournal(path, run_identity, self._settings.resume)

    def close(self) -> None:
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
        """Yield the responses to each query, in the order of the queries."""
        # Raises ``RecoveryStoppedError``, and ``RecoverError`` as the endpoint does. Calls that were sent before
        # the exception are counted, and their responses are saved.
        if not self.endpoint.has_top_token_query:
            kind = QueryKind.NEXT_TOKEN
        repetitions = range(first_repetition, first_repetition + calls_per_query)
        pool = ThreadPoolExecutor(self._settings.max_concurrent_calls)
        pending_responses: deque[list[Future[EndpointResponse]]] = deque()
        early_stop: RecoveryStoppedError | None = None
        try:
            for bias in biases:
                keys = [query_key(bias, kind, repetition, drift_check) for repetition in repetitions]
                try:
                    pending_responses.append([self._submit(pool, bias, kind, key) for key in keys])
                except RecoveryStoppedError as stop:
                    early_stop = stop
                    break
                if len(pending_responses) > self._settings.max_concurrent_calls:
                    yield [self._wait_for_result(future) for future in pending_responses.popleft()]
            while pending_responses:
                yield [self._wait_for_result(future) for future in pending_responses.popleft()]
            if early_stop is not None:
                raise early_stop
        finally:
            pool.shutdown(wait=True, cancel_futures=early_stop is None)

    def vocab_size(self) -> int:
        """Return the size of the vocabulary, which may ask the server. Raises the exceptions of `send_queries`."""
        return self._run_interruptibly(lambda: self.endpoint.vocab_size)

    def identity(self) -> Mapping[str, Any]:
        """Return the endpoint's identity, which may ask the server. Raises the exceptions of `send_queries`."""
        return self._run_interruptibly(lambda: dict(self.endpoint.identity))

    def prefer_complete_utf8(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens whose bytes are complete UTF-8 or unknown; return all tokens if there are none."""
        # Only such a token should get a positive bias: llama.cpp's server hides the logprobs if it draws a token
        # that ends inside a character.
        return [token for token in tokens if is_utf8(self.token_bytes.get(token, b""))] or tokens

    def _submit(self, pool: ThreadPoolExecutor, bias: Bias, kind: QueryKind, key: str) -> Future[EndpointResponse]:
        """Return the saved response; if there is none, claim a call and query the endpoint in a thread."""
        stored_response = self._journal.get(key) if self._journal is not None else None
        if stored_response is not None:
            finished_future: Future[EndpointResponse] = Future()
            with self._lock:
                finished_future.set_result(self._count_calls(stored_response))
            return finished_future
        self._check_interrupt()
        self._check_resumed_endpoint(pool)
        self._claim_call()
        return pool.submit(self._query, dict(bias), kind, key)

    def _claim_call(self) -> None:
        with self._lock:
            max_calls = self._settings.max_calls
            if max_calls is not None and self._claimed_call_count >= max_calls:
                raise RecoveryStoppedError("max_calls")
            self._claimed_call_count += 1

    def _query(self, bias: Bias, kind: QueryKind, key: str | None) -> EndpointResponse:
        """Query the endpoint, for one claimed call, and save the response if it has a key."""
        if self._failure is not None:  # after one failure, all other calls fail with the same error
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
            self.endpoint.stop_retries()  # other calls may be waiting for a retry
            raise failure from None

    def _get_response(self, bias: Bias, kind: QueryKind) -> EndpointResponse:
        """Return the endpoint's response. Its calls are counted even if they exceed the budget."""
        call_count = 1

        def claim_call() -> None:
            nonlocal call_count
            self._claim_call()
            call_count += 1

        try:
            raw_response = self.endpoint.answer(self._prompt, bias, kind, claim_call)
        except RecoveryStoppedError:
            with self._lock:
                self.new_call_count += call_count
                self.total_call_count += call_count
            raise
        except RecoverError as error:
            if self._journal and not self._settings.resume:
                error.advice = ("the responses are saved, continue with ", Word.RESUME)
            raise
        response = checked_response(raw_response, self.endpoint)
        with self._lock:
            self._claimed_call_count += response.calls - call_count
            self.new_call_count += response.calls
        return response

    def _check_resumed_endpoint(self, pool: ThreadPoolExecutor) -> None:
        """Before the first new query of a resumed run, repeat a saved one."""
        # Raises ``RecoverError`` if it has changed.
        journal = self._journal
        if self._is_resumed_endpoint_checked or journal is None or not journal.restored_response_count:
            return
        self._is_resumed_endpoint_checked = True
        kind = QueryKind.NEXT_TOKEN
        if self.endpoint.has_top_token_query and not self.endpoint.limits.window:
            kind = QueryKind.TOP_TOKEN

        def query_again(count: int) -> list[EndpointResponse]:
            for _ in range(count):
                self._claim_call()
            futures = [pool.submit(self._query, {}, kind, None) for _ in range(count)]
            return [self._wait_for_result(future) for future in futures]

        keys = [query_key({}, kind, repetition) for repetition in range(_MAX_STORED_REPETITIONS)]
        stored_responses = [response for key in keys if (response := journal.get(key)) is not None]
        check_unchanged(journal.path, stored_responses, query_again, self.endpoint.limits.relative_error)

    def _count_calls(self, response: EndpointResponse) -> EndpointResponse:
        """Add the calls of a response to the total, and keep its token bytes; return the response."""
        self.total_call_count += response.calls
        self.token_bytes.update(response.token_bytes)
        return response

    def _wait_for_result(self, future: Future[_T]) -> _T:
        """Wait for a result. Raises ``RecoveryStoppedError`` if the run is interrupted while it waits."""
        while True:
            try:
                return future.result(timeout=_INTERRUPT_CHECK_SECONDS)
            except NotYetError:
                if future.done():  # the endpoint raised the exception, not this wait
                    raise
                self._check_interrupt()

    def _run_interruptibly(self, function: Callable[[], _T]) -> _T:
        with ThreadPoolExecutor(1) as pool:
            return self._wait_for_result(pool.submit(function))

    def _check_interrupt(self) -> None:
        """If the run was interrupted, stop the retries of the endpoint and raise ``RecoveryStoppedError``."""
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
    """No more calls are allowed: the reason is ``max_calls`` or ``interrupted``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason  # ``max_calls`` or ``interrupted``
