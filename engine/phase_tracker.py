"""The phases of a text: which chain draws the next token, and which tokens are forced at the end of a phase.

Where a chat template shows how a model reasons, the reasoning is the phase before the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..logprobs.records import Part
from ..samplers.chain import Chain
from ..samplers.chain_state import ChainState, ChainStates
from ..samplers.tokens import pieces_index
from .token_records import TraceReader
from .vocabulary import Vocabulary


@dataclass
class RunningPhase:
    """A phase of a running text."""

    chain: Chain
    # of the chain; phases with the same chain share it, and the chain goes on from one to the other
    states: ChainStates
    # samples instead of the chain, and records each step; None: the run is not traced
    tracer: TraceReader | None = None
    # The bytes of which one begins the phase, after blanks. A phase that begins otherwise is skipped, except the
    # last one. Empty: the phase begins at once.
    starts: tuple[bytes, ...] = ()
    # The bytes of which one goes back to the phase before, instead of a start of this one
    starts_of_previous: tuple[bytes, ...] = ()
    until: bytes = b""  # the bytes that end the phase; empty for the last phase
    max_tokens: int | None = None  # maximum number of tokens after the start; None: no limit
    then: tuple[int, ...] = ()  # the tokens that are forced after the last one
    opening_of_next: tuple[
        int, ...
    ] = ()  # the tokens that are forced after the end, instead of `starts` of the next


class PhaseState(NamedTuple):
    """The state of a `PhaseTracker` before a token."""

    phase_index: int
    is_open: bool
    token_count: int
    count_of_previous: int
    last_bytes: bytes
    precedes_text: bool
    forced: tuple[int, ...]
    chain: ChainState


class PhaseTracker:
    """The phase of a text, from token to token."""

    def __init__(self, phases: Sequence[RunningPhase], prompt_ids: Sequence[int]) -> None:
        self.phases = phases
        self.index = 0
        self.is_open = not phases[0].starts  # False: the next tokens decide whether the current phase begins
        self.forced: tuple[int, ...] = ()  # tokens that are forced next, because the phase ends
        # the number of tokens since the phase began; before, of those that may be a part of its start
        self.token_count = 0
        self._count_of_previous = 0  # the number of tokens of the phase before
        self._prompt_ids = prompt_ids
        # the last bytes of the phase, which may be the beginning of its end; before it began, all bytes so far
        self._last_bytes = b""
        # whether the text of the answer has not begun: after a reasoning, blanks before it belong to the reasoning
        self._precedes_text = False
        phases[0].states.begin(prompt_ids, ())
        self._apply_limit(())

    @property
    def current(self) -> RunningPhase:
        return self.phases[self.index]

    @property
    def is_last(self) -> bool:
        """True if the text is in its last phase."""
        return self.is_open and self.index == len(self.phases) - 1

    @property
    def can_be_skipped(self) -> bool:
        """True if the text may go on in the last phase, although no tag has opened it."""
        return not self.is_open and not self.phases[-1].starts

    @property
    def can_end(self) -> bool:
        """True if `end_phase` may be called."""
        return self.is_open and not self.is_last and not self.forced

    def save(self) -> PhaseState:
        chain_state = self.current.states.save()
        return PhaseState(
            self.index,
            self.is_open,
            self.token_count,
            self._count_of_previous,
            self._last_bytes,
            self._precedes_text,
            self.forced,
            chain_state,
        )

    def restore(self, state: PhaseState, output: Sequence[int]) -> None:
        """Return to a saved state. ``output``: the tokens after the prompt at that time."""
        (
            self.index,
            self.is_open,
            self.token_count,
            self._count_of_previous,
            self._last_bytes,
            self._precedes_text,
            self.forced,
            chain_state,
        ) = state
        self.current.states.restore(chain_state, self._prompt_ids, output)

    def accept(self, data: bytes, output: Sequence[int]) -> Part | None:
        """Add a token, which may end the phase; return the part that it belongs to, None if later tokens decide.

        ``data``: the token's bytes; for a control token, its name.
        """
        if self.is_last:
            self._precedes_text = self._precedes_text and not data.strip()
            return "reasoning" if self._precedes_text else "answer"
        if self.forced:
            self.forced = self.forced[1:]
            if not self.forced:
                self._enter_next(output, is_opened=bool(self.current.opening_of_next))
            return "reasoning"
        self.token_count += 1
        if not self.is_open:
            return self._decide(self._last_bytes + data, output)
        self._advance(data, output)
        return "reasoning"

    def end_phase(self, output: Sequence[int]) -> None:
        self.forced = self.current.then + self.current.opening_of_next
        if not self.forced:
            self._enter_next(output)

    def opening_mask(self, vocabulary: Vocabulary) -> NDArray[np.bool_]:
        """Return the tokens that continue the start of this phase or of a later one, bool (V,)."""
        begun = self._last_bytes.lstrip()
        starts = (start for phase in self.phases[self.index :] for start in phase.starts)
        return spelling_mask(vocabulary, [start[len(begun) :] for start in starts if start.startswith(begun)])

    def end_mask(self, vocabulary: Vocabulary) -> NDArray[np.bool_] | None:
        """Return the tokens that do not go beyond the end of this phase, bool (V,); None: all."""
        # Otherwise a token could end the reasoning and begin an answer that the grammar has not seen.
        until = self.current.until
        begun_lengths = [count for count in range(1, len(until)) if self._last_bytes.endswith(until[:count])]
        if not self.is_open or not begun_lengths:
            return None
        mask = np.ones(vocabulary.size, dtype=np.bool_)
        for count in begun_lengths:
            ending = until[count:]
            tokens = pieces_index(vocabulary).beginning_with(ending).tolist()
            mask[[token for token in tokens if vocabulary.pieces[token][len(ending) :].strip()]] = False
        return mask

    def _decide(self, text: bytes, output: Sequence[int]) -> Part | None:
        """Begin the phase whose start the text has, or skip it; None while the text may still become one."""
        begun = text.lstrip()
        token_count = self.token_count
        while not self.is_open:
            starts = self.current.starts
            found_start = next(filter(begun.startswith, starts), None)
            if found_start is not None:
                self._open()
                if not self.is_last:
                    self._advance(begun.removeprefix(found_start), output)
                return "reasoning"
            starts_of_previous = self.current.starts_of_previous
            found_start = next(filter(begun.startswith, starts_of_previous), None)
            if found_start is not None:
                self._return_to_previous(output)
                self._advance(begun.removeprefix(found_start), output)
                return "reasoning"
            if any(start.startswith(begun) for start in (*starts, *starts_of_previous)):
                self.token_count, self._last_bytes = token_count, text
                return None
            if self.index == len(self.phases) - 1:
                self._open()
            else:
                self._enter_next(output)
        if self.is_last:
            self._precedes_text = False
            return "answer"
        self._advance(text, output)
        return "reasoning"

    def _open(self) -> None:
        self.is_open = True
        self.token_count = 0
        self._last_bytes = b""

    def _advance(self, data: bytes, output: Sequence[int]) -> None:
        """Add bytes to a phase before the last one."""
        phase = self.current
        _, end, rest = (self._last_bytes + data).partition(phase.until)
        if end:
            self.forced = () if rest else phase.opening_of_next  # the token with the end has blanks of its own
            if not self.forced:
                self._enter_next(output, is_opened=bool(phase.opening_of_next))
                self._precedes_text = not rest.strip()
            return
        # All but one byte of `until` may already be there.
        kept_length = len(phase.until) - 1
        self._last_bytes = (self._last_bytes + data)[-kept_length:] if kept_length > 0 else b""
        self._apply_limit(output)

    def _apply_limit(self, output: Sequence[int]) -> None:
        max_tokens = self.current.max_tokens
        is_used_up = max_tokens is not None and self.token_count >= max_tokens
        if self.is_open and not self.is_last and is_used_up:
            self.end_phase(output)

    def _enter_next(self, output: Sequence[int], *, is_opened: bool = False) -> None:
        self._count_of_previous = self.token_count
        self._precedes_text = True
        self._enter(self.index + 1, output)
        self.is_open = is_opened or not self.current.starts
        self._apply_limit(output)

    def _return_to_previous(self, output: Sequence[int]) -> None:
        """Go on with the phase before, whose tokens count for its limit."""
        self._enter(self.index - 1, output)
        self._open()
        self.token_count = self._count_of_previous

    def _enter(self, index: int, output: Sequence[int]) -> None:
        earlier_states = self.current.states
        self.index = index
        self.forced = ()
        self.token_count = 0
        self._last_bytes = b""
        if self.current.states is not earlier_states:
            self.current.states.begin(self._prompt_ids, output)


def spelling_mask(vocabulary: Vocabulary, texts: Sequence[bytes]) -> NDArray[np.bool_]:
    """Return the tokens that spell one of these texts or its beginning, bool (V,)."""
    index = pieces_index(vocabulary)
    mask = np.zeros(vocabulary.size, dtype=np.bool_)
    for text in texts:
        mask[index.beginning_with(text)] = True
        for length in range(1, len(text)):
            mask[index.equal_to(text[:length])] = True
    return mask
