"""What a run tells, in order: Start, Prompts if they are wanted, Tokens, Done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..logprobs import TokenRecord


@dataclass(frozen=True, slots=True)
class Start:
    """The prompt is read. Holds what is needed to repeat the run."""

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


@dataclass(frozen=True, slots=True)
class PromptToken(TokenRecord):
    """A token of the prompt; the first has no distribution, since nothing comes before it."""


@dataclass(frozen=True, slots=True)
class Token(TokenRecord):
    """One token was chosen."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: reading the prompt; making the tokens, all in all; of these, in the chain and in the grammar."""

    prompt: float
    generation: float
    chain: float
    grammar: float


@dataclass(frozen=True, slots=True)
class Done:
    """The run is over.

    ``finish_reason``: ``stop`` (the model ended its text, or a stop string came, then in ``stop``), ``grammar``
    (the text is whole by its grammar, and nothing can follow), ``length`` (``max_tokens`` reached), ``context``
    (the context is full), ``interrupted``. ``complete``: is the text whole by its grammar; None without one.
    ``rest`` is text that was held back and is now free; ``text`` is the whole. ``forced_tokens``: how many of the
    tokens the grammar forced; ``drafted_tokens`` and ``accepted_tokens``: how many were guessed by lookup, and how
    many of these were right; None without.
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


Event = Start | PromptToken | Token | Done
