"""A whole run, from which the shapes of other systems are made."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass

from .records import LogprobSource, TokenRecord, display_text, finite_or_none

_FINISH = {"stop": "stop", "grammar": "stop", "length": "length", "context": "length", "interrupted": "length"}


@dataclass(frozen=True)
class CompletionHead:
    """What is known before the first token.

    ``created``: seconds since 1970; ``prompt``: its text; ``source``: where logprobs are from, None if there are
    none; ``top``: how many likely tokens stand beside each.
    """

    id: str
    created: int
    model: str
    prompt: str
    source: LogprobSource | None
    top: int
    prompt_tokens: int
    version: str


@dataclass(frozen=True)
class CompletionFinish:
    """How a run ended. ``reason`` is ours, see `finish_reason`; ``stop`` is the stop text that came, if any."""

    reason: str
    stop: str | None
    text: str
    completion_tokens: int
    truncated: bool


@dataclass(frozen=True)
class Completion:
    """A run from its head to its finish. ``echo``: the prompt's tokens, None if they are not wanted."""

    head: CompletionHead
    echo: tuple[TokenRecord, ...] | None
    steps: tuple[TokenRecord, ...]
    finish: CompletionFinish


def finish_reason(finish: CompletionFinish) -> str:
    """Why it ended, in OpenAI's words: ``stop`` or ``length``."""
    return _FINISH[finish.reason]


def usage(head: CompletionHead, completion_tokens: int) -> dict[str, int]:
    """The counts of tokens."""
    return {
        "prompt_tokens": head.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": head.prompt_tokens + completion_tokens,
    }


def by_text(step: TokenRecord) -> dict[str, float | None] | None:
    """The likeliest tokens and the chosen one. Of tokens that print alike the likeliest stands for all."""
    if not step.distributions:
        return None
    found: dict[str, float | None] = {}
    for token in (*step.top, step.chosen):
        value = finite_or_none(token.logprob)
        if value is not None:
            found.setdefault(display_text(token.data), value)
    return found


class TextOffsets:
    """Where tokens begin in their text, in characters; one inside a character, where that begins."""

    def __init__(self) -> None:
        self.place = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, steps: Iterable[TokenRecord]) -> list[int]:
        """The offsets of the next tokens."""
        found = []
        for step in steps:
            if step.special:
                found.append(self.place)
                continue
            found.append(self.place + self._broken_off(step.data))
            self.place += len(self._decoder.decode(step.data))
        return found

    def skip_to(self, place: int) -> None:
        """Let the next token begin here, after a text whose length is known."""
        self.place = place
        self._decoder.reset()

    def _broken_off(self, data: bytes) -> int:
        """1 if these bytes leave a character unfinished, for which U+FFFD stands before them."""
        begun = self._decoder.getstate()[0]
        try:
            (begun + data[:1]).decode()
        except UnicodeDecodeError as error:
            return int(bool(begun) and error.reason != "unexpected end of data")
        return 0
