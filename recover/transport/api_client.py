"""Requests to an API: time-outs, new tries, a limit of calls a second; keys that are shown nowhere."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

import httpx

from ..errors import RecoverError
from .http_response import ResponseTimeoutError, ask, read_json
from .redaction import Redaction

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_LONGEST_TEXT = 300
_LONGEST_WAIT = 600.0
_FOREVER = 1e6
"""Seconds; the system's clocks take no much larger ones."""


@dataclass(frozen=True)
class HttpOptions:
    """How an API is called.

    ``timeout``: seconds for one try, until its answer is whole. ``retries``: further tries after 429, 5xx, a
    time-out, a broken connection or a body that is no JSON. ``backoff``: seconds before the first of them, twice
    as many before each next one, up to ``longest``; an answer's own Retry-After comes before that, up to ten
    minutes. ``rate``: calls a second at most. ``key_env``: the environment variable that holds the key.
    ``told``: called with what is wrong, before each new try.
    """

    timeout: float = 60.0
    retries: int = 8
    backoff: float = 0.5
    longest: float = 30.0
    rate: float | None = None
    key_env: str | None = None
    told: Callable[[str], object] | None = None

    def check(self) -> None:
        """Raise ``RecoverError`` for what cannot be."""
        for name, value in (("timeout", self.timeout), ("rate", self.rate)):
            if value is not None and not 0 < value < float("inf"):
                raise RecoverError(f"{name}: {value} is not a number > 0")
        if self.retries < 0:
            raise RecoverError(f"retries: {self.retries} is not ≥ 0")


class ApiClient:
    """A client of one API. Threads may share it. Raises ``RecoverError``, whose text never holds the key."""

    def __init__(self, url: str, options: HttpOptions, transport: httpx.BaseTransport | None = None) -> None:
        options.check()
        self._options = options
        self._key = _key(options.key_env)
        parsed = _parsed(url)
        base = parsed.copy_with(raw_path=parsed.raw_path.partition(b"?")[0].rstrip(b"/") + b"/", fragment=None)
        self.shown = str(base.copy_with(username=None, password=None))
        self._redaction = Redaction(self._key, parsed)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx.Client(
            base_url=base,
            params=parsed.params,  # httpx would put the path behind them
            headers=headers,
            timeout=min(options.timeout, _FOREVER),
            transport=transport,
            limits=limits,
        )
        self._stopped = Event()
        self._lock = Lock()
        self._next = 0.0

    def __repr__(self) -> str:
        return f"ApiClient({self.shown!r})"

    def get(self, path: str) -> Any:
        """What the API answers, read as JSON."""
        return self._tried("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """What the API answers to a body, read as JSON."""
        return self._tried("POST", path, body)

    def start(self) -> None:
        """Try again, from now on."""
        self._stopped.clear()

    def stop(self) -> None:
        """Try nothing again from now on."""
        self._stopped.set()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _tried(self, verb: str, path: str, body: Mapping[str, Any] | None) -> Any:
        attempt = 0
        while True:
            self._wait_for_turn()
            found, problem, after = self._once(verb, path, body)
            if problem is None:
                return found
            said = self._told(problem)
            delay = self._delay(attempt, after)
            if attempt < self._options.retries and self._options.told is not None:
                waits = after is not None and delay > self._options.longest
                self._options.told(said + (f"; it asks to wait, {delay:,.0f} s are waited" if waits else ""))
            if attempt == self._options.retries or self._stopped.wait(delay):
                raise RecoverError(said + (f" (try {attempt + 1})" if attempt else ""))
            attempt += 1

    def _once(self, verb: str, path: str, body: Mapping[str, Any] | None) -> tuple[Any, str | None, float | None]:
        """One try: what came, or a problem that another try may solve, and how long the API asks to wait."""
        try:
            reply = ask(self._client, (verb, path.lstrip("/"), body), min(self._options.timeout, _FOREVER))
        except (ResponseTimeoutError, httpx.TimeoutException):
            return None, f"no answer within {self._options.timeout:g} s", None
        except httpx.TransportError as error:
            return None, f"no connection: {error}", None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise RecoverError(self._told(str(error))) from None
        if reply.status in _AGAIN:
            return None, reply.said, reply.retry_after
        if reply.status != httpx.codes.OK:
            failure = RecoverError(self._told(reply.said))
            failure.status = reply.status
            raise failure
        try:
            return read_json(reply.body), None, None
        except (ValueError, RecursionError):
            return None, f"the answer is no JSON: {reply.text}", None

    def _wait_for_turn(self) -> None:
        if self._options.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + 1 / self._options.rate
        self._stopped.wait(min(turn - now, _FOREVER))

    def _delay(self, attempt: int, after: float | None) -> float:
        if after is not None:
            return min(after, _LONGEST_WAIT)
        longest = min(self._options.longest, self._options.backoff * 2**attempt)
        return longest * random.uniform(0.5, 1)  # noqa: S311 - so that calls that failed together do not return together

    def _told(self, problem: str) -> str:
        """A problem in one line of fair length, without secrets."""
        flat = " ".join(self._redaction.of(problem).split())
        return f"{self.shown}: {flat if len(flat) <= _LONGEST_TEXT else flat[:_LONGEST_TEXT] + '…'}"


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise RecoverError(f"${name} is not set; it should hold the key of the API")
    if not key.isascii() or not key.isprintable():
        raise RecoverError(f"${name} holds characters that no key has")
    return key


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise RecoverError(f"the endpoint's URL is none: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise RecoverError("the endpoint's URL does not begin with http:// or https:// and a host")
    return parsed
