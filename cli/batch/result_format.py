"""From the engine's answer to the record that is kept."""

from __future__ import annotations

from typing import Any

from ... import logprobs
from ...engine import BatchAnswer
from ..inputs.json_lines import InvalidLineError
from ..render.completion_parts import completion_finish, completion_head
from .request import BatchRequest


class ResultFormat:
    """The format of results: ``openai`` (OpenAI's batch output) or ``jsonl`` (ours)."""

    def __init__(self, name: str) -> None:
        self._is_openai = name == "openai"

    def check(self, request: BatchRequest) -> None:
        """Raise ``InvalidLineError`` for logprobs or a trace that the format has no room for."""
        if self._is_openai and (request.logprobs == -1 or request.logprobs_from == "both"):
            raise InvalidLineError("OpenAI's format has no room for these logprobs; --format jsonl has")
        if self._is_openai and request.trace is not None:
            raise InvalidLineError("trace: OpenAI's format has no room for it; --format jsonl has")

    def answer_record(self, request: BatchRequest, answer: BatchAnswer) -> dict[str, Any]:
        """The record of an answer."""
        start, done = answer.start, answer.done
        head = completion_head(start, logprobs.batch_id(request.id, start.seed), prompt="")
        completion = logprobs.Completion(head, None, answer.tokens, completion_finish(done))
        if self._is_openai:
            return logprobs.openai_result_line(request.id, completion, request.messages is not None)
        return logprobs.result_line(
            request.id, request.line, completion, done.complete, seed=start.seed, exactness=str(answer.exactness)
        )

    def failure_record(self, request_id: str, error: dict[str, Any]) -> dict[str, Any]:
        """The record of a line without an answer; ``error`` is made by `logprobs.batch_error`."""
        make_line = logprobs.openai_failure_line if self._is_openai else logprobs.failure_line
        return make_line(request_id, error)
