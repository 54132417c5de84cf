"""One request over HTTP, whole within a time, and what its answer says in words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from math import isnan
from threading import Thread
from typing import Any, TypeVar

import httpx

T = TypeVar("T")


class ResponseTimeoutError(Exception):
    """The answer was not whole in time."""


@dataclass(frozen=True)
class HttpResponse:
    """An answer: status and reason, headers, and the whole body."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body, as far as it is UTF-8."""
        return self.body.decode("utf-8", "replace")

    @property
    def said(self) -> str:
        """Status and message, wherever the API puts it; of a redirect, where to."""
        where = self.headers.get("location")
        if 300 <= self.status < 400 and where:
            return f"{self.status} {self.reason}: it sends to {where.partition('?')[0]}; give that URL"
        try:
            body = json.loads(self.body)
            error = body.get("error", body) if isinstance(body, dict) else body
            text = error.get("message") if isinstance(error, dict) else error
        except (ValueError, RecursionError):
            text = self.text
        return f"{self.status} {self.reason}: {text}"

    @property
    def retry_after(self) -> float | None:
        """The seconds for which the API asks to wait, also where it names a date."""
        text = self.headers.get("retry-after", "")
        try:
            seconds = float(text)
        except ValueError:
            seconds = _until(text)
        return None if isnan(seconds) else max(0.0, seconds)


def ask(client: httpx.Client, request: tuple[str, str, object], seconds: float) -> HttpResponse:
    """Send a request (verb, path, body for JSON or None) and read all of its answer.

    ``seconds`` are for all of it: httpx's own time-outs are for each read, and a server that drips meets none.
    Raises ``ResponseTimeoutError``, and what httpx raises.
    """
    ends = time.monotonic() + seconds
    verb, path, body = request

    def work() -> HttpResponse:
        with client.stream(verb, path, json=body) as answer:
            parts = []
            for part in answer.iter_bytes():
                parts.append(part)
                if time.monotonic() > ends:  # nobody waits for it any more
                    raise ResponseTimeoutError
            return HttpResponse(answer.status_code, answer.reason_phrase, answer.headers, b"".join(parts))

    return _within(seconds, work)


def _within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` returns; it goes on in a thread of its own where that takes longer, and ends there."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except NotYetError:
        if future.done():
            raise
        raise ResponseTimeoutError from None


def _until(text: str) -> float:
    """Seconds until a date of HTTP; NaN if it is none."""
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return float("nan")
    return (date.replace(tzinfo=date.tzinfo or timezone.utc) - datetime.now(timezone.utc)).total_seconds()


def read_json(body: bytes) -> Any:
    """Strict JSON. Raises ``ValueError``, ``RecursionError``."""
    return json.loads(body, parse_constant=_no_number)


def _no_number(name: str) -> float:
    raise ValueError(f"there is no number {name}")
