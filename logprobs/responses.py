"""OpenAI's format of `/v1/responses`: whole answers, and the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .chunks import Chunk, ChunkMaker, join_chunks
from .events import Event, Start
from .openai import (
    Json,
    LogprobShape,
    chat_logprobs,
    field_confidences,
    fingerprint,
    finish_reason,
    logprob_source,
    usage,
)
from .parts import join_parts
from .records import Part
from .text_tokens import TextToken

MISSING_LOGPROB = -9999.0  # OpenAI's number for a logprob that is missing, which its client expects here
RESPONSE_SHAPE = LogprobShape(missing_logprob=MISSING_LOGPROB)


@dataclass
class _Item:
    """An item of the output with one part: the reasoning, or the message with the answer."""

    part: Part
    answer_id: str
    index: int = 0  # of the item in the output
    text: str = ""
    logprobs: list[Json] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{'rs' if self.part == 'reasoning' else 'msg'}_{self.answer_id}"

    @property
    def place(self) -> Json:
        """The fields of an event about the item's part."""
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}

    @property
    def text_event(self) -> str:
        """The beginning of the names of events about the item's text."""
        return "reasoning_text" if self.part == "reasoning" else "output_text"

    def content(self) -> Json:
        """Return the part."""
        if self.part == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": self.logprobs}

    def fields(self, status: str) -> Json:
        """Return the item, while it is ``in_progress`` without its part."""
        content = [] if status == "in_progress" else [self.content()]
        item = {"id": self.id, "status": status, "content": content}
        if self.part == "reasoning":
            return item | {"type": "reasoning", "summary": []}
        return item | {"type": "message", "role": "assistant"}


class ResponseAnswer:
    """A ``response`` as JSON, whole or as events. The last event has the whole answer."""

    # ``repeated_fields``: of the request; ``created``: seconds since 1970; None = now.

    def __init__(
        self,
        answer_id: str,
        repeated_fields: Json,
        *,
        created: int | None = None,
        shape: LogprobShape = RESPONSE_SHAPE,
    ) -> None:
        self._id = answer_id
        self._repeated_fields = repeated_fields
        self._created = int(time.time()) if created is None else created
        self._shape = shape
        self._event_count = 0
        self._chunks: list[Chunk] = []
        self._item: _Item | None = None  # the item that the stream writes

    def chunk_maker(self) -> ChunkMaker:
        return ChunkMaker(_is_in_text, has_opening=True)

    def chunks(self, events: Iterable[Event], _index: int = 0) -> Iterator[Chunk]:
        """Yield the chunks of the answer's text, which is its only one."""
        maker = self.chunk_maker()
        for event in events:
            yield from maker.push(event)

    def whole(self, chunks: Iterable[Chunk]) -> Json:
        """Return the whole answer."""
        (chunk,) = join_chunks(chunks)
        assert chunk.done is not None  # noqa: S101 - joined chunks are complete
        is_complete = finish_reason(chunk.done) == "stop"
        status = "completed" if is_complete else "incomplete"
        counts = usage(chunk.done)
        input_tokens, output_tokens = counts.pop("prompt_tokens"), counts.pop("completion_tokens")
        output_details = {"reasoning_tokens": 0} | counts.pop("completion_tokens_details", {})
        return self._response(chunk.start, status) | {
            "completed_at": int(time.time()) if is_complete else None,
            "incomplete_details": None if is_complete else {"reason": "max_output_tokens"},
            "output": self._output(chunk, status),
            "usage": {
                "input_tokens": input_tokens,
                "input_tokens_details": {"cached_tokens": chunk.start.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": output_tokens,
                "output_tokens_details": output_details,
                **counts,
            },
            **field_confidences(chunk.start, chunk.done),
        }

    def _output(self, chunk: Chunk, status: str) -> list[Json]:
        """Return the items of a whole answer. Its message may be empty."""
        texts, logprobs = join_parts(chunk.parts), self._logprobs(chunk)
        if not texts.reasoning:
            return [_Item("answer", self._id, 0, texts.answer, logprobs).fields(status)]
        reasoning_status = "completed" if _answer_tokens(chunk) else status
        return [
            _Item("reasoning", self._id, 0, texts.reasoning).fields(reasoning_status),
            _Item("answer", self._id, 1, texts.answer, logprobs).fields(status),
        ]

    def stream(self, chunk: Chunk, facts: Json | None = None) -> Iterator[Json]:
        """Yield the events of a chunk. ``facts``: fields of the last event's response."""
        self._chunks.append(chunk)
        if chunk.is_opening:
            response = self._response(chunk.start, "in_progress")
            yield self._event("created", response=response)
            yield self._event("in_progress", response=response)
            if chunk.start.reasoning is None:
                yield from self._begin_item("answer")
        texts, logprobs = join_parts(chunk.parts), self._logprobs(chunk)
        if texts.reasoning:
            yield from self._add("reasoning", texts.reasoning)
        if texts.answer or logprobs:
            yield from self._add("answer", texts.answer, logprobs)
        if chunk.done is not None:
            yield from self._last_events(facts or {})

    def _add(self, part: Part, text: str, logprobs: Iterable[Json] = ()) -> Iterator[Json]:
        """Yield the events of further text of a part."""
        if self._item is None or self._item.part != part:
            yield from self._end_item("completed")
            yield from self._begin_item(part)
        item = self._current_item
        item.text += text
        item.logprobs += logprobs
        fields = {"delta": text} if part == "reasoning" else {"delta": text, "logprobs": list(logprobs)}
        yield self._event(f"{item.text_event}.delta", **item.place, **fields)

    def _begin_item(self, part: Part) -> Iterator[Json]:
        index = 0 if self._item is None else self._item.index + 1
        self._item = item = _Item(part, self._id, index)
        yield self._event("output_item.added", output_index=index, item=item.fields("in_progress"))
        yield self._event("content_part.added", part=item.content(), **item.place)

    def _end_item(self, status: str) -> Iterator[Json]:
        """Yield the events of the end of the item that the stream writes."""
        item = self._item
        if item is None:
            return
        content = item.content()
        fields = {name: content[name] for name in ("text", "logprobs") if name in content}
        yield self._event(f"{item.text_event}.done", **item.place, **fields)
        yield self._event("content_part.done", part=content, **item.place)
        yield self._event("output_item.done", output_index=item.index, item=item.fields(status))

    @property
    def _current_item(self) -> _Item:
        assert self._item is not None  # noqa: S101 - called after an item has begun
        return self._item

    def _last_events(self, facts: Json) -> Iterator[Json]:
        response = self.whole(self._chunks) | facts
        statuses = [item["status"] for item in response["output"]]
        if self._item is None or self._item.part == "reasoning":
            yield from self._end_item(statuses[0])
            yield from self._begin_item("answer")
        yield from self._end_item(statuses[-1])
        yield self._event(response["status"], response=response)

    def failure(self, error: Json) -> Json:
        """Return the event of an error, after which a stream ends."""
        told = {name: error["error"][name] for name in ("code", "message", "param")}
        return self._numbered({"type": "error", **told, **error})

    def _event(self, name: str, **fields: Any) -> Json:
        return self._numbered({"type": f"response.{name}", **fields})

    def _numbered(self, event: Json) -> Json:
        self._event_count += 1
        return {**event, "sequence_number": self._event_count - 1}

    def _response(self, start: Start, status: str) -> Json:
        """Return the fields of a response that are known from the beginning."""
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": start.model,
            "output": [],
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "tool_choice": "none",
            "tools": [],
            "truncation": "disabled",
            "usage": None,
            **self._repeated_fields,
            "system_fingerprint": fingerprint(start),
            "logprobs_from": logprob_source(start),
        }

    def _logprobs(self, chunk: Chunk) -> list[Json]:
        """Return the logprobs of the answer's tokens."""
        logprobs = chat_logprobs(chunk.start, _answer_tokens(chunk), self._shape)
        return [] if logprobs is None else logprobs["content"]


def _answer_tokens(chunk: Chunk) -> list[TextToken] | None:
    return None if chunk.tokens is None else [each for each in chunk.tokens if each.record.part != "reasoning"]


def _is_in_text(_start: Start, token: TextToken) -> bool:
    return token.is_in_text
