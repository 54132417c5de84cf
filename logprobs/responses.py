"""OpenAI's format of `/v1/responses`: whole answers, and the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from .chunks import Chunk, ChunkMaker, join_chunks
from .events import Event, Start
from .openai import Json, LogprobShape, chat_logprobs, fingerprint, finish_reason, logprob_source, usage
from .text_tokens import TextToken

MISSING_LOGPROB = -9999.0  # OpenAI's number for a logprob that is missing, which its client expects here
RESPONSE_SHAPE = LogprobShape(missing_logprob=MISSING_LOGPROB)


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
        self._place = {"item_id": f"msg_{answer_id}", "output_index": 0, "content_index": 0}
        self._event_count = 0
        self._chunks: list[Chunk] = []

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
        return self._response(chunk.start, status) | {
            "completed_at": int(time.time()) if is_complete else None,
            "incomplete_details": None if is_complete else {"reason": "max_output_tokens"},
            "output": [self._message(status, [self._text_part(chunk)])],
            "usage": {
                "input_tokens": input_tokens,
                "input_tokens_details": {"cached_tokens": chunk.start.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                **counts,
            },
        }

    def stream(self, chunk: Chunk, facts: Json | None = None) -> Iterator[Json]:
        """Yield the events of a chunk. ``facts``: fields of the last event's response."""
        self._chunks.append(chunk)
        if chunk.is_opening:
            response = self._response(chunk.start, "in_progress")
            yield self._event("created", response=response)
            yield self._event("in_progress", response=response)
            yield self._event("output_item.added", output_index=0, item=self._message("in_progress", []))
            empty_part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield self._event("content_part.added", part=empty_part, **self._place)
        elif chunk.text or chunk.tokens:
            delta = {"delta": chunk.text, "logprobs": self._logprobs(chunk)}
            yield self._event("output_text.delta", **self._place, **delta)
        if chunk.done is not None:
            yield from self._last_events(facts or {})

    def _last_events(self, facts: Json) -> Iterator[Json]:
        response = self.whole(self._chunks) | facts
        (message,) = response["output"]
        (part,) = message["content"]
        text = {"text": part["text"], "logprobs": part["logprobs"]}
        yield self._event("output_text.done", **self._place, **text)
        yield self._event("content_part.done", part=part, **self._place)
        yield self._event("output_item.done", output_index=0, item=message)
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
            "reasoning": None,
            "store": False,
            "tool_choice": "none",
            "tools": [],
            "truncation": "disabled",
            "usage": None,
            **self._repeated_fields,
            "system_fingerprint": fingerprint(start),
            "logprobs_from": logprob_source(start),
        }

    def _message(self, status: str, content: list[Json]) -> Json:
        item_id = self._place["item_id"]
        return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _text_part(self, chunk: Chunk) -> Json:
        return {
            "type": "output_text",
            "text": chunk.text,
            "annotations": [],
            "logprobs": self._logprobs(chunk),
        }

    def _logprobs(self, chunk: Chunk) -> list[Json]:
        logprobs = chat_logprobs(chunk.start, chunk.tokens, self._shape)
        return [] if logprobs is None else logprobs["content"]


def _is_in_text(_start: Start, token: TextToken) -> bool:
    return token.is_in_text
