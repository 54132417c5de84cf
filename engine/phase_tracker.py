"""The phases of a text: which chain draws the next token, and which tokens are forced at the end of a phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..models.errors import ModelError
from ..samplers.chain import Chain
from ..samplers.chain_state import ChainState, ChainStates
from .token_records import TraceReader
from .vocabulary import Vocabulary


@dataclass
class RunningPhase:
    """A phase of a running text."""

    chain: Chain
    states: ChainStates
    # samples instead of the chain, and records each step; None: the run is not traced
    tracer: TraceReader | None = None
    until: bytes = b""  # the bytes that end the phase; empty for the last phase
    max_tokens: int | None = None  # maximum number of tokens; None: no limit
    then: tuple[int, ...] = ()  # the tokens that are forced after the last one


class PhaseState(NamedTuple):
    """The state of a `PhaseTracker` before a token."""

    phase_index: int
    token_count: int
    last_bytes: bytes  # the last bytes of the phase, which may be the beginning of its end
    forced: tuple[int, ...]
    chain: ChainState


class PhaseTracker:
    """The phase of a text, from token to token."""

    def __init__(self, phases: Sequence[RunningPhase], prompt_ids: Sequence[int]) -> None:
        self.phases = phases
        self.index = 0
        self.forced: tuple[int, ...] = ()  # tokens that are forced next, because the phase ends
        self._prompt_ids = prompt_ids
        self._token_count = 0
        self._last_bytes = b""
        phases[0].states.begin(prompt_ids, ())
        self._apply_limit(())

    @property
    def current(self) -> RunningPhase:
        return self.phases[self.index]

    @property
    def is_last(self) -> bool:
        return self.index == len(self.phases) - 1

    def save(self) -> PhaseState:
        chain_state = self.current.states.save()
        return PhaseState(self.index, self._token_count, self._last_bytes, self.forced, chain_state)

    def restore(self, state: PhaseState, output: Sequence[int]) -> None:
        """Return to a saved state. ``output``: the tokens after the prompt at that time."""
        self.index, self._token_count, self._last_bytes, self.forced, chain_state = state
        self.current.states.restore(chain_state, self._prompt_ids, output)

    def accept(self, data: bytes, output: Sequence[int]) -> None:
        """Add a token to the phase, which may end it. ``data``: its bytes; for a control token, its name."""
        if self.is_last:
            return
        if self.forced:
            self.forced = self.forced[1:]
            if not self.forced:
                self._enter_next(output)
            return
        self._token_count += 1
        phase = self.current
        text = self._last_bytes + data
        if phase.until in text:
            self._enter_next(output)
            return
        # All but one byte of `until` may already be there.
        kept_length = len(phase.until) - 1
        self._last_bytes = text[-kept_length:] if kept_length > 0 else b""
        self._apply_limit(output)

    def end_phase(self, output: Sequence[int]) -> None:
        self.forced = self.current.then
        if not self.forced:
            self._enter_next(output)

    def _apply_limit(self, output: Sequence[int]) -> None:
        max_tokens = self.current.max_tokens
        if not self.is_last and max_tokens is not None and self._token_count >= max_tokens:
            self.end_phase(output)

    def _enter_next(self, output: Sequence[int]) -> None:
        self.index += 1
        self._token_count = 0
        self._last_bytes = b""
        self.forced = ()
        self.current.states.begin(self._prompt_ids, output)
        self._apply_limit(output)


def forced_token_ids(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    """Return tokens with exactly the bytes of a text, although some tokenizers add a space before a text."""
    # Raises ``ModelError`` if the vocabulary has no such tokens.
    data = text.encode()
    if not data:
        return ()
    for tokens in (
        vocabulary.tokenize(data, special=True),
        vocabulary.tokenize(b"\n" + data, special=True)[1:],
        _tokenize_characters(vocabulary, text),
    ):
        if b"".join(map(vocabulary.piece, tokens)) == data:
            return tuple(tokens)
    raise ModelError(f"the vocabulary has no tokens for exactly {text!r}", origin="then")


def _tokenize_characters(vocabulary: Vocabulary, text: str) -> list[int]:
    """Return the tokens of each character by itself, without the space that the tokenizer adds before a text."""
    tokens: list[int] = []
    for character in text:
        newline_and_character = vocabulary.tokenize(b"\n" + character.encode(), special=False)
        tokens += newline_and_character[1:]
    return tokens
