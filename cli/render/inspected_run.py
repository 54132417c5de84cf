"""A recorded run, as far as it was read, and what is shown of each token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...logprobs.recorded import RecordedDistribution, RecordedDone, RecordedStart, RecordedTokenLine


def run_heading(file: str | None, request: str | None) -> str | None:
    """A heading of a run, as `head` writes it above a file; None for the only run of a file without requests.

    ``file``: its name, None if there is only one; ``request``: the id of the request that the run answers.
    """
    from .text import visible

    parts = [part for part in (file, request) if part is not None]
    return visible(f"==> {': '.join(parts)} <==") if parts else None


@dataclass(frozen=True)
class InspectedToken:
    """A token, and the distribution that is shown of it; None if the run has none.

    ``number``: counted from 0, in the prompt or among the tokens that were written. ``fallen``: the stage that
    dropped the likeliest token; None if that one could be drawn, or without a trace.
    """

    line: RecordedTokenLine
    number: int
    distribution: RecordedDistribution | None
    fallen: str | None

    @property
    def data(self) -> bytes:
        """The token's bytes."""
        return bytes(self.line.data)

    @property
    def place(self) -> str:
        """What ``--token`` takes for it; a token of the prompt says so."""
        return f"prompt {self.number}" if self.line.event == "prompt" else str(self.number)

    @property
    def logprob(self) -> float | None:
        """The token's logprob in nats."""
        return None if self.distribution is None else self.distribution.logprob


@dataclass
class InspectedRun:
    """A run: its first and its last line, if they are there, and its tokens."""

    start: RecordedStart | None = None
    done: RecordedDone | None = None
    tokens: list[InspectedToken] = field(default_factory=list)
