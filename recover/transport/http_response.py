"""One HTTP request with one deadline, and what its response says in words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isnan
from threading import Thread
from typing import TypeVar

import httpx

T = TypeVar("T")


class ResponseTimeoutError(Exception):
    """The response was not complete in time."""


@dataclass(frozen=True)
class HttpRequest:
    """A request: the verb, the path below the base URL, and the body that is sent as JSON (None: no body)."""

    verb: str
    path: str
    body: Mapping[str, object] | None = None


@dataclass(frozen=True)
class HttpResponse:
    """A complete response: status and reason, headers, body."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as UTF-8, with U+FFFD for other bytes."""
        return self.body.decode("utf-8", "replace")

    @property
    def summary(self) -> str:
        """Status and error message, wherever the API puts it; for a redirect, its target."""
        target = self.headers.get("location")
        if 300 <= self.status < 400 and target:
            return f"{self.status} {self.reason}: it sends to {target.partition('?')[0]}; give that URL"
        try:
            body = json.loads(self.body)
            error = body.get("error", body) if isinstance(body, dict) else body
            text = (error.get("message") if isinstance(error, dict) else error) or self.text
        except (ValueError, RecursionError):
            text = self.text
        is_empty = not str(text).strip(" {}\n")
        return f"{self.status} {self.reason}" + ("" if is_empty else f": {text}")

    @property
    def retry_after(self) -> float | None:
        """Seconds that the API asks to wait, as a number or a date; None if it does not ask."""
        text = self.headers.get("retry-after", "")
        try:
            seconds = float(text)
        except ValueError:
            seconds = _seconds_until(text)
        return None if isnan(seconds) else max(0.0, seconds)


def send_request(client: httpx.Client, request: HttpRequest, seconds: float) -> HttpResponse:
    """Send a request and read the complete response within ``seconds``.

    httpx's own time-outs apply to each read, and a server that sends byte by byte exceeds none of them. Raises
    ``ResponseTimeoutError``, and what httpx raises.
    """
    deadline = time.monotonic() + seconds

    def send() -> HttpResponse:
        with client.stream(request.verb, request.path, json=request.body) as response:
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > deadline:  # nobody waits for it any more
                    raise ResponseTimeoutError
            return HttpResponse(response.status_code, response.reason_phrase, response.headers, b"".join(parts))

    return _within(seconds, send)


def _within(seconds: float, function: Callable[[], T]) -> T:
    """Return what ``function`` returns. If it takes longer, its thread goes on and its result is dropped."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except NotYetError:
        if future.done():
            raise
        raise ResponseTimeoutError from None


def _seconds_until(text: str) -> float:
    """Return the seconds until an HTTP date; NaN if the text is none."""
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
    return (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
