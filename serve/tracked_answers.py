"""Answers that other requests can find by a key: to read their text so far, or to end them early."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from ..logprobs.events import Done, Start, Token
from .engine_thread import EventStream, StreamEvent

# Number of ended answers that are kept, because clients read their last text or logprobs afterwards.
_MAX_ENDED_ANSWERS = 16


class TrackedAnswer:
    """The first text of an answer, as far as it is written. ``key`` identifies the client or its request."""

    def __init__(self, key: Hashable, stream: EventStream) -> None:
        self.key = key
        self.stream = stream
        # None while the prompt is read.
        self.start: Start | None = None
        self.tokens: list[Token] = []
        # None while the text is written, or if the client has left.
        self.done: Done | None = None

    def add(self, index: int, events: Sequence[StreamEvent]) -> None:
        if index != 0:  # another text of the same answer
            return
        for event in events:
            if isinstance(event, Start):
                self.start = event
            elif isinstance(event, Token):
                self.tokens.append(event)
            elif isinstance(event, Done):
                self.done = event

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(token.text for token in self.tokens) if self.done is None else self.done.complete_text

    @property
    def is_running(self) -> bool:
        """True if the answer is not complete, and its client has not left."""
        return bool(self.stream.ids)


class AnswerTracker:
    """The answers that run, and the last ones that have ended. Only the thread of the event loop may use it."""

    def __init__(self) -> None:
        self._answers: list[TrackedAnswer] = []
        # The number of answers since the start of the server.
        self.total = 0
        self.started = time.monotonic()
        self.last_used = self.started

    def track(self, key: Hashable, stream: EventStream) -> None:
        """Record the events of an answer from now on."""
        answer = TrackedAnswer(key, stream)
        stream.listener = answer.add
        self._forget_oldest(_MAX_ENDED_ANSWERS - 1)  # when the new answer has ended, there is one more
        self._answers.append(answer)
        self.total += 1
        self.last_used = time.monotonic()

    def _forget_oldest(self, kept_count: int) -> None:
        """Remove the oldest answers that have ended, except the last ``kept_count``."""
        ended = [answer for answer in self._answers if not answer.is_running]
        excess = max(0, len(ended) - kept_count)
        for answer in ended[:excess]:
            self._answers.remove(answer)

    def running(self, key: Hashable) -> list[TrackedAnswer]:
        """Return the answers with this key that run."""
        return [answer for answer in self._answers if answer.key == key and answer.is_running]

    def latest(self, key: Hashable) -> TrackedAnswer | None:
        """Return the last answer with this key; None if there is none any more."""
        return next((answer for answer in reversed(self._answers) if answer.key == key), None)

    def last_ended(self) -> TrackedAnswer | None:
        """Return the last answer that is complete; None if there is none."""
        return next((answer for answer in reversed(self._answers) if answer.done is not None), None)
