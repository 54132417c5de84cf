"""The events of a run, in order: Start, a PromptToken each with ``echo``, a Token each, Done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..logprobs import TokenRecord
from .batch_exactness import BatchExactness


@dataclass(frozen=True, slots=True)
class Start:
    """The prompt has been read. Holds what is needed to repeat the run.

    Attributes: ``model``, the file's name without its suffix; ``seed``; ``chain``, its steps with their
    parameters; ``grammar``, the constraint's description; ``prompt_tokens`` and ``prompt_ids``, how many and
    which; ``cached_tokens``, how many of them were in the context already; ``context``, tokens that it holds;
    ``logprobs``, which ones the tokens have; ``max_tokens``; ``stop``, the stop texts; ``versions``, of this
    package and of the binding; ``batch_exactness``, what holds for the answers of its batch, None without one.
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

    Attributes: ``finish_reason``: ``stop`` (the model ended its text, or the stop text ``stop`` appeared),
    ``grammar`` (the text is a complete sentence that nothing can follow), ``length`` (``max_tokens`` reached),
    ``context`` (the context is full) or ``interrupted``. ``complete``: True if the text is a complete sentence
    of the grammar; None without one. ``text``: the whole text. ``rest``: its end, which was held back until now.
    ``prompt_tokens`` and ``completion_tokens``: their numbers. ``forced_tokens``: how many of the latter the
    grammar forced. ``drafted_tokens`` and ``accepted_tokens``: how many the lookup guessed, and how many guesses
    were right; None without a lookup. ``timings``: seconds.
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
