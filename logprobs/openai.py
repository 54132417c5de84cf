"""OpenAI's formats: complete answers, streamed chunks, server-sent events, and the lines of a batch's results.

Each format is a function of a run's events. Logitsmith adds the field ``logprobs_from``. A missing logprob is
null, where OpenAI writes -9999.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from ..common.strict_json import encode_json
from .events import Done, Event, PromptToken, Start, Token, read_start, split_events
from .records import TokenLogprob, TokenRecord, finite_or_none
from .text_tokens import TextOffsets, TextTokenStream, tokens_of_text

Json = dict[str, Any]


class LogprobShape(NamedTuple):
    """The contents of each token's logprobs.

    Attributes:
        has_both_forms: True if the logprobs of a text have the form of a chat, too, in the field ``content``, and
            those of a chat the lists of a text, as in Together's answers.
        has_all_requested: True if the alternatives also have the chosen token and the tokens requested by their
            ids, and if a token of a chat's form has the values of a second source and its trace, as in the lines
            of ``jsonl``. Otherwise there are only the most probable tokens of the first source.
        writes_token_ids: True if tokens are written as ``token_id:7``, as vLLM can do, instead of their texts.
    """

    has_both_forms: bool = False
    has_all_requested: bool = False
    writes_token_ids: bool = False

    def text(self, token: TokenLogprob) -> str:
        """Return the token's text, or its id."""
        return f"token_id:{token.id}" if self.writes_token_ids else token.text

    def alternatives(self, token: TokenRecord) -> Iterable[TokenLogprob]:
        """Return the tokens whose logprobs are listed at the position of a token."""
        if not self.has_all_requested or not token.distributions:
            return token.top
        by_id: dict[int, TokenLogprob] = {}
        for candidate in (*token.top, token.chosen, *token.distributions[0].named):
            by_id.setdefault(candidate.id, candidate)
        return by_id.values()


PLAIN = LogprobShape()
"""The shape of OpenAI's own answers."""


def text_completion(  # noqa: PLR0913 - the format depends on all of them
    events: Iterable[Event],
    answer_id: str,
    *,
    prompt: str = "",
    echo: bool = False,
    created: int | None = None,
    shape: LogprobShape = PLAIN,
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
        shape: the contents of each token's logprobs.
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
    logprobs = text_logprobs(start, (*echoed, *tokens) if echo else tokens, token_offsets, shape)
    choice = _text_choice(text, logprobs, finish_reason(done))
    return _text_fields(start, answer_id, created) | {"choices": [choice], "usage": usage(done)}


def text_chunks(
    events: Iterable[Event], answer_id: str, *, prompt: str = "", echo: bool = False, created: int | None = None
) -> Iterator[Json]:
    """Yield a run as the chunks of a ``text_completion``, see `TextChunks`.

    Args:
        events: the events of the run, which may still be running.
        answer_id: the answer's id, without the prefix that OpenAI's format adds.
        prompt: the prompt.
        echo: True if the answer begins with the prompt.
        created: the answer's time in seconds since 1970; None = now.
    """
    chunks = TextChunks(answer_id, prompt=prompt, echo=echo, created=created)
    for event in events:
        yield from chunks.push(event)


class TextChunks:
    """The chunks of a ``text_completion``, made from events that arrive one by one.

    There is a chunk for each token of `text_completion`. A chunk is returned once its text cannot change any more.
    The last chunk has text that was held back, the finish reason and the usage.

    Args:
        answer_id: the answer's id, without the prefix that OpenAI's format adds.
        prompt: the prompt.
        echo: True if the answer begins with the prompt.
        created: the answer's time in seconds since 1970; None = now.
        shape: the contents of each token's logprobs.
    """

    def __init__(
        self,
        answer_id: str,
        *,
        prompt: str = "",
        echo: bool = False,
        created: int | None = None,
        shape: LogprobShape = PLAIN,
    ) -> None:
        self._answer_id, self._prompt, self._echo, self._created = answer_id, prompt, echo, created
        self._shape = shape
        self._start: Start | None = None
        self._fields: Json = {}
        self._offsets, self._text_tokens = TextOffsets(), TextTokenStream()
        self._echoed: list[TokenRecord] = []

    def push(self, event: Event) -> Iterator[Json]:
        """Yield the chunks that are complete after this event. The first event must be a `Start`."""
        if self._start is None:
            self._start = read_start(iter([event]))
            self._fields = _text_fields(self._start, self._answer_id, self._created)
        elif isinstance(event, PromptToken):
            self._echoed.append(event.without_added_bytes())
        else:
            if self._echo:
                self._echo = False
                yield self._chunk(self._start, self._echoed, self._prompt)
                self._offsets.skip_to(len(self._prompt))
            yield from self._chunks_after_prompt(self._start, event)

    def _chunks_after_prompt(self, start: Start, event: Event) -> Iterator[Json]:
        tokens = self._text_tokens
        if isinstance(event, Token):
            yield from (self._chunk(start, [token], token.text) for token in tokens.push(event))
        elif isinstance(event, Done):
            yield from (self._chunk(start, [token], token.text) for token in tokens.finish(event.text, event.stop))
            held_back = event.text[tokens.text_length :]  # U+FFFD for an incomplete character
            choice = _text_choice(held_back, None, finish_reason(event))
            yield self._fields | {"choices": [choice], "usage": usage(event)}

    def _chunk(self, start: Start, tokens: Sequence[TokenRecord], text: str) -> Json:
        logprobs = text_logprobs(start, tokens, self._offsets.advance(tokens), self._shape)
        return self._fields | {"choices": [_text_choice(text, logprobs, None)]}


def _text_fields(start: Start, answer_id: str, created: int | None) -> Json:
    return _common_fields(start, f"cmpl-{answer_id}", "text_completion", created)


def _text_choice(text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}


def text_logprobs(
    start: Start, tokens: Sequence[TokenRecord], offsets: Sequence[int], shape: LogprobShape
) -> Json | None:
    """Return the logprobs of tokens as lists; None if the run has no logprobs.

    Args:
        start: the first event of the run.
        tokens: the tokens.
        offsets: the offset of each token in the text, in characters.
        shape: which lists and texts are written.
    """
    if start.logprobs is None:
        return None
    fields = _logprob_lists(start, tokens, shape) | {"text_offset": list(offsets)}
    if shape.has_both_forms:
        fields["content"] = [_chat_logprob(token, shape) for token in tokens]
    return fields


def _logprob_lists(start: Start, tokens: Sequence[TokenRecord], shape: LogprobShape) -> Json:
    logprobs = start.logprobs or {}
    has_alternatives = logprobs.get("top") or (shape.has_all_requested and logprobs.get("of"))
    return {
        "tokens": [shape.text(token.chosen) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
        "top_logprobs": [logprobs_by_text(token, shape) for token in tokens] if has_alternatives else None,
    }


def echoed_prompt(run: Sequence[Event], text: str, shape: LogprobShape = PLAIN) -> Json:
    """Return Together's record of a prompt: its text, and the logprobs of its tokens.

    Args:
        run: the events of a run with an echo.
        text: the prompt.
        shape: the contents of each token's logprobs.
    """
    start, prompt_tokens, _, _ = split_events(run)
    tokens = [token.without_added_bytes() for token in prompt_tokens]
    return {"text": text, "logprobs": None if start.logprobs is None else _logprob_lists(start, tokens, shape)}


def chat_completion(
    events: Iterable[Event], answer_id: str, *, created: int | None = None, shape: LogprobShape = PLAIN
) -> Json:
    """Return a run as a ``chat.completion``, with the tokens of `tokens_of_text`.

    Args:
        events: the events of the run.
        answer_id: the answer's id, without the prefix that OpenAI's format adds.
        created: the answer's time in seconds since 1970; None = now.
        shape: the contents of each token's logprobs.
    """
    start, _, tokens, done = split_events(events)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": done.text, "refusal": None},
        "logprobs": _chat_logprobs(start, tokens_of_text(tokens, done.text, done.stop), shape),
        "finish_reason": finish_reason(done),
    }
    fields = _common_fields(start, f"chatcmpl-{answer_id}", "chat.completion", created)
    return fields | {"choices": [choice], "usage": usage(done)}


def chat_chunks(events: Iterable[Event], answer_id: str, *, created: int | None = None) -> Iterator[Json]:
    """Yield a run as the chunks of a ``chat.completion``. For the arguments see `ChatChunks`."""
    chunks = ChatChunks(answer_id, created=created)
    for event in events:
        yield from chunks.push(event)


class ChatChunks:
    """The chunks of a ``chat.completion``, made from events that arrive one by one.

    The first chunk has the role. A chunk of a token is returned once its text cannot change any more. The last
    chunk has text that was held back, the finish reason and the usage.

    Args:
        answer_id: the answer's id, without the prefix that OpenAI's format adds.
        created: the answer's time in seconds since 1970; None = now.
        shape: the contents of each token's logprobs.
    """

    def __init__(self, answer_id: str, *, created: int | None = None, shape: LogprobShape = PLAIN) -> None:
        self._answer_id, self._created, self._shape = answer_id, created, shape
        self._start: Start | None = None
        self._fields: Json = {}
        self._text_tokens = TextTokenStream()

    def push(self, event: Event) -> Iterator[Json]:
        """Yield the chunks that are complete after this event. The first event must be a `Start`."""
        if self._start is None:
            self._start = start = read_start(iter([event]))
            self._fields = _common_fields(
                start, f"chatcmpl-{self._answer_id}", "chat.completion.chunk", self._created
            )
            yield self._chunk({"role": "assistant", "content": ""})
        elif isinstance(event, Token):
            yield from self._token_chunks(self._start, self._text_tokens.push(event))
        elif isinstance(event, Done):
            yield from self._token_chunks(self._start, self._text_tokens.finish(event.text, event.stop))
            held_back = event.text[self._text_tokens.text_length :]
            delta = {"content": held_back} if held_back else {}
            yield self._chunk(delta, reason=finish_reason(event)) | {"usage": usage(event)}

    def _token_chunks(self, start: Start, tokens: Iterable[TokenRecord]) -> Iterator[Json]:
        return (
            self._chunk({"content": token.text}, _chat_logprobs(start, [token], self._shape)) for token in tokens
        )

    def _chunk(self, delta: Json, logprobs: Json | None = None, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._fields | {"choices": [choice]}


def _chat_logprobs(start: Start, tokens: Sequence[TokenRecord], shape: LogprobShape = PLAIN) -> Json | None:
    if start.logprobs is None:
        return None
    content = {"content": [_chat_logprob(token, shape) for token in tokens], "refusal": None}
    return content | _logprob_lists(start, tokens, shape) if shape.has_both_forms else content


def _chat_logprob(token: TokenRecord, shape: LogprobShape) -> Json:
    alternatives = [_chat_token(alternative, shape) for alternative in shape.alternatives(token)]
    fields = _chat_token(token.chosen, shape) | {"top_logprobs": alternatives}
    if shape.has_all_requested:
        for distribution in token.distributions[1:]:
            others = [_chat_token(other, shape) for other in (*distribution.top, *distribution.named)]
            fields[distribution.source] = {
                "logprob": finite_or_none(distribution.logprob),
                "top_logprobs": others,
            }
        if token.trace is not None:
            fields["trace"] = token.trace.as_json()
    return fields


def _chat_token(token: TokenLogprob, shape: LogprobShape) -> Json:
    return {"token": shape.text(token), "logprob": finite_or_none(token.logprob), "bytes": list(token.data)}


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
    "banned": "stop",
    "loop": "stop",
}


def finish_reason(done: Done) -> str:
    """Return the finish reason in OpenAI's words: ``stop`` or ``length``."""
    return _OPENAI_FINISH_REASONS[done.finish_reason]


def merge_choices(bodies: Sequence[Json], choices_per_prompt: int) -> Json:
    """Return one answer with the choices of several, which are numbered.

    Args:
        bodies: answers with one choice each, those of a prompt one after another.
        choices_per_prompt: number of choices of each prompt, whose tokens are counted once.
    """
    choices = [body["choices"][0] | {"index": index} for index, body in enumerate(bodies)]
    total = total_usage([body["usage"] for body in bodies], choices_per_prompt)
    return bodies[0] | {"choices": choices, "usage": total}


def total_usage(usages: Sequence[Mapping[str, int]], choices_per_prompt: int) -> dict[str, int]:
    """Return the numbers of tokens of an answer with several choices; see `merge_choices`.

    ``loop_period`` is that of the first choice that ended in a loop.
    """
    prompt_tokens = sum(usage["prompt_tokens"] for usage in usages[::choices_per_prompt])
    completion_tokens = sum(usage["completion_tokens"] for usage in usages)
    periods = [usage["loop_period"] for usage in usages if "loop_period" in usage]
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        **({"loop_period": periods[0]} if periods else {}),
        **{
            name: sum(usage.get(name, 0) for usage in usages)
            for name in ("discarded_tokens", "draft_tokens", "accepted_tokens")
            if any(name in usage for usage in usages)
        },
    }


def usage(done: Done) -> dict[str, int]:
    """Return OpenAI's ``usage``, the numbers of tokens. Logitsmith adds those of bans, loops and drafts."""
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        **({} if done.discarded_tokens is None else {"discarded_tokens": done.discarded_tokens}),
        **({} if done.loop_period is None else {"loop_period": done.loop_period}),
        **({} if done.drafted_tokens is None else {"draft_tokens": done.drafted_tokens}),
        **({} if done.accepted_tokens is None else {"accepted_tokens": done.accepted_tokens}),
    }


def logprobs_by_text(token: TokenRecord, shape: LogprobShape = PLAIN) -> dict[str, float | None] | None:
    """Return the logprobs of the most probable tokens and the chosen one, by the text of the token.

    Of tokens with equal text, the most probable one is kept. Returns None if the token has no distribution.
    """
    if not token.distributions:
        return None
    logprobs: dict[str, float | None] = {}
    for candidate in (*shape.alternatives(token), token.chosen):
        value = finite_or_none(candidate.logprob)
        if value is not None:
            logprobs.setdefault(shape.text(candidate), value)
    return logprobs


def prompt_logprobs(tokens: Iterable[PromptToken], count: int) -> list[dict[str, Json] | None]:
    """Return vLLM's ``prompt_logprobs``: by token id, the token of the prompt first; None for the first token.

    Args:
        tokens: the tokens of the prompt.
        count: number of most probable tokens at each position.
    """
    return [_ranked_logprobs(token, count) if token.distributions else None for token in tokens]


def _ranked_logprobs(token: TokenRecord, count: int) -> dict[str, Json]:
    ranks = {candidate.id: rank for rank, candidate in enumerate(token.top, 1)}
    entries = (token.chosen, *token.top[:count])
    return {
        str(entry.id): {
            "logprob": finite_or_none(entry.logprob),
            "rank": ranks.get(entry.id),
            "decoded_token": entry.text,
        }
        for entry in entries
    }


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
