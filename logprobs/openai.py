"""OpenAI's formats: whole answers, streamed chunks, and server-sent events.

Logitsmith adds the field ``logprobs_from``. A missing logprob is null, where OpenAI writes -9999.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from ..common.strict_json import encode_json
from .chunks import Chunk, ChunkMaker, Prompt, join_chunks
from .confidence import join_confidences
from .events import Done, Event, PromptToken, Start
from .parts import join_parts
from .records import TokenLogprob, TokenRecord, display_text, finite_or_none
from .text_tokens import TextToken

Json = dict[str, Any]


ReasoningFormat = Literal["auto", "none", "deepseek", "deepseek-legacy"]
"""Where a message has the reasoning, as in llama-server.

``auto`` and ``deepseek``: in ``reasoning_content``. ``none``: in the content, with its tags. ``deepseek-legacy``:
in both.
"""


class LogprobShape(NamedTuple):
    """The contents of each token's logprobs."""

    # A text has lists of logprobs, and a chat has objects in the field `content`. If true, both have both, as in
    # Together's answers.
    has_both_forms: bool = False
    # If true, the alternatives include the tokens that were requested by their ids. The objects of a chat also
    # have the values of a second source, and the trace, as in the lines of jsonl. If false, there are only the
    # most probable tokens of the first source.
    has_all_requested: bool = False
    # If true, the alternatives in the objects of a chat include the chosen token. Those in lists always do.
    adds_chosen: bool = False
    # If true, tokens are written as `token_id:7`, as vLLM can do, and not as texts.
    writes_token_ids: bool = False
    # The number of most probable tokens that are listed; None: all that were read.
    top_count: int | None = None
    missing_logprob: float | None = None  # written for a logprob that is not finite

    def number(self, logprob: float | None) -> float | None:
        """Return a logprob as JSON can write it."""
        finite_logprob = finite_or_none(logprob)
        return self.missing_logprob if finite_logprob is None else finite_logprob

    def text(self, token: TokenLogprob) -> str:
        """Return the token's text, or its id."""
        return _token_id_text(token.id) if self.writes_token_ids else token.text

    def part_text(self, token: TextToken) -> str:
        """Return the token's part of the text, or its id."""
        return _token_id_text(token.id) if self.writes_token_ids else display_text(token.data)

    def top(self, token: TokenRecord) -> tuple[TokenLogprob, ...]:
        """Return the most probable tokens that are listed at the position of a token."""
        return token.top[: self.top_count]

    def alternatives(self, token: TokenRecord, *, adds_chosen: bool) -> Iterable[TokenLogprob]:
        """Return the tokens whose logprobs are listed at the position of a token, each once."""
        candidates = list(self.top(token))
        if adds_chosen and token.distributions:
            candidates.append(token.chosen)
        if self.has_all_requested and token.distributions:
            candidates += token.distributions[0].named
        by_id: dict[int, TokenLogprob] = {}
        for candidate in candidates:
            by_id.setdefault(candidate.id, candidate)
        return by_id.values()


def _token_id_text(token_id: int) -> str:
    return f"token_id:{token_id}"


# The shape of OpenAI's own answers.
PLAIN = LogprobShape()


class OpenAIAnswer(ABC):
    """An answer as JSON: its chunks, and the whole, which is the chunks of all its choices, joined."""

    # ``answer_id``: without the prefix that OpenAI's format adds; ``created``: seconds since 1970; None = now.

    _ID_PREFIX: ClassVar[str]
    _OBJECT: ClassVar[str]
    _CHUNK_OBJECT: ClassVar[str]

    def __init__(self, answer_id: str, *, created: int | None = None, shape: LogprobShape = PLAIN) -> None:
        self._id = self._ID_PREFIX + answer_id
        self._created = int(time.time()) if created is None else created
        self._shape = shape

    @abstractmethod
    def chunk_maker(self, index: int = 0, prompt: str = "") -> ChunkMaker:
        """Return what makes the chunks of a choice. ``index``: the choice's number."""

    @abstractmethod
    def _choice(self, choice: Chunk) -> Json:
        """Return a choice of a whole answer."""

    def _chunk_choice(self, chunk: Chunk) -> Json:
        """Return the only choice of a chunk."""
        return self._choice(chunk)

    def chunks(self, events: Iterable[Event], index: int = 0, prompt: str = "") -> Iterator[Chunk]:
        """Yield the chunks of a choice, whose run may still be running."""
        maker = self.chunk_maker(index, prompt)
        for event in events:
            yield from maker.push(event)

    def whole(self, chunks: Iterable[Chunk], choices_per_prompt: int | None = None) -> Json:
        """Return the whole answer. For ``choices_per_prompt`` see `total_usage`."""
        choices = join_chunks(chunks)
        dones = [choice.done for choice in choices if choice.done is not None]
        return self._head(choices[0].start, self._OBJECT) | {
            "choices": [self._choice(choice) for choice in choices],
            "usage": total_usage(dones, choices_per_prompt),
        }

    def chunk(self, chunk: Chunk) -> Json:
        """Return a chunk as JSON, without the usage."""
        return self._head(chunk.start, self._CHUNK_OBJECT) | {"choices": [self._chunk_choice(chunk)]}

    def usage_chunk(self, start: Start, dones: Sequence[Done], choices_per_prompt: int) -> Json:
        """Return a chunk that has nothing but the usage of all choices."""
        return self._head(start, self._CHUNK_OBJECT) | {
            "choices": [],
            "usage": total_usage(dones, choices_per_prompt),
        }

    def stream(self, events: Iterable[Event], prompt: str = "") -> Iterator[Json]:
        """Yield the chunks of an answer with one choice as JSON. The last chunk has the usage."""
        for chunk in self.chunks(events, prompt=prompt):
            last_fields = {} if chunk.done is None else {"usage": usage(chunk.done)}
            yield self.chunk(chunk) | last_fields

    def _head(self, start: Start, kind: str) -> Json:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": start.model,
            "system_fingerprint": fingerprint(start),
            "logprobs_from": logprob_source(start),
        }


class TextAnswer(OpenAIAnswer):
    """A ``text_completion``. With ``echo``, text and logprobs begin with the prompt."""

    # The logprobs have all tokens, also those that are not part of the text.

    _ID_PREFIX = "cmpl-"
    _OBJECT = _CHUNK_OBJECT = "text_completion"

    def __init__(
        self, answer_id: str, *, echo: bool = False, created: int | None = None, shape: LogprobShape = PLAIN
    ) -> None:
        super().__init__(answer_id, created=created, shape=shape)
        self._echo = echo

    def chunk_maker(self, index: int = 0, prompt: str = "") -> ChunkMaker:
        return ChunkMaker(_is_in_text_or_has_logprobs, index=index, prompt=prompt, has_echo=self._echo)

    def _choice(self, choice: Chunk) -> Json:
        return {
            "text": choice.text,
            "index": choice.index,
            "logprobs": text_logprobs(choice.start, choice.tokens, choice.offsets, self._shape),
            "finish_reason": None if choice.done is None else finish_reason(choice.done),
            **field_confidences(choice.start, choice.done),
        }


def _is_in_text_or_has_logprobs(start: Start, token: TextToken) -> bool:
    return token.is_in_text or start.logprobs is not None


class ChatAnswer(OpenAIAnswer):
    """A ``chat.completion``. The first chunk has the role."""

    # ``content`` of the logprobs has the tokens that are part of the text. The lists of a shape that has both
    # forms have all generated tokens.

    _ID_PREFIX = "chatcmpl-"
    _OBJECT = "chat.completion"
    _CHUNK_OBJECT = "chat.completion.chunk"

    def __init__(
        self,
        answer_id: str,
        *,
        created: int | None = None,
        shape: LogprobShape = PLAIN,
        reasoning_format: ReasoningFormat = "auto",
    ) -> None:
        super().__init__(answer_id, created=created, shape=shape)
        self._reasoning_format = reasoning_format

    def chunk_maker(self, index: int = 0, prompt: str = "") -> ChunkMaker:
        return ChunkMaker(self._is_listed, index=index, prompt=prompt, has_opening=True)

    def _is_listed(self, start: Start, token: TextToken) -> bool:
        return token.is_in_text or (self._shape.has_both_forms and start.logprobs is not None)

    def _choice(self, choice: Chunk) -> Json:
        message = {"role": "assistant", "content": self._content(choice), "refusal": None}
        return self._choice_with(choice, {"message": message | self._reasoning(choice)})

    def _chunk_choice(self, chunk: Chunk) -> Json:
        if chunk.is_opening:
            return self._choice_with(chunk, {"delta": {"role": "assistant", "content": ""}})
        # The last chunk has text only if some was held back.
        delta = self._reasoning(chunk)
        content = self._content(chunk)
        is_of_answer = any(token.record.part != "reasoning" for token in chunk.tokens or ())
        if content or is_of_answer:
            delta["content"] = content
        return self._choice_with(chunk, {"delta": delta})

    def _content(self, chunk: Chunk) -> str:
        keeps_tags = self._reasoning_format in ("none", "deepseek-legacy")
        return chunk.text if keeps_tags else join_parts(chunk.parts).answer

    def _reasoning(self, chunk: Chunk) -> Json:
        """Return the field of the reasoning, if the chunk has any."""
        reasoning = "" if self._reasoning_format == "none" else join_parts(chunk.parts).reasoning
        return {"reasoning_content": reasoning} if reasoning else {}

    def _choice_with(self, chunk: Chunk, text_fields: Json) -> Json:
        return {
            "index": chunk.index,
            **text_fields,
            "logprobs": chat_logprobs(chunk.start, chunk.tokens, self._shape),
            "finish_reason": None if chunk.done is None else finish_reason(chunk.done),
            **field_confidences(chunk.start, chunk.done),
        }


def text_logprobs(
    start: Start, tokens: Sequence[TextToken] | None, offsets: Sequence[int], shape: LogprobShape
) -> Json | None:
    """Return the logprobs of tokens as lists; None if the run has no logprobs, or without tokens."""
    # ``offsets``: of each token in the text.
    if start.logprobs is None or tokens is None:
        return None
    fields = logprob_lists(start, tokens, shape) | {"text_offset": list(offsets)}
    if shape.has_both_forms:
        fields["content"] = [_chat_logprob(token, shape, adds_chosen=True) for token in tokens]
    return fields


def logprob_lists(start: Start, tokens: Sequence[TextToken], shape: LogprobShape) -> Json:
    """Return the lists ``tokens``, ``token_logprobs`` and ``top_logprobs``, which is None without alternatives."""
    requested_logprobs = start.logprobs or {}
    top_count = requested_logprobs.get("top", 0) if shape.top_count is None else shape.top_count
    has_named_tokens = shape.has_all_requested and bool(requested_logprobs.get("of"))
    top_logprobs = None
    if top_count or has_named_tokens:
        top_logprobs = [logprobs_by_text(token.record, shape) for token in tokens]
    return {
        "tokens": [shape.part_text(token) for token in tokens],
        "token_logprobs": [finite_or_none(token.record.chosen.logprob) for token in tokens],
        "top_logprobs": top_logprobs,
    }


def echoed_prompt(start: Start, prompt: Prompt, make_lists: Callable[[Sequence[TextToken]], Json]) -> Json:
    """Return Together's record of a prompt: its text, and its tokens' logprobs, which ``make_lists`` makes."""
    # If the generated tokens spell the end of the prompt again, this end is the last entry, without a logprob.
    if start.logprobs is None:
        return {"text": prompt.text, "logprobs": None}
    tokens = prompt.text_tokens()
    lists = make_lists(tokens)
    byte_count_of_tokens = sum(len(token.data) for token in tokens)
    healed_end = prompt.text.encode(errors="surrogatepass")[byte_count_of_tokens:]
    if prompt.is_healed and healed_end:
        last_entry = {"tokens": display_text(healed_end), "token_logprobs": None, "top_logprobs": None}
        for name, values in lists.items():
            if values:
                values.append(last_entry[name])
    return {"text": prompt.text, "logprobs": lists}


def chat_logprobs(start: Start, tokens: Sequence[TextToken] | None, shape: LogprobShape) -> Json | None:
    """Return the logprobs of tokens as objects; None if the run has no logprobs, or without tokens."""
    if start.logprobs is None or tokens is None:
        return None
    text_tokens = [token for token in tokens if token.is_in_text]
    content = [_chat_logprob(token, shape, adds_chosen=shape.adds_chosen) for token in text_tokens]
    fields: Json = {"content": content, "refusal": None}
    if shape.has_both_forms:
        fields |= logprob_lists(start, tokens, shape)
    return fields


def _chat_logprob(token: TextToken, shape: LogprobShape, *, adds_chosen: bool) -> Json:
    record = token.record
    alternatives = shape.alternatives(record, adds_chosen=adds_chosen and shape.has_all_requested)
    fields: Json = {
        "token": shape.part_text(token),
        "logprob": shape.number(record.chosen.logprob),
        "bytes": list(token.data),
        "top_logprobs": [_chat_token(alternative, shape) for alternative in alternatives],
        **({} if record.part is None else {"part": record.part}),
    }
    if not shape.has_all_requested:
        return fields
    for distribution in record.distributions[1:]:
        listed_tokens = (*distribution.top[: shape.top_count], *distribution.named)
        fields[distribution.source] = {
            "logprob": shape.number(distribution.logprob),
            "top_logprobs": [_chat_token(listed, shape) for listed in listed_tokens],
        }
    if record.trace is not None:
        fields["trace"] = record.trace.as_json()
    return fields


def _chat_token(token: TokenLogprob, shape: LogprobShape) -> Json:
    return {"token": shape.text(token), "logprob": shape.number(token.logprob), "bytes": list(token.data)}


def fingerprint(start: Start) -> str:
    """Return OpenAI's ``system_fingerprint``: what the same request's answer depends on, here the version."""
    return f"logitsmith-{start.versions['logitsmith']}"


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


def usage(done: Done) -> Json:
    """Return OpenAI's ``usage`` of a run; see `total_usage`."""
    return total_usage([done])


def usage_of(prompt_tokens: int, completion_tokens: int) -> Json:
    """Return OpenAI's ``usage`` of numbers of tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def total_usage(dones: Sequence[Done], choices_per_prompt: int | None = None) -> Json:
    """Return OpenAI's ``usage``, with the confidence of all choices together, unless no token was drawn."""
    # ``choices_per_prompt``: see `token_counts`
    confidence = join_confidences(done.confidence for done in dones)
    fields = {} if confidence is None else {"confidence": confidence.as_json()}
    return token_counts(dones, choices_per_prompt) | fields


def token_counts(dones: Sequence[Done], choices_per_prompt: int | None = None) -> Json:
    """Return OpenAI's ``usage``, with numbers of bans, loops and drafts."""
    # The tokens of a prompt are counted once. Each prompt has ``choices_per_prompt`` choices, which follow one
    # another; None: all choices are of one prompt. ``loop_period`` is that of the first choice that ended in a
    # loop.
    first_choices_of_prompts = dones[:: choices_per_prompt or len(dones)]
    prompt_tokens = sum(done.prompt_tokens for done in first_choices_of_prompts)
    completion_tokens = sum(done.completion_tokens for done in dones)
    loop_periods = [done.loop_period for done in dones if done.loop_period is not None]
    optional_counts = {
        "discarded_tokens": _sum_of_known(done.discarded_tokens for done in dones),
        "loop_period": loop_periods[0] if loop_periods else None,
        "draft_tokens": _sum_of_known(done.drafted_tokens for done in dones),
        "accepted_tokens": _sum_of_known(done.accepted_tokens for done in dones),
    }
    reasoning_tokens = _sum_of_known(done.reasoning_tokens for done in dones)
    details = (
        {} if reasoning_tokens is None else {"completion_tokens_details": {"reasoning_tokens": reasoning_tokens}}
    )
    return {
        **usage_of(prompt_tokens, completion_tokens),
        **details,
        **{name: count for name, count in optional_counts.items() if count is not None},
    }


def field_confidences(start: Start, done: Done | None) -> Json:
    """Return the field ``fields``, which is null if the answer is not JSON; nothing if it is not asked for."""
    if done is None or not start.text_rules.get("field_confidence"):
        return {}
    if done.fields is None:
        return {"fields": None}
    return {"fields": {pointer: field.as_json() for pointer, field in done.fields.items()}}


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of the counts that are not None; None if all are."""
    known_counts = [count for count in counts if count is not None]
    return sum(known_counts) if known_counts else None


def logprobs_by_text(token: TokenRecord, shape: LogprobShape = PLAIN) -> dict[str, float | None] | None:
    """Return the logprobs of the most probable tokens and the chosen one, by the whole text of the token."""
    # Several tokens may have the same text. Then one of them is listed by this text: the chosen token, or else the
    # most probable token. The others are listed by their ids, as ``token_id:7``. Returns None if the token has no
    # distribution.
    if not token.distributions:
        return None
    chosen_text = shape.text(token.chosen)
    logprobs: dict[str, float | None] = {}
    for candidate in shape.alternatives(token, adds_chosen=True):
        logprob = finite_or_none(candidate.logprob)
        if logprob is None:
            continue
        text = shape.text(candidate)
        belongs_to_chosen = text == chosen_text and candidate.id != token.id
        if text in logprobs or belongs_to_chosen:
            text = _token_id_text(candidate.id)
        logprobs[text] = logprob
    return logprobs


def prompt_logprobs(tokens: Iterable[PromptToken], count: int) -> list[dict[str, Json] | None]:
    """Return vLLM's ``prompt_logprobs``: by token id, the token of the prompt first; None for the first token."""
    # ``count``: number of most probable tokens at each position.
    return [_ranked_logprobs(token, count) if token.distributions else None for token in tokens]


def _ranked_logprobs(token: TokenRecord, count: int) -> dict[str, Json]:
    logprobs = {str(token.id): _ranked_logprob(token.chosen, token.distributions[0].rank)}
    for rank, top in enumerate(token.top[:count], 1):
        if top.id != token.id:
            logprobs[str(top.id)] = _ranked_logprob(top, rank)
    return logprobs


def _ranked_logprob(token: TokenLogprob, rank: int | None) -> Json:
    return {"logprob": finite_or_none(token.logprob), "rank": rank, "decoded_token": token.text}


# The last event of a stream.
SERVER_SENT_DONE = "data: [DONE]\n\n"


def server_sent(data: Mapping[str, Any], name: str | None = None) -> str:
    """Return a server-sent event with this JSON, which is one line, because JSON escapes newlines."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {encode_json(data)}\n\n"
