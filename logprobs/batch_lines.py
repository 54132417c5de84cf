"""The lines of a batch's results, in OpenAI's format and in ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from ..common.strict_json import encode_json
from .completion import Completion, usage
from .jsonl_lines import token_members
from .openai_format import chat_completion, text_completion
from .records import TokenRecord

Json = dict[str, Any]

_ID_DIGITS = 24  # as many as the random ids of single runs have
_PREFIX = "batch_req_"


def batch_id(name: str, request_digest: str, settings_digest: str) -> str:
    """24 hexadecimal digits that are the same for the same request in every run.

    Args:
        name: the request's id.
        request_digest: the digest of its text.
        settings_digest: the digest of all else that its answer depends on.
    """
    return sha256(f"{settings_digest}:{request_digest}:{name}".encode()).hexdigest()[:_ID_DIGITS]


def openai_result_line(name: str, completion: Completion, chat: bool) -> Json:
    """The line of an answer in OpenAI's batch output.

    Args:
        name: the request's ``custom_id``.
        completion: the run.
        chat: True for a ``chat.completion``, False for a ``text_completion``.
    """
    body = chat_completion(completion) if chat else text_completion(completion)
    response = {"status_code": 200, "request_id": completion.head.id, "body": body}
    return {"id": _PREFIX + completion.head.id, "custom_id": name, "response": response, "error": None}


def openai_failure_line(name: str, error: Json) -> Json:
    """The line of a request without an answer in OpenAI's batch output; ``error`` is made by `batch_error`."""
    request_id = batch_id(name, error["digest"], str(error["line"]))
    return {"id": _PREFIX + request_id, "custom_id": name, "response": None, "error": error}


def result_line(  # noqa: PLR0913 - the fields of a line
    name: str,
    line: int,
    completion: Completion,
    complete: bool | None,
    *,
    seed: int,
    exactness: str,
    worker: Mapping[str, Any] | None = None,
) -> str:
    """Our line of an answer: ``id, line, request_id, model, seed, finish_reason, stop, text, usage``; ``tokens``
    if they are read.

    Args:
        name: the request's id.
        line: the line of the request, from 1.
        completion: the run. Its tokens have the fields of the jsonl stream; they are left out if
            they have neither logprobs nor a trace.
        complete: True if the text is a whole sentence of its grammar; None without a grammar.
        seed: the request's seed.
        exactness: whether other requests can have changed the answer.
        worker: what computed the answer; None on one machine.
    """
    finish = completion.finish
    has_tokens = completion.head.source is not None or any(token.trace for token in completion.tokens)
    fields = {
        "id": name,
        "line": line,
        "request_id": completion.head.id,
        "model": completion.head.model,
        "seed": seed,
        "finish_reason": finish.reason,
        **({} if complete is None else {"complete": complete}),
        "stop": finish.stop,
        "text": finish.text,
        "usage": usage(completion.head, finish.completion_tokens),
        "batch_exactness": exactness,
    }
    tokens = ", ".join(f"{{{token_members(token)}}}" for token in _whole_texts(completion)) if has_tokens else ""
    members = [
        encode_json(fields)[1:-1],
        *([f'"tokens": [{tokens}]'] if has_tokens else []),
        '"error": null',
        *([] if worker is None else [f'"worker": {encode_json(worker)}']),
    ]
    return f"{{{', '.join(members)}}}"


def _whole_texts(completion: Completion) -> list[TokenRecord]:
    """The tokens; what was held back until the end of the run is added to the text of the last one."""
    tokens = list(completion.tokens)
    rest = completion.finish.text[sum(len(token.text) for token in tokens) :]
    if tokens and rest:
        tokens[-1] = replace(tokens[-1], text=tokens[-1].text + rest)
    return tokens


def failure_line(name: str, error: Json) -> Json:
    """Our line of a request without an answer; ``error`` is made by `batch_error`."""
    return {"id": name, "line": error["line"], "error": error}


def batch_error(code: str, message: str, line: int, digest: str) -> Json:
    """Why a request has no answer.

    Args:
        code: the kind of the failure.
        message: a sentence.
        line: the line of the request, from 1.
        digest: the digest of the request's text.
    """
    return {"code": code, "message": f"line {line}: {message}", "line": line, "digest": digest}
