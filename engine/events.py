"""What a run tells, in order: Start, then Tokens, then Done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..logprobs import TokenLogprob


@dataclass(frozen=True, slots=True)
class Start:
    """The prompt is read. Holds what is needed to repeat the run."""

    model: str
    seed: int
    chain: list[dict[str, dict[str, Any]]]
    prompt_tokens: int
    prompt_ids: tuple[int, ...]
    cached_tokens: int
    context: int
    max_tokens: int | None
    stop: tuple[str, ...]
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Token:
    """One token was chosen. ``text`` is what is now free to be shown; it may lag behind the token's bytes."""

    index: int
    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: reading the prompt; making the tokens, all in all; of these, in the chain."""

    prompt: float
    generation: float
    chain: float


@dataclass(frozen=True, slots=True)
class Done:
    """The run is over.

    ``finish_reason``: ``stop`` (the model ended its text, or a stop string came, then in ``stop``),
    ``length`` (``max_tokens`` reached), ``context`` (the context is full), ``interrupted``. ``rest`` is text
    that was held back and is now free; ``text`` is the whole.
    """

    finish_reason: str
    text: str
    rest: str
    stop: str | None
    prompt_tokens: int
    completion_tokens: int
    timings: Timings


Event = Start | Token | Done
