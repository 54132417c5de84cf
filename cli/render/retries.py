"""Calls of an API that are repeated: a note on each new problem, and the seconds until the next try."""

from __future__ import annotations

import time
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING

from ..errors import note

if TYPE_CHECKING:
    from ...recover.endpoints.http import Retry


class RetryDisplay:
    """What a person sees of retries. Threads may share it."""

    def __init__(self) -> None:
        self._last_problem: str | None = None
        self._next_tries: dict[float, Retry] = {}
        """The retries that are waited for, by the time when they begin."""
        self._lock = Lock()

    def show(self, retry: Retry) -> None:
        """Print a note, once as long as the same problem lasts, and count down from now on."""
        with self._lock:
            self._next_tries[time.monotonic() + retry.seconds] = retry
            is_new = retry.problem != self._last_problem
            self._last_problem = retry.problem
        if is_new:
            note(f"{retry.problem}; trying again in {_seconds(retry.seconds)}, {_count(retry)}")

    def countdown(self) -> str:
        """Which try comes next, and in how many seconds; empty if none is waited for."""
        now = time.monotonic()
        with self._lock:
            self._next_tries = {begin: retry for begin, retry in self._next_tries.items() if begin > now}
            if not self._next_tries:
                return ""
            begin = min(self._next_tries)
            return f"Again in {_seconds(begin - now)}, {_count(self._next_tries[begin])}"


RETRIES = RetryDisplay()
"""Those of this process, which runs one command."""


def _seconds(seconds: float) -> str:
    return f"{ceil(seconds):,} s"


def _count(retry: Retry) -> str:
    return f"try {retry.attempt:,} of {retry.attempts:,}"
