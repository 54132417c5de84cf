"""Endpoints over HTTP: timeouts, retries, and a limit of calls per second. No message contains a secret."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isnan
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import quote

import httpx

from ...common.errors import Word
from ...common.strict_json import parse_strict_json
from ...common.text import replace_surrogates, without_error_number
from ..errors import RecoverError, require_at_least, require_positive
from .base import Endpoint


class HttpEndpoint(Endpoint):
    """An endpoint whose `ApiClient` handles timeouts, retries and the removal of secrets from messages."""

    def __init__(self, url: str, options: HttpOptions, transport: httpx.BaseTransport | None = None) -> None:
        self._http = ApiClient(url, options, transport)

    def allow_retries(self) -> None:
        self._http.allow_retries()

    def stop_retries(self) -> None:
        self._http.stop_retries()

    def close(self) -> None:
        self._http.close()


@dataclass(frozen=True)
class HttpOptions:
    """Options of the HTTP calls to an API.

    Args:
        timeout_seconds: maximum time for one try, until its response is complete, seconds.
        max_retries: maximum number of retries after status 429 or 5xx, a timeout, a broken connection or a
            body that is not JSON.
        first_retry_wait_seconds: wait before the first retry, seconds; doubled for each later one.
        max_retry_wait_seconds: longest wait between tries, seconds. The Retry-After of a response takes
            precedence, up to ten minutes.
        max_calls_per_second: maximum number of calls per second; None: no limit.
        key_env: name of the environment variable that holds the key; None: no key.
        on_retry: called before the wait for each retry; None: not called.
        should_wait_for_server: whether to retry if no connection is possible before the first response,
            because the server may still be starting.
    """

    timeout_seconds: float = 60.0
    max_retries: int = 8
    first_retry_wait_seconds: float = 0.5
    max_retry_wait_seconds: float = 30.0
    max_calls_per_second: float | None = None
    key_env: str | None = None
    on_retry: Callable[[Retry], object] | None = None
    should_wait_for_server: bool = True

    def check(self) -> None:
        """Raise ``RecoverError`` for a value out of range."""
        require_positive(timeout_seconds=self.timeout_seconds, max_calls_per_second=self.max_calls_per_second)
        require_at_least(0, max_retries=self.max_retries)


@dataclass(frozen=True)
class Retry:
    """A failed call that is repeated after a wait.

    Attributes:
        problem: the error of the failed call.
        wait_seconds: wait before the next try, seconds.
        attempt_number: number of the next try, counted from 1; 2 for the first retry.
        max_attempts: maximum number of tries.
    """

    problem: str
    wait_seconds: float
    attempt_number: int
    max_attempts: int


# Timeouts, conflicts, rate limits and server errors; 520 to 529 are used by Cloudflare and by overloaded models
_RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_MAX_MESSAGE_CHARACTERS = 300  # maximum length of a quoted error, because an API may return a complete page
_MAX_RETRY_AFTER_SECONDS = 600.0  # a longer wait that a server asks for is shortened to this: ten minutes
_MAX_TIMEOUT_SECONDS = 1e6  # the clocks of the system do not support much longer timeouts
# Maximum number of idle connections that stay open. Concurrent calls have no such limit.
_MAX_IDLE_CONNECTIONS = 64


class ApiClient:
    """A client of one API. Threads may share it. Raises ``RecoverError``, whose message never contains the key."""

    def __init__(self, url: str, options: HttpOptions, transport: httpx.BaseTransport | None = None) -> None:
        options.check()
        self._options = options
        key = _read_api_key(options.key_env)
        parsed_url = _parse_url(url)
        path, _, _ = parsed_url.raw_path.partition(b"?")
        base_url = parsed_url.copy_with(raw_path=path.rstrip(b"/") + b"/", fragment=None)
        self.shown_url = str(base_url.copy_with(username=None, password=None))  # the address without secrets
        self._secrets = _secret_pattern(key, parsed_url)
        self._timeout_seconds = min(options.timeout_seconds, _MAX_TIMEOUT_SECONDS)
        self._client = httpx.Client(
            base_url=base_url,
            params=parsed_url.params,  # in the base URL, httpx would append the path to the parameters
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=self._timeout_seconds,
            transport=transport,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_MAX_IDLE_CONNECTIONS),
        )
        self._are_retries_stopped = Event()
        self._has_responded = False
        self._lock = Lock()
        self._next_call_time = 0.0

    def get(self, path: str) -> Any:
        return self._send_with_retries("GET", path)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._send_with_retries("POST", path, body)

    @contextmanager
    def expect_format(self, api_name: str, advice: str = "") -> Iterator[None]:
        """Turn exceptions of the block, which indexes a response, into a ``RecoverError``."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            problem = f"{self.shown_url}: the response does not have the format of {api_name}"
            raise RecoverError(problem, advice=advice) from None

    def allow_retries(self) -> None:
        self._are_retries_stopped.clear()

    def stop_retries(self) -> None:
        """Make failed requests raise immediately from now on, even during a wait for a retry."""
        self._are_retries_stopped.set()

    def close(self) -> None:
        self._client.close()

    def _send_with_retries(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        options = self._options
        retry_count = 0
        while True:
            self._wait_for_rate_limit()
            try:
                return self._send(verb, path.lstrip("/"), body)
            except _TemporaryError as error:
                message = self._safe_message(str(error))
                retry_after = error.retry_after
            if retry_count == options.max_retries:
                break
            wait_seconds = self._retry_wait_seconds(retry_count, retry_after)
            if options.on_retry is not None:
                asks_to_wait = retry_after is not None and wait_seconds > options.max_retry_wait_seconds
                retry = Retry(
                    problem=f"{message}; the server asks to wait" if asks_to_wait else message,
                    wait_seconds=wait_seconds,
                    attempt_number=retry_count + 2,  # the first attempt is no retry
                    max_attempts=options.max_retries + 1,
                )
                options.on_retry(retry)
            if self._are_retries_stopped.wait(wait_seconds):
                break
            retry_count += 1
        raise RecoverError(f"{message} (try {retry_count + 1})" if retry_count else message)

    def _send(self, verb: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """Send a request once; return the response's JSON value. Raises ``_TemporaryError``, ``RecoverError``."""
        try:
            response, content = self._read_response(verb, path, body)
        except (TimeoutError, httpx.TimeoutException):
            raise _TemporaryError(f"no response within {self._options.timeout_seconds:g} s") from None
        except httpx.TransportError as error:
            problem = f"no connection: {without_error_number(str(error))}"
            is_unreachable = isinstance(error, httpx.ConnectError) and not self._has_responded
            if is_unreachable and not self._options.should_wait_for_server:
                advice = ("use ", Word.WAIT_FOR_SERVER, " if the server is still starting")
                raise RecoverError(self._safe_message(problem), advice=advice) from None
            raise _TemporaryError(problem) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise RecoverError(self._safe_message(str(error))) from None
        self._has_responded = True
        if response.status_code in _RETRIED_STATUS:
            raise _TemporaryError(response_summary(response, content), _retry_after(response))
        if response.status_code != httpx.codes.OK:
            failure = RecoverError(self._safe_message(response_summary(response, content)))
            failure.status = response.status_code
            raise failure
        try:
            return parse_strict_json(content)
        except (ValueError, RecursionError):
            text = content.decode("utf-8", "replace")
            raise _TemporaryError(f"the response is not JSON: {text}") from None

    def _read_response(self, verb: str, path: str, body: Mapping[str, Any] | None) -> tuple[httpx.Response, bytes]:
        """Return a response and its complete body. Raises ``TimeoutError``, and the exceptions of httpx."""
        # The timeouts of httpx apply to each read. A server that sends byte by byte never exceeds them. So another
        # thread reads, and it is abandoned at the deadline.
        deadline = time.monotonic() + self._timeout_seconds
        future: Future[tuple[httpx.Response, bytes]] = Future()

        def read() -> None:
            parts = []
            try:
                with self._client.stream(verb, path, json=body) as response:
                    for part in response.iter_bytes():
                        parts.append(part)
                        if time.monotonic() > deadline:  # nobody waits for the response any more
                            raise TimeoutError
                future.set_result((response, b"".join(parts)))
            except BaseException as error:
                future.set_exception(error)

        Thread(target=read, daemon=True).start()
        return future.result(self._timeout_seconds)

    def _wait_for_rate_limit(self) -> None:
        if self._options.max_calls_per_second is None:
            return
        with self._lock:
            now = time.monotonic()
            start_time = max(now, self._next_call_time)
            self._next_call_time = start_time + 1 / self._options.max_calls_per_second
        self._are_retries_stopped.wait(min(start_time - now, _MAX_TIMEOUT_SECONDS))

    def _retry_wait_seconds(self, retry_count: int, retry_after: float | None) -> float:
        """Return the wait before the next try, seconds."""
        if retry_after is not None:
            return min(retry_after, _MAX_RETRY_AFTER_SECONDS)
        max_retry_wait_seconds = min(
            self._options.max_retry_wait_seconds, self._options.first_retry_wait_seconds * 2**retry_count
        )
        return max_retry_wait_seconds * random.uniform(0.5, 1)  # noqa: S311 - spreads the retries of concurrent calls

    def _safe_message(self, problem: str) -> str:
        """Return an error as one printable line without secrets, shortened."""
        text = replace_surrogates(problem)
        if self._secrets is not None:  # before the text is shortened, because a part of a secret is not found
            text = self._secrets.sub("***", text)
        line = " ".join(text.split())
        if len(line) > _MAX_MESSAGE_CHARACTERS:
            line = f"{line[:_MAX_MESSAGE_CHARACTERS]}…"
        return f"{self.shown_url}: {line}"


class _TemporaryError(Exception):
    """An error that a retry may resolve."""

    def __init__(self, problem: str, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after = retry_after  # wait that the API asks for, seconds; None if it does not


def _read_api_key(variable_name: str | None) -> str | None:
    if variable_name is None:
        return None
    key = os.environ.get(variable_name, "").strip()
    if not key:
        raise RecoverError(f"${variable_name} is not set; set it to the key of the API")
    if not key.isascii() or not key.isprintable():
        raise RecoverError(f"${variable_name} contains characters that a key cannot have")
    return key


def _parse_url(url: str) -> httpx.URL:
    try:
        parsed_url = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise RecoverError(f"the endpoint's URL is not valid: {error}") from None
    if parsed_url.scheme not in ("http", "https") or not parsed_url.host:
        raise RecoverError("the endpoint's URL must begin with http:// or https:// and a host")
    return parsed_url


def response_summary(response: httpx.Response, content: bytes) -> str:
    """Return the status and the error message of a response, or the target of a redirect."""
    status = f"{response.status_code} {response.reason_phrase}"
    target = response.headers.get("location")
    if response.is_redirect and target:
        return f"{status}: redirects to {target.partition('?')[0]}; use that URL"
    text = content.decode("utf-8", "replace")
    try:
        message = _error_message(json.loads(content)) or text
    except (ValueError, RecursionError):
        message = text
    is_empty = not message.strip(" {}\n")  # a text such as {} says nothing
    return status if is_empty else f"{status}: {message}"


def _error_message(body: Any) -> str:
    """Return the message in the body of an error, from any of the places where APIs put it; empty if none."""
    # such as {"error": {"message": …}}, {"error": …} or {"message": …}
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message") if isinstance(error, dict) else error
    return str(message) if message else ""


def _retry_after(response: httpx.Response) -> float | None:
    """Return the wait that the API asks for, as a number or a date, in seconds; None if it does not ask."""
    header_text = response.headers.get("retry-after", "")
    try:
        seconds = float(header_text)
    except ValueError:
        seconds = _seconds_until(header_text)
    return None if isnan(seconds) else max(0.0, seconds)


def _seconds_until(text: str) -> float:
    """Return the seconds until an HTTP date; NaN if the text is not a date."""
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
    return (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


_SECRET_PARAMETER = re.compile(r"key|token|secret|sig|pass|code|auth", re.IGNORECASE)
_MIN_SECRET_CHARACTERS = 6  # a shorter secret may be part of a common word, so only complete words are replaced


def _secret_pattern(key: str | None, url: httpx.URL) -> re.Pattern[str] | None:
    """Return a pattern of the secrets, including their forms in URLs and in basic authentication; None if none."""
    secrets = [key, url.username, url.password]
    if url.userinfo:
        secrets.append(base64.b64encode(f"{url.username}:{url.password}".encode()).decode())
    secrets += [value for name, value in url.params.multi_items() if _SECRET_PARAMETER.search(name)]
    spellings: set[str] = set()
    for secret in secrets:
        if secret:
            spellings.update((secret, quote(secret, safe=""), quote(secret)))
    if not spellings:
        return None
    longest_first = sorted(spellings, key=len, reverse=True)  # a longer secret may contain a shorter one
    return re.compile("|".join(_pattern_of(secret) for secret in longest_first))


def _pattern_of(secret: str) -> str:
    escaped = re.escape(secret)
    return escaped if len(secret) >= _MIN_SECRET_CHARACTERS else rf"(?<!\w){escaped}(?!\w)"
