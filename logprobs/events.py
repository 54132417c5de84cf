"""The events of a run, in order: `Start`, a `PromptToken` each with ``echo``, a `Token` each, `Done`.

For a run that is part of a batch, `Start` also says whether other requests can change its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .records import TokenRecord


@dataclass(frozen=True, slots=True)
class Start:
    """The prompt has been read. Holds what is needed to repeat the run.

    Attributes:
        model: the file's name without its suffix.
        seed: the seed of the chain.
        chain: its steps with their parameters.
        grammar: the constraint's description; None without one.
        prompt_tokens: the number of the prompt's tokens.
        prompt_ids: their ids.
        cached_tokens: how many of them were in the context already.
        context: how many tokens the context holds.
        logprobs: which logprobs the tokens have; None: none.
        max_tokens: how many tokens are made at most; None: no limit.
        stop: the stop texts.
        versions: the versions of this package and of the binding.
        batch_exactness: what holds for the answers of its batch; None without a batch.
        trace: how many of the likeliest tokens of each stage the traces have; None: the run is not traced.
    """

    model: str
    seed: int
    chain: list[dict[str, dict[str, Any]]]
    grammar: dict[str, Any] | None
    prompt_tokens: int
    prompt_ids: tuple[int, ...]
    cached_tokens: int
    context: int
    logprobs: dict[str, Any] | None
    max_tokens: int | None
    stop: tuple[str, ...]
    versions: dict[str, str]
    batch_exactness: BatchExactness | None = None
    trace: int | None = None


@dataclass(frozen=True, slots=True)
class PromptToken(TokenRecord):
    """A token of the prompt. The first one has no distribution, since nothing comes before it."""


@dataclass(frozen=True, slots=True)
class Token(TokenRecord):
    """A token that was generated."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: for reading the prompt; for all generated tokens; of the latter, in the chain and the grammar."""

    prompt: float
    generation: float
    chain: float
    grammar: float


@dataclass(frozen=True, slots=True)
class Done:
    """The run is over.

    Attributes:
        finish_reason: ``stop`` (the model ended its text, or a stop text appeared), ``grammar`` (the text is a
            complete sentence that nothing can follow), ``length`` (``max_tokens`` reached), ``context`` (the
            context is full) or ``interrupted``.
        complete: True if the text is a complete sentence of the grammar; None without one.
        text: the whole text.
        rest: its end, which was held back until now.
        stop: the stop text that appeared; None if none did.
        prompt_tokens: the number of the prompt's tokens.
        completion_tokens: the number of the generated tokens.
        forced_tokens: how many of these the grammar forced.
        drafted_tokens: how many tokens the lookup guessed; None without a lookup.
        accepted_tokens: how many of these guesses were right; None without a lookup.
        timings: seconds.
        context_shifts: how often older tokens were discarded because the context was full; None without
            ``keep_on_shift``.
    """

    finish_reason: str
    complete: bool | None
    text: str
    rest: str
    stop: str | None
    prompt_tokens: int
    completion_tokens: int
    forced_tokens: int
    drafted_tokens: int | None
    accepted_tokens: int | None
    timings: Timings
    context_shifts: int | None = None


Event = Start | PromptToken | Token | Done


def take_start(events: Iterator[Event]) -> Start:
    """Return the first event of a run. Raises ``ValueError`` if it is none that begins a run."""
    start = next(events, None)
    if not isinstance(start, Start):
        raise ValueError(f"a run begins with a Start event, not with {start!r}")
    return start


def split_events(events: Iterable[Event]) -> tuple[Start, tuple[PromptToken, ...], tuple[Token, ...], Done]:
    """Return the events of a whole run by their kinds.

    Raises ``ValueError`` if it does not begin with a `Start` and end with a `Done`.
    """
    start, *others = events
    if not isinstance(start, Start) or not others or not isinstance(done := others[-1], Done):
        raise ValueError("a whole run begins with a Start event and ends with a Done event")
    prompt_tokens = tuple(event for event in others if isinstance(event, PromptToken))
    return start, prompt_tokens, tuple(event for event in others if isinstance(event, Token)), done


class ExactnessLevel(Enum):
    """How far the answers of a batch can be relied on.

    ``EXACT``: each answer is what the request gets alone. ``AMONG_THEMSELVES``: each answer is the same for every
    number of slots from 2 on, every order and all other requests, but differs from what the request gets alone.
    ``ROUNDING``: other requests may move the logits by a rounding error, which may change a token.
    """

    EXACT = "exact"
    AMONG_THEMSELVES = "exact among themselves"
    ROUNDING = "to rounding"


@dataclass(frozen=True)
class BatchExactness:
    """What holds for the answers of a batch.

    Attributes: ``level``; ``largest_difference``, the largest difference between logits that were computed with
    other numbers of rows than the batch relies on, as far as it was measured; 0 if none was seen;
    ``alone_tokens``, how many tokens a prompt and its answer may have together to be exact; longer ones are exact
    among themselves. None: any number.
    """

    level: ExactnessLevel
    largest_difference: float = 0.0
    alone_tokens: int | None = None

    def of_text(self, tokens: int) -> BatchExactness:
        """What holds for one answer; ``tokens``: how many it has together with its prompt."""
        if self.level is not ExactnessLevel.EXACT or self.alone_tokens is None:
            return self
        level = ExactnessLevel.EXACT if tokens <= self.alone_tokens else ExactnessLevel.AMONG_THEMSELVES
        return BatchExactness(level, self.largest_difference)

    def __str__(self) -> str:
        if self.level is not ExactnessLevel.ROUNDING or not self.largest_difference:
            return self.level.value
        return f"{self.level.value} ({self.largest_difference:.0e})".replace("e-0", "e-")


EXACT = BatchExactness(ExactnessLevel.EXACT)
"""What holds for requests that are computed one by one."""
