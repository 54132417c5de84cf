"""A whole run, from which the formats of other systems' APIs are made."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass

from .records import LogprobSource, TokenRecord, display_text, finite_or_none

_OPENAI_FINISH_REASONS = {
    "stop": "stop",
    "grammar": "stop",
    "length": "length",
    "context": "length",
    "interrupted": "length",
}


@dataclass(frozen=True)
class CompletionHead:
    """What is known of a run before its first token.

    Attributes:
        id: the answer's id, without the prefix of a format.
        created: the time, seconds since 1970.
        model: the model's name.
        prompt: the prompt's text.
        source: the distribution of the logprobs; None: there are no logprobs.
        top: how many of the likeliest tokens each token has.
        prompt_tokens: the number of tokens of the prompt.
        version: the version of logitsmith.
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
    """How a run ended.

    Attributes:
        reason: our finish reason; see `finish_reason` for OpenAI's.
        stop: the stop text that ended the run, if one did.
        text: the whole text.
        completion_tokens: the number of tokens that were written.
        truncated: True if the context was full.
    """

    reason: str
    stop: str | None
    text: str
    completion_tokens: int
    truncated: bool


@dataclass(frozen=True)
class Completion:
    """A whole run. ``echo``: the prompt's tokens, None if they are not part of the answer."""

    head: CompletionHead
    echo: tuple[TokenRecord, ...] | None
    tokens: tuple[TokenRecord, ...]
    finish: CompletionFinish


def finish_reason(finish: CompletionFinish) -> str:
    """OpenAI's finish reason: ``stop`` or ``length``."""
    return _OPENAI_FINISH_REASONS[finish.reason]


def usage(head: CompletionHead, completion_tokens: int) -> dict[str, int]:
    """OpenAI's ``usage``: the numbers of tokens."""
    return {
        "prompt_tokens": head.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": head.prompt_tokens + completion_tokens,
    }


def logprobs_by_text(token: TokenRecord) -> dict[str, float | None] | None:
    """The logprobs of the likeliest tokens and the chosen one, by their text.

    Of tokens with the same text the first one, the likeliest, is kept. None without a distribution.
    """
    if not token.distributions:
        return None
    logprobs: dict[str, float | None] = {}
    for candidate in (*token.top, token.chosen):
        value = finite_or_none(candidate.logprob)
        if value is not None:
            logprobs.setdefault(display_text(candidate.data), value)
    return logprobs


class TextOffsets:
    """Where tokens begin in their text, in characters. A token inside a character begins where that does.

    Attributes:
        offset: where the next token begins.
    """

    def __init__(self) -> None:
        self.offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Iterable[TokenRecord]) -> list[int]:
        """The offsets of the next tokens."""
        offsets = []
        for token in tokens:
            if token.special:
                offsets.append(self.offset)
                continue
            offsets.append(self.offset + self._replacement_length(token.data))
            self.offset += len(self._decoder.decode(token.data))
        return offsets

    def skip_to(self, offset: int) -> None:
        """Let the next token begin here, after a text whose length is known."""
        self.offset = offset
        self._decoder.reset()

    def _replacement_length(self, data: bytes) -> int:
        """1 if these bytes break off an unfinished character, which U+FFFD then replaces; else 0."""
        unfinished = self._decoder.getstate()[0]
        try:
            (unfinished + data[:1]).decode()
        except UnicodeDecodeError as error:
            return int(bool(unfinished) and error.reason != "unexpected end of data")
        return 0
