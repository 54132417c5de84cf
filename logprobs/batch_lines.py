"""The lines of a batch's results: OpenAI's batch output, and ours."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from .completion import Completion, usage
from .jsonl_lines import fields
from .openai_format import chat_completion, text_completion

Json = dict[str, Any]


def batch_id(name: str, seed: int) -> str:
    """24 hexadecimal digits that are the same for the same request in every run."""
    return sha256(f"{seed}:{name}".encode()).hexdigest()[:24]


def openai_result_line(name: str, run: Completion, chat: bool) -> Json:
    """A line of OpenAI's batch output: the ``chat.completion`` or ``text_completion`` of one request."""
    body = chat_completion(run) if chat else text_completion(run)
    response = {"status_code": 200, "request_id": run.head.id, "body": body}
    return {"id": f"batch_req_{run.head.id}", "custom_id": name, "response": response, "error": None}


def openai_failure_line(name: str, error: Json) -> Json:
    """A line of it for a request without an answer; ``error`` is of `batch_error`."""
    made = batch_id(f"{name}:{error['line']}", 0)
    return {"id": f"batch_req_{made}", "custom_id": name, "response": None, "error": error}


def result_line(name: str, line: int, seed: int, run: Completion, complete: bool | None) -> Json:
    """Our own line: ``id, line, seed, finish_reason, stop, text, usage``, and ``tokens`` with their logprobs.

    ``complete``: is the text whole by its grammar; None without one. The tokens are as in the jsonl stream.
    """
    finish = run.finish
    return {
        "id": name,
        "line": line,
        "seed": seed,
        "finish_reason": finish.reason,
        **({} if complete is None else {"complete": complete}),
        "stop": finish.stop,
        "text": finish.text,
        "usage": usage(run.head, finish.completion_tokens),
        **({} if run.head.source is None else {"tokens": [fields(step) for step in run.steps]}),
        "error": None,
    }


def failure_line(name: str, error: Json) -> Json:
    """Our own line for a request without an answer; ``error`` is of `batch_error`."""
    return {"id": name, "line": error["line"], "error": error}


def batch_error(code: str, message: str, line: int, digest: str) -> Json:
    """Why there is no answer; ``line``, from 1, is where the request stands, ``digest`` that of its text."""
    return {"code": code, "message": f"line {line}: {message}", "line": line, "digest": digest}
