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
from .endpoints.base import Bias, Endpoint, EndpointAnswer, QuestionKind, checked_answer
from .errors import RecoverError
from .journal import STORED_REPETITIONS, QueryJournal, QuestionKey, answers_changed, refuse_change
from .request import RecoverySettings

_INTERRUPT_CHECK_SECONDS = 0.2
"""How often a waiting run looks whether it was interrupted: at once for a person, seldom for a processor."""


_T = TypeVar("_T")


class QuerySession:
    """Questions about one prompt.

    Attributes: ``sent``: calls of this run. ``queries``: calls behind all answers, those of the journal included.
    ``pieces``: bytes of tokens that the endpoint named.
    """

    def __init__(self, endpoint: Endpoint, prompt: str, settings: RecoverySettings) -> None:
        self.endpoint = endpoint
        self.sent = 0
        self.queries = 0
        self.pieces: dict[int, bytes] = {}
        self._prompt = prompt
        self._settings = settings
        self._journal: QueryJournal | None = None
        self._budget = _CallBudget(settings.max_calls)
        self._failure: BaseException | None = None
        self._is_confirmed = False
        self._lock = Lock()
        endpoint.allow_retries()

    def open_journal(self) -> None:
        """Open the checkpoint, if the settings name one. Raises ``RecoverError``, ``StopAskingError``."""
        path = self._settings.checkpoint
        if path is not None:
            run = {"endpoint": self.identity(), "prompt": self._prompt}
            self._journal = QueryJournal(path, run, self._settings.resume)

    def close(self) -> None:
        """Close the checkpoint."""
        if self._journal is not None:
            self._journal.close()

    def ask(
        self,
        biases: Iterable[Bias],
        repeats: int = 1,
        *,
        kind: QuestionKind = QuestionKind.NEXT_TOKEN,
        first_repetition: int = 0,
        drift_check: int = 0,
    ) -> Iterator[list[EndpointAnswer]]:
        """Yield the answers to each question, in order.

        Raises ``RecoverError`` as the endpoint does, and ``StopAskingError``; calls that were sent by then are
        counted and stored.

        Args:
            biases: one question each.
            repeats: how often each question is asked.
            kind: what is asked for; `QuestionKind.NEXT_TOKEN` if the endpoint has no other way.
            first_repetition: number of the first repetition.
            drift_check: number of the drift check that asks, from 1; 0: none.
        """
        if not self.endpoint.has_likeliest:
            kind = QuestionKind.NEXT_TOKEN
        numbers = range(first_repetition, first_repetition + repeats)
        pool = ThreadPoolExecutor(self._settings.in_flight)
        pending: deque[list[Future[EndpointAnswer]]] = deque()
        stopped: StopAskingError | None = None
        try:
            for bias in biases:
                keys = [QuestionKey.of(bias, kind, number, drift_check) for number in numbers]
                try:
                    pending.append([self._submit(pool, bias, key) for key in keys])
                except StopAskingError as stop:
                    stopped = stop
                    break
                if len(pending) > self._settings.in_flight:
                    yield [self._result(future) for future in pending.popleft()]
            while pending:
                yield [self._result(future) for future in pending.popleft()]
            if stopped is not None:
                raise stopped
        finally:
            pool.shutdown(wait=True, cancel_futures=stopped is None)

    def vocab_size(self) -> int:
        """Return the size of the vocabulary, for which the endpoint may ask its server. Raises as `ask` does."""
        return self._interruptibly(lambda: self.endpoint.vocab_size)

    def identity(self) -> Mapping[str, Any]:
        """Return the endpoint's identity, for which it may ask its server. Raises as `ask` does."""
        return self._interruptibly(lambda: dict(self.endpoint.identity))

    def prefer_whole_text(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return those of the tokens that are whole UTF-8 text, as far as is known, or all if none is.

        llama.cpp's server hides the logprobs when it draws a token that ends inside a character. Do not bias such
        a token upwards.
        """
        return [token for token in tokens if is_utf8(self.pieces.get(token, b""))] or tokens

    def _submit(self, pool: ThreadPoolExecutor, bias: Bias, key: QuestionKey) -> Future[EndpointAnswer]:
        """Take the answer from the journal, or claim a call and ask in a thread."""
        stored = self._journal.get(key) if self._journal is not None else None
        if stored is not None:
            done: Future[EndpointAnswer] = Future()
            with self._lock:
                done.set_result(self._counted(stored))
            return done
        self._check_interrupt()
        self._confirm(pool)
        self._budget.claim()
        return pool.submit(self._call, dict(bias), key.kind, key)

    def _call(self, bias: Bias, kind: QuestionKind, key: QuestionKey | None) -> EndpointAnswer:
        """Ask, for one claimed call, and store the answer under its key, if it has one."""
        if self._failure is not None:  # all calls fail with the first failure
            raise self._failure
        try:
            answer = self._answer(bias, kind)
            with self._lock:
                if self._journal is not None and key is not None:
                    self._journal.add(key, answer)
                return self._counted(answer)
        except StopAskingError:
            raise
        except BaseException as error:
            with self._lock:
                failure = self._failure = self._failure or error
            self.endpoint.stop_retries()  # which may be why this call failed
            raise failure from None

    def _answer(self, bias: Bias, kind: QuestionKind) -> EndpointAnswer:
        """Return the endpoint's answer. Its calls are counted even if it needs more than are allowed."""
        calls = 1

        def claim_call() -> None:
            nonlocal calls
            self._budget.claim()
            calls += 1

        try:
            raw = self.endpoint.answer(self._prompt, bias, kind, claim_call)
        except StopAskingError:
            with self._lock:
                self.sent += calls
                self.queries += calls
            raise
        except RecoverError as error:
            error.kept = bool(self._journal)
            raise
        answer = checked_answer(raw, self.endpoint)
        with self._lock:
            self._budget.correct(answer.calls - calls)
            self.sent += answer.calls
        return answer

    def _confirm(self, pool: ThreadPoolExecutor) -> None:
        """Before the first new question after a journal's: refuse an endpoint that answers differently now."""
        journal = self._journal
        if self._is_confirmed or journal is None or not journal.resumed:
            return
        self._is_confirmed = True
        kind = QuestionKind.NEXT_TOKEN
        if self.endpoint.has_likeliest and not self.endpoint.limits.window:
            kind = QuestionKind.LIKELIEST_TOKEN

        def ask_again(count: int) -> list[EndpointAnswer]:
            for _ in range(count):
                self._budget.claim()
            futures = [pool.submit(self._call, {}, kind, None) for _ in range(count)]
            return [self._result(future) for future in futures]

        keys = [QuestionKey.of({}, kind, repetition) for repetition in range(STORED_REPETITIONS)]
        stored = [answer for key in keys if (answer := journal.get(key)) is not None]
        refuse_change(journal.path, answers_changed(stored, ask_again, self.endpoint.limits.precision))

    def _counted(self, answer: EndpointAnswer) -> EndpointAnswer:
        self.queries += answer.calls
        self.pieces.update(answer.pieces)
        return answer

    def _result(self, future: Future[_T]) -> _T:
        """Wait for a result. Raises ``StopAskingError`` if the run is interrupted meanwhile."""
        while True:
            try:
                return future.result(timeout=_INTERRUPT_CHECK_SECONDS)
            except NotYetError:
                if future.done():  # the endpoint's own time-out
                    raise
                self._check_interrupt()

    def _interruptibly(self, function: Callable[[], _T]) -> _T:
        with ThreadPoolExecutor(1) as pool:
            return self._result(pool.submit(function))

    def _check_interrupt(self) -> None:
        """Raise ``StopAskingError`` if the run was interrupted; then the endpoint's retries end too."""
        if self._settings.interrupted is not None and self._settings.interrupted():
            self.endpoint.stop_retries()
            raise StopAskingError("interrupted")


def endpoint_identity(endpoint: Endpoint, settings: RecoverySettings) -> Mapping[str, Any]:
    """Return an endpoint's identity, which may ask its server. Raises ``RecoverError``, ``KeyboardInterrupt``."""
    try:
        return QuerySession(endpoint, "", settings).identity()
    except StopAskingError:
        raise KeyboardInterrupt from None


class StopAskingError(Exception):
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
        """Claim one call. Raises ``StopAskingError`` if no further one is allowed."""
        with self._lock:
            if self._max_calls is not None and self._claimed >= self._max_calls:
                raise StopAskingError("max_calls")
            self._claimed += 1

    def correct(self, difference: int) -> None:
        """Correct the count: an answer took so many calls more (or fewer) than were claimed for it."""
        with self._lock:
            self._claimed += difference
