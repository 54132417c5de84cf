"""From the engine's answer to the record that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...common.strict_json import encode_json
from ...engine.batch import BatchAnswer
from ...logprobs.openai import (
    Completion,
    completion_finish,
    completion_head,
    failure_line,
    openai_failure_line,
    openai_result_line,
    result_line,
)
from ..inputs.json_lines import InvalidLineError
from .accepted_request import AcceptedRequest
from .request import BatchRequest


class ResultFormat:
    """The format of results.

    Args:
        name: ``openai`` (OpenAI's batch output) or ``jsonl`` (ours).
        worker: what computed the answers, on a cluster: ``cpu``, ``build`` and ``threads``.
    """

    def __init__(self, name: str, worker: Mapping[str, Any] | None = None) -> None:
        self._is_openai = name == "openai"
        self._worker = worker

    def check(self, request: BatchRequest) -> None:
        """Raise ``InvalidLineError`` for logprobs or a trace that the format has no room for."""
        if self._is_openai and (request.logprobs == -1 or request.logprobs_from == "both"):
            raise InvalidLineError("OpenAI's format has no room for these logprobs; --format jsonl has")
        if self._is_openai and request.trace is not None:
            raise InvalidLineError("trace: OpenAI's format has no room for it; --format jsonl has")

    def answer_line(self, request: AcceptedRequest, answer: BatchAnswer) -> str:
        """The result of an answer, as JSON on one line."""
        start, done = answer.start, answer.done
        head = completion_head(start, request.request_id, prompt="")
        completion = Completion(head, None, answer.tokens, completion_finish(done))
        if not self._is_openai:
            return result_line(
                request.id,
                request.line,
                completion,
                done.complete,
                seed=start.seed,
                exactness=str(answer.exactness),
                worker=self._worker,
            )
        record = openai_result_line(request.id, completion, request.is_chat)
        if self._worker is not None:
            record["response"]["body"]["worker"] = self._worker
        return encode_json(record)

    def failure_record(self, request_id: str, error: dict[str, Any]) -> dict[str, Any]:
        """The record of a line without an answer; ``error`` is made by `logprobs.batch_error`."""
        make_line = openai_failure_line if self._is_openai else failure_line
        return make_line(request_id, error)
