"""A run as a table: a line for each token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event


def render(events: Iterable[Event], out: TextIO) -> Done:
    """Write the id and the text of each token, separated by a tab. Return the last event."""
    from ...logprobs.events import Done, Token

    for event in events:
        if isinstance(event, Token):
            out.write(f"{event.id}\t{event.text!r}\n")
            out.flush()
        elif isinstance(event, Done):
            return event
    raise RuntimeError("the run ended without a Done event")
