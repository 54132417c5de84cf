"""A clock that stands still while nobody looks at the workers."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

_LONGEST_STEP_SECONDS = 2.0
"""More than lies between two looks of a driver that is not held up."""


class PollClock:
    """Seconds in which the driver looked at its workers.

    A driver that was suspended, or waited for a full pipe, has read no news meanwhile: no worker hangs for that.

    Args:
        time: the clock that it follows.
    """

    def __init__(self, time: Callable[[], float] = monotonic) -> None:
        self._time = time
        self._looked_at = time()
        self.now = 0.0

    def tick(self) -> None:
        """Go on: the driver looks now."""
        time = self._time()
        self.now += min(time - self._looked_at, _LONGEST_STEP_SECONDS)
        self._looked_at = time
