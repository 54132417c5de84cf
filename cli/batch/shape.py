"""From what the engine answers to the record that is kept."""

from __future__ import annotations

import time
from typing import Any

from ... import logprobs
from ...engine import BatchAnswer
from .ask import Ask, WrongLineError


class Shape:
    """How results look: ``openai``, OpenAI's batch output, or ``jsonl``, ours."""

    def __init__(self, name: str) -> None:
        self._openai = name == "openai"

    def check(self, ask: Ask) -> None:
        """Raise ``WrongLineError`` for logprobs that there is no room for."""
        if self._openai and (ask.logprobs == -1 or ask.source == "both"):
            raise WrongLineError("OpenAI's format has no room for these logprobs; --format jsonl has")

    def answer(self, ask: Ask, answer: BatchAnswer) -> dict[str, Any]:
        """The record of an answer."""
        start, done = answer.start, answer.done
        wanted = start.logprobs
        head = logprobs.CompletionHead(
            id=logprobs.batch_id(ask.id, start.seed),
            created=int(time.time()),
            model=start.model,
            prompt="",
            source=None if wanted is None else wanted["from"],
            top=0 if wanted is None else wanted["top"],
            prompt_tokens=start.prompt_tokens,
            version=start.versions["logitsmith"],
        )
        finish = logprobs.CompletionFinish(
            done.finish_reason, done.stop, done.text, done.completion_tokens, done.finish_reason == "context"
        )
        run = logprobs.Completion(head, None, answer.tokens, finish)
        if self._openai:
            return logprobs.openai_result_line(ask.id, run, ask.messages is not None)
        return logprobs.result_line(ask.id, ask.line, start.seed, run, done.complete)

    def failure(self, name: str, error: dict[str, Any]) -> dict[str, Any]:
        """The record of a line that could not be answered; ``error`` is of `logprobs.failed`."""
        return (logprobs.openai_failure_line if self._openai else logprobs.failure_line)(name, error)
