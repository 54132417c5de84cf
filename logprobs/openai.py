"""OpenAI's formats: whole answers, streamed chunks, server-sent events, and the lines of a batch's results.

All are made of a `Completion`, as are the formats of other APIs. One field is logitsmith's: ``logprobs_from``. A
missing logprob is null, where OpenAI writes -9999. A line of a batch can also have logitsmith's format.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..common.strict_json import encode_json
from .jsonl import token_members
from .records import LogprobSource, TokenLogprob, TokenRecord, display_text, finite_or_none

if TYPE_CHECKING:
    from .events import Done, Start


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


def completion_head(start: Start, completion_id: str, prompt: str) -> CompletionHead:
    """The head of a completion that begins now; ``completion_id`` without the prefix of a format."""
    logprob_facts = start.logprobs
    return CompletionHead(
        id=completion_id,
        created=int(time.time()),
        model=start.model,
        prompt=prompt,
        source=None if logprob_facts is None else logprob_facts["from"],
        top=0 if logprob_facts is None else logprob_facts["top"],
        prompt_tokens=start.prompt_tokens,
        version=start.versions["logitsmith"],
    )


def completion_finish(done: Done) -> CompletionFinish:
    """How a run ended."""
    return CompletionFinish(
        reason=done.finish_reason,
        stop=done.stop,
        text=done.text,
        completion_tokens=done.completion_tokens,
        truncated=done.finish_reason == "context",
    )


Json = dict[str, Any]


def text_completion(completion: Completion) -> Json:
    """A whole run as a ``text_completion``; with ``echo``, text and logprobs begin with the prompt.

    The tokens are those of the text, see `tokens_of_text`. Echoed tokens lack the space that a tokenizer adds; a
    BOS token that it adds is the first one, and not part of the text.
    """
    head, finish = completion.head, completion.finish
    offsets = TextOffsets()
    written, text = tokens_of_text(completion.tokens, finish.text, finish.stop), finish.text
    tokens, token_offsets = written, []
    if completion.echo is not None:
        echo = tuple(map(TokenRecord.without_added_bytes, completion.echo))
        tokens = (*echo, *written)
        token_offsets = offsets.of(echo)
        offsets.skip_to(len(head.prompt))
        text = head.prompt + text
    token_offsets += offsets.of(written)
    choice = _text_choice(text, _text_logprobs(head, tokens, token_offsets), finish_reason(finish))
    return _text_head(head) | {"choices": [choice], "usage": usage(head, finish.completion_tokens)}


def text_chunk(head: CompletionHead, tokens: Sequence[TokenRecord], offsets: Sequence[int], text: str) -> Json:
    """A streamed chunk of a ``text_completion``.

    Args:
        head: the run's head.
        tokens: the chunk's tokens.
        offsets: where each begins in the text, in characters.
        text: the text that can be shown once they are there.
    """
    choice = _text_choice(text, _text_logprobs(head, tokens, offsets), None)
    return _text_head(head) | {"choices": [choice]}


def text_last_chunk(head: CompletionHead, finish: CompletionFinish, held_back: str) -> Json:
    """The last chunk: the text that was held back, the finish reason and the usage."""
    choice = _text_choice(held_back, None, finish_reason(finish))
    return _text_head(head) | {"choices": [choice], "usage": usage(head, finish.completion_tokens)}


def _text_head(head: CompletionHead) -> Json:
    return _head_fields(head, f"cmpl-{head.id}", "text_completion")


def _text_choice(text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}


def _text_logprobs(head: CompletionHead, tokens: Sequence[TokenRecord], offsets: Sequence[int]) -> Json | None:
    if head.source is None:
        return None
    return {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
        "top_logprobs": [logprobs_by_text(token) for token in tokens] if head.top else None,
        "text_offset": list(offsets),
    }


def chat_completion(completion: Completion) -> Json:
    """A whole run as a ``chat.completion``. The tokens are those of the message, see `tokens_of_text`."""
    head, finish = completion.head, completion.finish
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": finish.text, "refusal": None},
        "logprobs": _chat_logprobs(head, tokens_of_text(completion.tokens, finish.text, finish.stop)),
        "finish_reason": finish_reason(finish),
    }
    return _chat_head(head, "chat.completion") | {
        "choices": [choice],
        "usage": usage(head, finish.completion_tokens),
    }


def chat_first_chunk(head: CompletionHead) -> Json:
    """The first chunk of a chat, which names the role."""
    return _chat_chunk(head, {"role": "assistant", "content": ""}, None, None)


def chat_chunk(head: CompletionHead, token: TokenRecord) -> Json:
    """A streamed chunk of a chat: one token."""
    return _chat_chunk(head, {"content": token.text}, _chat_logprobs(head, [token]), None)


def chat_last_chunk(head: CompletionHead, finish: CompletionFinish, held_back: str) -> Json:
    """The last chunk of a chat: the text that was held back, the finish reason and the usage."""
    delta = {"content": held_back} if held_back else {}
    chunk = _chat_chunk(head, delta, None, finish_reason(finish))
    return chunk | {"usage": usage(head, finish.completion_tokens)}


def _chat_head(head: CompletionHead, kind: str) -> Json:
    return _head_fields(head, f"chatcmpl-{head.id}", kind)


def _chat_chunk(head: CompletionHead, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    return _chat_head(head, "chat.completion.chunk") | {"choices": [choice]}


def _chat_logprobs(head: CompletionHead, tokens: Sequence[TokenRecord]) -> Json | None:
    if head.source is None:
        return None
    content = [
        _chat_token(token.chosen) | {"top_logprobs": [_chat_token(top) for top in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}


def _chat_token(token: TokenLogprob) -> Json:
    return {"token": token.text, "logprob": finite_or_none(token.logprob), "bytes": list(token.data)}


def _head_fields(head: CompletionHead, response_id: str, kind: str) -> Json:
    """The fields with which every response begins."""
    return {
        "id": response_id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": f"logitsmith-{head.version}",
        "logprobs_from": head.source,
    }


_OPENAI_FINISH_REASONS = {
    "stop": "stop",
    "grammar": "stop",
    "length": "length",
    "context": "length",
    "interrupted": "length",
}


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


def tokens_of_text(
    tokens: Sequence[TokenRecord], text: str, stop: str | None, *, keeps_control_tokens: bool = False
) -> tuple[TokenRecord, ...]:
    """Return the tokens that wrote a text; their bytes joined are the bytes of the text.

    Control tokens, such as the one that ended the text, are not in it. A token in which a stop text begins keeps
    the bytes before the stop text, and the tokens after it are left out. Bytes that are not UTF-8 stay as they are
    where the text has U+FFFD.

    Args:
        tokens: all tokens of a run.
        text: the text of the run.
        stop: the stop text that ended the run; None if the text is all that the tokens wrote.
        keeps_control_tokens: True to return control tokens, too, without bytes.
    """
    kept: list[TokenRecord] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    written = b"".join(token.data for token in tokens if not token.special)
    remaining = len(written) if stop is None else _byte_length(written, text)
    for token in tokens:
        if token.special:
            if keeps_control_tokens:
                kept.append(replace(token, data=b""))
            continue
        data = token.data[:remaining]
        if token.data and not data:
            break
        remaining -= len(data)
        kept.append(replace(token, data=data, text=decoder.decode(data)))
        if len(data) < len(token.data):
            break
    return tuple(kept)


def _byte_length(data: bytes, text: str) -> int:
    """Return how many of the first bytes a text was decoded from, with U+FFFD for bytes that are not UTF-8."""
    encoded = text.encode(errors="surrogatepass")
    if data.startswith(encoded):
        return len(encoded)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    count = 0
    for position in range(len(data)):
        unfinished = len(decoder.getstate()[0])
        if count == len(text):
            return position - unfinished
        count += len(decoder.decode(data[position : position + 1]))
        if count > len(text):  # U+FFFD for the unfinished bytes, and the character of this byte
            return position
    return len(data) - (len(decoder.getstate()[0]) if count == len(text) else 0)


class TextTokenStream:
    """Passes tokens on as soon as it is certain that they are part of the text.

    The tokens of a character, and those of a text that may be the beginning of a stop text, wait for one another.
    All tokens that are passed on are those of `tokens_of_text`.

    Attributes:
        text_length: characters of the tokens that were passed on.
    """

    def __init__(self) -> None:
        self.text_length = 0
        self._shown_length = 0
        self._waiting: list[TokenRecord] = []

    def push(self, token: TokenRecord) -> tuple[TokenRecord, ...]:
        """Take the next token of a run, and return the tokens that are certain now."""
        self._waiting.append(token)
        self._shown_length += len(token.text)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        length = certain = certain_length = 0
        for count, waiting in enumerate(self._waiting, 1):
            length += 0 if waiting.special else len(decoder.decode(waiting.data))
            if self.text_length + length > self._shown_length:
                break
            if not decoder.getstate()[0]:
                certain, certain_length = count, length
        ready, self._waiting = self._waiting[:certain], self._waiting[certain:]
        self.text_length += certain_length
        decoder.reset()
        return tuple(replace(one, text=decoder.decode(one.data)) for one in ready if not one.special)

    def finish(self, text: str, stop: str | None) -> tuple[TokenRecord, ...]:
        """Return the last tokens of the text.

        Args:
            text: the whole text of the run.
            stop: the stop text that ended the run; None if there is none.
        """
        last = tokens_of_text(self._waiting, text[self.text_length :], stop)
        self.text_length += sum(len(token.text) for token in last)
        self._waiting = []
        return last


class HeldBackText:
    """Finds whether a part of the text is held back after a token: of a character, or of a stop text perhaps."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._hidden_length = 0

    def is_held_back(self, token: TokenRecord) -> bool:
        """Take the next token of a run. Return True if the text up to the token's end is not shown whole."""
        if not token.special:
            self._hidden_length += len(self._decoder.decode(token.data)) - len(token.text)
        return self._hidden_length > 0 or bool(self._decoder.getstate()[0])


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


SERVER_SENT_DONE = "data: [DONE]\n\n"
"""The end of a stream."""


def server_sent(data: Mapping[str, Any]) -> str:
    """One event that holds JSON. JSON escapes the newlines of a text, so that the event is one line."""
    return f"data: {encode_json(data)}\n\n"


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
