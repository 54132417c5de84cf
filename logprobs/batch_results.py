"""The lines of a batch's results: logitsmith's own, and those of OpenAI's batch output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from .events import Done, Event, Token, events_by_kind
from .jsonl import confidence_fields, token_fields
from .openai import Json, token_counts

_ID_DIGITS = 24  # the length of the random ids of single runs
_PREFIX = "batch_req_"


def batch_id(name: str, request_digest: str, settings_digest: str) -> str:
    """Return the answer's id: 24 hexadecimal digits that are equal for equal requests."""
    # ``settings_digest``: of the model and the flags, on which the answer depends, too.
    return sha256(f"{settings_digest}:{request_digest}:{name}".encode()).hexdigest()[:_ID_DIGITS]


def openai_result_line(name: str, answer_id: str, body: Json) -> Json:
    """Return the line of an answer in OpenAI's batch output. ``name``: the request's ``custom_id``."""
    response = {"status_code": 200, "request_id": answer_id, "body": body}
    return {"id": _PREFIX + answer_id, "custom_id": name, "response": response, "error": None}


def openai_failure_line(name: str, error: Json) -> Json:
    """Return the line of a request without an answer in OpenAI's batch output. ``error``: see `batch_error`."""
    request_id = batch_id(name, error["digest"], str(error["line"]))
    return {"id": _PREFIX + request_id, "custom_id": name, "response": None, "error": error}


def batch_error(code: str, message: str, line: int, digest: str, counts: Mapping[str, int] | None = None) -> Json:
    """Return the JSON fields of the error of a request without an answer."""
    # ``digest``: of the request's line; ``counts``: more fields, the numbers that the failure is about.
    return {"code": code, "message": f"line {line}: {message}", "line": line, "digest": digest, **(counts or {})}


def result_line(  # noqa: PLR0913 - the fields of a line
    events: Iterable[Event],
    name: str,
    line: int,
    *,
    answer_id: str,
    exactness: str,
    worker: Mapping[str, Any] | None = None,
) -> Json:
    """Return the line of an answer in a batch's results."""
    # It has the fields ``id, line, request_id, model, seed, finish_reason, stop, text, confidence, usage,
    # batch_exactness, error``. ``complete`` is added under a grammar, ``reasoning`` if the text has parts,
    # ``score`` by a beam search, ``fields`` if their confidence is asked for, ``tokens`` if they have logprobs or
    # traces, and ``worker`` on a cluster. Each of ``tokens`` has the fields of `token_fields`.
    run = events_by_kind(events)
    start, tokens, done = run.start, run.tokens, run.done
    fields: Json = {
        "id": name,
        "line": line,
        "request_id": answer_id,
        "model": start.model,
        "seed": start.seed,
        "finish_reason": done.finish_reason,
        **({} if done.complete is None else {"complete": done.complete}),
        "stop": done.stop,
        "text": done.text,
        **({} if done.reasoning is None else {"reasoning": done.reasoning}),
        **({} if done.score is None else {"score": done.score}),
        **confidence_fields(start, done),
        "usage": token_counts([done]),
        "batch_exactness": exactness,
    }
    if start.logprobs is not None or any(token.trace for token in tokens):
        fields["tokens"] = [token_fields(token) for token in _add_rest_to_last(tokens, done)]
    fields["error"] = None
    return fields if worker is None else fields | {"worker": worker}


def _add_rest_to_last(tokens: Sequence[Token], done_event: Done) -> list[Token]:
    """Return the tokens. The last one also gets the text that was held back until the end of the run."""
    completed_tokens = list(tokens)
    rest_of_text = done_event.complete_text[sum(len(token.text) for token in completed_tokens) :]
    if completed_tokens and rest_of_text:
        completed_tokens[-1] = replace(completed_tokens[-1], text=completed_tokens[-1].text + rest_of_text)
    return completed_tokens


def failure_line(name: str, error: Json) -> Json:
    """Return the line of a request without an answer in a batch's results. ``error``: see `batch_error`."""
    return {"id": name, "line": error["line"], "error": error}
