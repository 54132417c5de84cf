"""How many calls a run may make, and why it stops asking."""

from __future__ import annotations

from threading import Lock


class StopAskingError(Exception):
    """No further call is allowed; ``reason`` is ``max_calls`` or ``interrupted``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CallBudget:
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
