"""OpenAI's routes: `/v1/completions`, `/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..engine.model import Model
from ..logprobs.events import Done, Event, split_events
from ..logprobs.openai import (
    SERVER_SENT_DONE,
    ChatChunks,
    LogprobShape,
    TextChunks,
    chat_completion,
    echoed_prompt,
    prompt_logprobs,
    server_sent,
    text_completion,
)
from .bodies import ChatFields, PromptFields
from .resolution import Asked
from .state import EVENTS, JSON, RouteSpec, ServerState, generate

Json = dict[str, Any]


class OpenAIFormat:
    """OpenAI's answers, for texts or for chats.

    Args:
        is_chat: whether the answers are messages.
    """

    media_type = "text/event-stream"

    def __init__(self, is_chat: bool) -> None:
        self._is_chat = is_chat

    def whole(self, asked: Asked, runs: Sequence[Sequence[Event]], facts: Json) -> Json:
        """Return the answer with all its choices."""
        answer_id, created = secrets.token_hex(12), int(time.time())
        shape = _shape(asked)
        bodies = []
        for choice, run in zip(asked.choices, runs, strict=True):
            if self._is_chat:
                body = chat_completion(run, answer_id, created=created, shape=shape)
            else:
                body = text_completion(
                    run, answer_id, prompt=choice.prompt, echo=asked.echo, created=created, shape=shape
                )
            if asked.prompt_logprob_count is not None:
                prompt_tokens = split_events(run)[1]
                body["choices"][0]["prompt_logprobs"] = prompt_logprobs(prompt_tokens, asked.prompt_logprob_count)
            bodies.append(body)
        choices = [body["choices"][0] | {"index": index} for index, body in enumerate(bodies)]
        total_usage = _add_usage([body["usage"] for body in bodies], asked.choices_per_prompt)
        answer = bodies[0] | {"choices": choices, "usage": total_usage, "x_gen": facts}
        if asked.echo:
            first_choices = zip(asked.choices, runs, strict=True)
            answer["prompt"] = [
                echoed_prompt(run, choice.prompt, shape)
                for choice, run in islice(first_choices, None, None, asked.choices_per_prompt)
            ]
        if asked.prompt_logprob_count is not None:
            answer["prompt_logprobs"] = choices[0]["prompt_logprobs"]
        return answer

    def stream(self, asked: Asked) -> OpenAIStream:
        """Return a writer of chunks."""
        return OpenAIStream(asked, self._is_chat)


def _add_usage(usages: Sequence[Mapping[str, int]], choices_per_prompt: int) -> dict[str, int]:
    """Return the numbers of tokens of an answer. A prompt with several choices is counted once."""
    prompt_tokens = sum(usage["prompt_tokens"] for usage in usages[::choices_per_prompt])
    completion_tokens = sum(usage["completion_tokens"] for usage in usages)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _shape(asked: Asked) -> LogprobShape:
    return LogprobShape(has_both_forms=True, has_all_requested=True, writes_token_ids=asked.writes_token_ids)


class OpenAIStream:
    """A writer of the chunks of all choices as server-sent events."""

    def __init__(self, asked: Asked, is_chat: bool) -> None:
        answer_id, created = secrets.token_hex(12), int(time.time())
        self._asked = asked
        shape = _shape(asked)
        self._chunks: list[TextChunks | ChatChunks] = [
            ChatChunks(answer_id, created=created, shape=shape)
            if is_chat
            else TextChunks(answer_id, prompt=choice.prompt, echo=asked.echo, created=created, shape=shape)
            for choice in asked.choices
        ]
        self._usages: dict[int, Mapping[str, int]] = {}
        self._last: Json = {}

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the chunks of an event."""
        chunks = list(self._chunks[index].push(event))
        for number, chunk in enumerate(chunks):
            usage = chunk.pop("usage", None)
            if index:
                chunk["choices"][0]["index"] = index
            if isinstance(event, Done) and number == len(chunks) - 1:
                self._last = chunk
                self._usages[index] = usage or {}
                if facts is not None:
                    chunk["x_gen"] = facts
            if self._asked.has_usage:
                chunk["usage"] = None
            yield server_sent(chunk)

    def end(self) -> Iterable[str]:
        """Yield the chunk of the usage, if it is requested, and the end."""
        if self._asked.has_usage:
            fields = {key: value for key, value in self._last.items() if key != "x_gen"}
            usages = [usage for _, usage in sorted(self._usages.items())]
            total_usage = _add_usage(usages, self._asked.choices_per_prompt)
            yield server_sent(fields | {"choices": [], "usage": total_usage})
        yield SERVER_SENT_DONE


async def completions(request: Request, state: ServerState) -> Response:
    """Answer `/v1/completions`."""
    return await generate(request, state, PromptFields, OpenAIFormat(is_chat=False))


async def chat_completions(request: Request, state: ServerState) -> Response:
    """Answer `/v1/chat/completions`."""
    return await generate(request, state, ChatFields, OpenAIFormat(is_chat=True))


async def models(_: Request, state: ServerState) -> Response:
    """List the model."""
    model, _maker = state.loaded()
    return JSONResponse({"object": "list", "data": [model_entry(model)]})


def model_entry(model: Model) -> Json:
    """Return the entry of the model in OpenAI's list."""
    return {"id": model.name, "object": "model", "created": 0, "owned_by": "logitsmith"}


async def health(_: Request, state: ServerState) -> Response:
    """Return 200 if the server accepts requests."""
    state.loaded()
    return JSONResponse({"status": "ok"})


_ANSWER_KEYS = ("id", "object", "created", "model", "choices", "usage", "x_gen")
_LIST_KEYS = ("object", "data")

ROUTES = (
    RouteSpec("/v1/completions", completions, "POST", PromptFields, (JSON, EVENTS), _ANSWER_KEYS),
    RouteSpec("/v1/chat/completions", chat_completions, "POST", ChatFields, (JSON, EVENTS), _ANSWER_KEYS),
    RouteSpec("/chat/completions", chat_completions, "POST", ChatFields, (JSON, EVENTS), _ANSWER_KEYS),
    RouteSpec("/v1/models", models, "GET", keys=_LIST_KEYS),
    RouteSpec("/models", models, "GET", keys=_LIST_KEYS),
    RouteSpec("/health", health, "GET", keys=("status",)),
    RouteSpec("/v1/health", health, "GET", keys=("status",)),
)
