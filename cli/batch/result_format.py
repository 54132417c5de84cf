"""From the engine's answer to the record that is kept."""

from __future__ import annotations

from typing import Any

from ... import logprobs
from ...engine import BatchAnswer
from ..inputs.json_lines import InvalidLineError
from ..render.completion_parts import completion_finish, completion_head
from .input_lines import InputLine
from .request import BatchRequest


class ResultFormat:
    """The format of results.

    Args:
        name: ``openai`` (OpenAI's batch output) or ``jsonl`` (ours).
        settings_digest: the digest of what answers depend on beside their requests.
    """

    def __init__(self, name: str, settings_digest: str) -> None:
        self._is_openai = name == "openai"
        self._settings_digest = settings_digest

    def check(self, request: BatchRequest) -> None:
        """Raise ``InvalidLineError`` for logprobs or a trace that the format has no room for."""
        if self._is_openai and (request.logprobs == -1 or request.logprobs_from == "both"):
            raise InvalidLineError("OpenAI's format has no room for these logprobs; --format jsonl has")
        if self._is_openai and request.trace is not None:
            raise InvalidLineError("trace: OpenAI's format has no room for it; --format jsonl has")

    def request_id(self, name: str, line: InputLine) -> str:
        """What tells an answer that belongs to this text, model and flags; ``name``: the request's id."""
        return logprobs.batch_id(name, line.digest, self._settings_digest)

    def answer_record(self, request: BatchRequest, line: InputLine, answer: BatchAnswer) -> dict[str, Any]:
        """The record of an answer to the request of a line."""
        start, done = answer.start, answer.done
        head = completion_head(start, self.request_id(request.id, line), prompt="")
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
