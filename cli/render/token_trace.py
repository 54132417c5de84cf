"""One token of a recorded run: the table of its trace, and the draw in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .token_label import token_label
from .trace_table import print_trace_table, stage_columns, stage_notes

if TYPE_CHECKING:
    from ...logprobs.events import Token
    from ...logprobs.recorded import RecordedEvent, RecordedTokenLine, RecordedTrace
    from ...logprobs.records import Trace

_LABEL_COLUMNS = 60
"""The longest token that is shown whole in the words around the table."""


class TokenSearch:
    """Looks for one written token: that of a number, counted from 0, or the first one whose text has a text.

    Attributes: ``written``, how many tokens the run has, as far as it was read; ``request``, the id of the request
    that the run answers, None if it is not of a batch.
    """

    def __init__(self, number: int | None, text: str | None) -> None:
        self._number, self._text = number, text
        self.written = 0
        self.request: str | None = None

    @property
    def words(self) -> str:
        """What is looked for, for a message."""
        return f"token {self._number}" if self._number is not None else f"token with the text {self._text!r}"

    def find(self, events: Iterable[RecordedEvent]) -> RecordedTokenLine | None:
        """The token; None if the run has none that fits. ``written`` is then the number of its tokens."""
        from ...logprobs.recorded import RecordedStart, RecordedTokenLine
        from ...logprobs.records import display_text

        for event in events:
            if isinstance(event, RecordedStart):
                self.request = event.id
            if not isinstance(event, RecordedTokenLine) or event.event != "token":
                continue
            self.written += 1
            if self._number is not None:
                if self.written - 1 == self._number:
                    return event
            elif self._text is not None and self._text in display_text(bytes(event.data)):
                return event
        return None


def show_token(line: RecordedTokenLine | Token, trace: RecordedTrace | Trace, number: int) -> None:
    """Print the token, its trace as `gen next` does, and how it was drawn. ``number``: the token's, from 0."""
    print(f"token {number}: {token_label(bytes(line.data), _LABEL_COLUMNS)}\n")
    columns = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
    tokens = [bytes(candidate.data) for candidate in trace.candidates]
    ids = [candidate.id for candidate in trace.candidates]
    marked = ids.index(line.id) if line.id in ids else None
    print_trace_table(tokens, columns, stage_notes(trace.stages), marked)
    print(f"\n{draw_words(line, trace)}")


def draw_words(line: RecordedTokenLine | Token, trace: RecordedTrace | Trace) -> str:
    """How the token was chosen, as ``u = 0.431 lies in 0.402 … 0.466: ' king'``."""
    from .text import visible

    label = token_label(bytes(line.data), _LABEL_COLUMNS)
    if trace.forced:
        return f"forced: the grammar allows one text only, which goes on with {label}"
    if trace.draw is None:
        return f"no random number: {visible(trace.stages[-1].name)} takes {label}"
    draw = trace.draw
    return f"u = {draw.u:.6g} lies in {draw.low:.6g} … {draw.high:.6g}: {label}"
