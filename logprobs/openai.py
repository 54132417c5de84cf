"""OpenAI's formats: complete answers, streamed chunks, server-sent events, and the lines of a batch's results.

Each format is a function of a run's events. Logitsmith adds the field ``logprobs_from``. A missing logprob is
null, where OpenAI writes -9999.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from ..common.strict_json import encode_json
from .events import Done, Event, PromptToken, Start, Token, read_start, split_events
from .records import TokenLogprob, TokenRecord, display_text, finite_or_none
from .text_tokens import TextOffsets, TextTokenStream, tokens_of_text

Json = dict[str, Any]


def text_completion(
    events: Iterable[Event], answer_id: str, *, prompt: str = "", echo: bool = False, created: int | None = None
) -> Json:
    """Return a run as a ``text_completion``. With ``echo``, text and logprobs begin with the prompt.

    The tokens are those of `tokens_of_text`. Echoed tokens lack the space that the tokenizer adds. A BOS token
    that the tokenizer adds is listed first, but is not part of the text.

    Args:
        events: the events of the run.
        answer_id: the answer's id, without the prefix that OpenAI's format adds.
        prompt: the prompt.
        echo: True if the answer begins with the prompt.
        created: the answer's time in seconds since 1970; None = now.
    """
    start, prompt_tokens, all_tokens, done = split_events(events)
    tokens: Sequence[TokenRecord] = tokens_of_text(all_tokens, done.text, done.stop)
    text, offsets = done.text, TextOffsets()
    token_offsets = []
    if echo:
        echoed = tuple(token.without_added_bytes() for token in prompt_tokens)
        token_offsets = offsets.advance(echoed)
        offsets.skip_to(len(prompt))
        text = prompt + text
    token_offsets += offsets.advance(tokens)
    logprobs = _text_logprobs(start, (*echoed, *tokens) if echo else tokens, token_offsets)
    choice = _text_choice(text, logprobs, finish_reason(done))
    return _text_fields(start, answer_id, created) | {"choices": [choice], "usage": usage(done)}


def text_chunks(
    events: Iterable[Event], answer_id: str, *, prompt: str = "", echo: bool = False, created: int | None = None
) -> Iterator[Json]:
    """Yield a run as the chunks of a ``text_completion``, a chunk for each token of `text_completion`.

    A chunk is yielded once its text cannot change any more. The last chunk has text that was held back, the finish
    reason and the usage.

    Args:
        events: the events of the run, which may still be running.
        answer_id: the answer's id, without the prefix that OpenAI's format adds.
        prompt: the prompt.
        echo: True if the answer begins with the prompt.
        created: the answer's time in seconds since 1970; None = now.
    """
    events = iter(events)
    start = read_start(events)
    fields = _text_fields(start, answer_id, created)
    offsets, text_tokens = TextOffsets(), TextTokenStream()
    echoed: list[TokenRecord] = []

    def chunk(tokens: Sequence[TokenRecord], text: str) -> Json:
        logprobs = _text_logprobs(start, tokens, offsets.advance(tokens))
        return fields | {"choices": [_text_choice(text, logprobs, None)]}

    for event in events:
        if isinstance(event, PromptToken):
            echoed.append(event.without_added_bytes())
            continue
        if echo:
            echo = False
            yield chunk(echoed, prompt)
            offsets.skip_to(len(prompt))
        if isinstance(event, Token):
            yield from (chunk([token], token.text) for token in text_tokens.push(event))
        elif isinstance(event, Done):
            yield from (chunk([token], token.text) for token in text_tokens.finish(event.text, event.stop))
            held_back = event.text[text_tokens.text_length :]  # U+FFFD for an incomplete character
            choice = _text_choice(held_back, None, finish_reason(event))
            yield fields | {"choices": [choice], "usage": usage(event)}


def _text_fields(start: Start, answer_id: str, created: int | None) -> Json:
    return _common_fields(start, f"cmpl-{answer_id}", "text_completion", created)


def _text_choice(text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}


def _text_logprobs(start: Start, tokens: Sequence[TokenRecord], offsets: Sequence[int]) -> Json | None:
    if start.logprobs is None:
        return None
    return {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
        "top_logprobs": [logprobs_by_text(token) for token in tokens] if start.logprobs["top"] else None,
        "text_offset": list(offsets),
    }


def chat_completion(events: Iterable[Event], answer_id: str, *, created: int | None = None) -> Json:
    """Return a run as a ``chat.completion``, with the tokens of `tokens_of_text`.

    For the arguments see `text_completion`.
    """
    start, _, tokens, done = split_events(events)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": done.text, "refusal": None},
        "logprobs": _chat_logprobs(start, tokens_of_text(tokens, done.text, done.stop)),
        "finish_reason": finish_reason(done),
    }
    fields = _common_fields(start, f"chatcmpl-{answer_id}", "chat.completion", created)
    return fields | {"choices": [choice], "usage": usage(done)}


def chat_chunks(events: Iterable[Event], answer_id: str, *, created: int | None = None) -> Iterator[Json]:
    """Yield a run as the chunks of a ``chat.completion``. For the arguments see `text_completion`.

    The first chunk has the role. A chunk of a token is yielded once its text cannot change any more. The last
    chunk has text that was held back, the finish reason and the usage.
    """
    events = iter(events)
    start = read_start(events)
    fields = _common_fields(start, f"chatcmpl-{answer_id}", "chat.completion.chunk", created)
    text_tokens = TextTokenStream()

    def chunk(delta: Json, logprobs: Json | None = None, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return fields | {"choices": [choice]}

    def token_chunks(tokens: Iterable[TokenRecord]) -> Iterator[Json]:
        return (chunk({"content": token.text}, _chat_logprobs(start, [token])) for token in tokens)

    yield chunk({"role": "assistant", "content": ""})
    for event in events:
        if isinstance(event, Token):
            yield from token_chunks(text_tokens.push(event))
        elif isinstance(event, Done):
            yield from token_chunks(text_tokens.finish(event.text, event.stop))
            held_back = event.text[text_tokens.text_length :]
            delta = {"content": held_back} if held_back else {}
            yield chunk(delta, reason=finish_reason(event)) | {"usage": usage(event)}


def _chat_logprobs(start: Start, tokens: Sequence[TokenRecord]) -> Json | None:
    if start.logprobs is None:
        return None
    content = [
        _chat_token(token.chosen) | {"top_logprobs": [_chat_token(top) for top in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}


def _chat_token(token: TokenLogprob) -> Json:
    return {"token": token.text, "logprob": finite_or_none(token.logprob), "bytes": list(token.data)}


def _common_fields(start: Start, response_id: str, kind: str, created: int | None) -> Json:
    """Return the fields that every response has."""
    return {
        "id": response_id,
        "object": kind,
        "created": int(time.time()) if created is None else created,
        "model": start.model,
        "system_fingerprint": f"logitsmith-{start.versions['logitsmith']}",
        "logprobs_from": logprob_source(start),
    }


def logprob_source(start: Start) -> str | None:
    """Return the source of a run's logprobs, ``model`` or ``chain``; None if the run has no logprobs."""
    return None if start.logprobs is None else start.logprobs["from"]


_OPENAI_FINISH_REASONS = {
    "stop": "stop",
    "grammar": "stop",
    "length": "length",
    "context": "length",
    "interrupted": "length",
}


def finish_reason(done: Done) -> str:
    """Return the finish reason in OpenAI's words: ``stop`` or ``length``."""
    return _OPENAI_FINISH_REASONS[done.finish_reason]


def usage(done: Done) -> dict[str, int]:
    """Return OpenAI's ``usage``, the numbers of tokens."""
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
    }


def logprobs_by_text(token: TokenRecord) -> dict[str, float | None] | None:
    """Return the logprobs of the most probable tokens and the chosen one, by the text of the token.

    Of tokens with equal text, the most probable one is kept. Returns None if the token has no distribution.
    """
    if not token.distributions:
        return None
    logprobs: dict[str, float | None] = {}
    for candidate in (*token.top, token.chosen):
        value = finite_or_none(candidate.logprob)
        if value is not None:
            logprobs.setdefault(display_text(candidate.data), value)
    return logprobs


SERVER_SENT_DONE = "data: [DONE]\n\n"
"""The last event of a stream."""


def server_sent(data: Mapping[str, Any]) -> str:
    """Return a server-sent event with this JSON. The event is one line, because JSON escapes newlines."""
    return f"data: {encode_json(data)}\n\n"


_ID_DIGITS = 24  # the length of the random ids of single runs
_PREFIX = "batch_req_"


def batch_id(name: str, request_digest: str, settings_digest: str) -> str:
    """Return the answer's id: 24 hexadecimal digits that are equal for equal requests.

    Args:
        name: the request's id.
        request_digest: digest of the request's line.
        settings_digest: digest of the model and the flags, on which the answer depends, too.
    """
    return sha256(f"{settings_digest}:{request_digest}:{name}".encode()).hexdigest()[:_ID_DIGITS]


def openai_result_line(name: str, answer_id: str, body: Json) -> Json:
    """Return the line of an answer in OpenAI's batch output.

    Args:
        name: the request's ``custom_id``.
        answer_id: the answer's id, without the prefix that OpenAI's format adds.
        body: an object that `text_completion` or `chat_completion` returns.
    """
    response = {"status_code": 200, "request_id": answer_id, "body": body}
    return {"id": _PREFIX + answer_id, "custom_id": name, "response": response, "error": None}


def openai_failure_line(name: str, error: Json) -> Json:
    """Return the line of a request without an answer in OpenAI's batch output.

    Args:
        name: the request's ``custom_id``.
        error: an object that `batch_error` returns.
    """
    request_id = batch_id(name, error["digest"], str(error["line"]))
    return {"id": _PREFIX + request_id, "custom_id": name, "response": None, "error": error}


def batch_error(code: str, message: str, line: int, digest: str) -> Json:
    """Return the JSON fields of the error of a request without an answer.

    Args:
        code: the kind of the failure.
        message: the reason, as a sentence.
        line: number of the request's line in the input, counted from 1.
        digest: digest of the request's line.
    """
    return {"code": code, "message": f"line {line}: {message}", "line": line, "digest": digest}
