"""One line per request for the person who runs the server, and the faults of the program.

Keys are never logged. Prompts are logged only with ``--log-prompts``, and so are the messages of unexpected
exceptions, because these may quote a prompt.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from queue import Full, Queue
from threading import Thread
from typing import Any

from starlette.types import Scope

from ..engine.paths import PathsRead
from ..logprobs.events import Start, Token

_SCOPE_KEY = "gen.record"
_MAX_LOGGED_PATH = 200
_MAX_FRAMES = 6
_MAX_WAITING_LINES = 10_000
# Number of different notes that are written. Later ones are lost, because requests could cause any number.
_MAX_NOTES = 1_000
# The status of a request whose client has left before the answer, as nginx logs it.
CLIENT_LEFT = 499


@dataclass
class RequestRecord:
    """The facts about one request, completed while it is answered."""

    method: str
    # The path that the client sent, without the query.
    path: str
    # The documented path of the route; empty for an unknown path.
    route: str = ""
    # The time at the beginning, in seconds since 1970.
    began: float = field(default_factory=time.time)
    # The name of the request in messages about faults.
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    # The HTTP status. `CLIENT_LEFT` if there was no response; if an error ended a stream, the status of the error.
    status: int = CLIENT_LEFT
    prompt_tokens: int = 0
    # Number of prompt tokens that did not have to be read again.
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float | None = None
    # The time from the beginning to the end of the response.
    seconds: float = 0.0
    ignored: Sequence[str] = ()
    # The prompts; empty unless prompts are logged.
    prompts: Sequence[Any] = ()
    # The exception that ended the request, if it is a fault of this program.
    fault: Exception | None = None
    _start: float = field(default_factory=time.perf_counter, repr=False)

    def push(self, event: object) -> None:
        """Count an event of one of the choices or prompts."""
        if isinstance(event, (Start, PathsRead)):
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens
        elif isinstance(event, Token):
            self.completion_tokens += 1
            if self.first_token_seconds is None:
                self.first_token_seconds = time.perf_counter() - self._start

    def end(self) -> None:
        """Stop the clock."""
        self.seconds = time.perf_counter() - self._start

    def as_json(self) -> dict[str, Any]:
        first_token_ms = None
        if self.first_token_seconds is not None:
            first_token_ms = round(self.first_token_seconds * 1000, 1)
        facts: dict[str, Any] = {
            "time": datetime.fromtimestamp(self.began).astimezone().isoformat(timespec="milliseconds"),
            "id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "first_token_ms": first_token_ms,
            "total_ms": round(self.seconds * 1000, 1),
            "ignored": list(self.ignored),
        }
        if self.prompts:
            facts["prompts"] = list(self.prompts)
        return facts

    def as_text(self) -> str:
        """Return the facts as one line of text."""
        facts = self.as_json()
        time_of_day = facts["time"][11:23]  # "12:34:56.789" of "2025-01-31T12:34:56.789+01:00"
        words = [time_of_day, self.method, self.path, str(self.status)]
        if self.prompt_tokens:
            words.append(f"{self.prompt_tokens}+{self.completion_tokens} tokens")
        if self.first_token_seconds is not None:
            words.append(f"first {facts['first_token_ms']:.0f} ms,")
        words.append(f"total {facts['total_ms']:.0f} ms")
        if self.ignored:
            words.append(f"ignored: {', '.join(self.ignored)}")
        if self.prompts:
            words.append(f"prompts: {json.dumps(list(self.prompts))}")
        return " ".join(words)


def start_record(scope: Scope) -> RequestRecord:
    """Return the record of a request that begins now. `record_of` finds the record."""
    record = RequestRecord(scope["method"], scope["path"][:_MAX_LOGGED_PATH])
    scope[_SCOPE_KEY] = record
    return record


def record_of(scope: Scope) -> RequestRecord:
    """Return the record of a request; a new one if requests are not recorded."""
    record = scope.get(_SCOPE_KEY)
    return record if isinstance(record, RequestRecord) else RequestRecord("", "")


@dataclass
class RequestLog:
    """A log of requests, written by a thread. If the lines are not read, later lines are lost."""

    # Monitors ask for the server's health all the time. A request that repeats the last answer is not written.

    # `text`, `json` or `none`.
    format: str = "none"
    # Whether prompts, and the messages of unexpected exceptions, are written.
    has_prompts: bool = False
    write: Callable[[str], object] = lambda line: sys.stderr.write(f"{line}\n")
    _last_health: tuple[str, int] | None = field(default=None, repr=False)
    _notes: set[str] = field(default_factory=set, repr=False)
    _lines: Queue[str] = field(default_factory=lambda: Queue(_MAX_WAITING_LINES), repr=False)
    _writer: Thread | None = field(default=None, repr=False)

    def __call__(self, record: RequestRecord) -> None:
        """Write the line of a request that has ended."""
        if record.fault is not None:
            self._write_fault(record, record.fault)
        if self.format != "none" and not self._is_same_health(record):
            self._write(record.as_json(), record.as_text())

    def _is_same_health(self, record: RequestRecord) -> bool:
        """Return whether a record repeats the last one about the server's health."""
        if record.route not in ("/health", "/v1/health"):
            return False
        health = (record.route, record.status)
        is_same = health == self._last_health
        self._last_health = health
        return is_same

    def note(self, sentence: str) -> None:
        """Write a note about the model or a preset, once. Any thread may call this."""
        if sentence not in self._notes and len(self._notes) < _MAX_NOTES:
            self._notes.add(sentence)
            self._write({"note": sentence}, f"gen: note: {sentence}")

    def _write_fault(self, record: RequestRecord, fault: Exception) -> None:
        """Write the place of an unexpected exception."""
        frames = "".join(traceback.format_tb(fault.__traceback__, -_MAX_FRAMES))
        message = f": {fault}" if self.has_prompts else ""
        text = f"request {record.id} failed: {type(fault).__name__}{message}\n{frames}".rstrip()
        self._write({"time": record.as_json()["time"], "id": record.id, "fault": text}, *text.splitlines())

    def _write(self, facts: dict[str, Any], *lines: str) -> None:
        """Write one entry: ``facts`` as JSON, or ``lines``, which tell the same as text."""
        if self._writer is None:
            self._writer = Thread(target=self._write_lines, name="request log", daemon=True)
            self._writer.start()
        # Both forms escape control characters: a log is read on terminals, which they could command.
        entry = json.dumps(facts) if self.format == "json" else "\n".join(map(printable, lines))
        with suppress(Full):
            self._lines.put_nowait(entry)

    def _write_lines(self) -> None:
        while True:
            self.write(self._lines.get())
            self._lines.task_done()

    def flush(self, seconds: float) -> None:
        """Wait until all lines are written, but not longer than ``seconds``."""
        end = time.monotonic() + seconds
        while self._lines.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.01)


def printable(text: str) -> str:
    """Return a text in which control characters, which could command a terminal or fake a line, are escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
