"""Writes results, and counts them."""

from __future__ import annotations

from ...common.strict_json import encode_json
from ...engine.batch import BatchAnswer
from ...logprobs.openai import batch_error
from ..render.batch import BatchProgress
from .accepted_request import AcceptedRequest
from .journal import ResultSink
from .result_format import ResultFormat


class ResultWriter:
    """Writes results in their format.

    Args:
        result_format: makes the records of results.
        results: where they go.
        progress: where they are counted.
    """

    def __init__(self, result_format: ResultFormat, results: ResultSink, progress: BatchProgress) -> None:
        self.format = result_format
        self._results, self._progress = results, progress

    def answer(self, request: AcceptedRequest, answer: BatchAnswer) -> None:
        """Write an answer."""
        self.answer_line(self.format.answer_line(request, answer), str(answer.exactness))

    def answer_line(self, line: str, exactness: str) -> None:
        """Write an answer that is JSON already; ``exactness``: what holds for it, in words."""
        self._results.add(line)
        self._progress.answered += 1
        self._progress.exactness.add(exactness)

    def failure(self, request_id: str, line: int, digest: str, code: str, message: str) -> None:
        """Write why a line has no answer.

        Args:
            request_id: the id of its request.
            line: its number, from 1.
            digest: the digest of its text.
            code: the kind of the failure.
            message: a sentence.
        """
        record = self.format.failure_record(request_id, batch_error(code, message, line, digest))
        self._results.add(encode_json(record))
        self._progress.failed += 1
