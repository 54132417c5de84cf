"""OpenAI's routes: `/v1/completions`, `/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence

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
    merge_choices,
    prompt_logprobs,
    server_sent,
    text_completion,
    total_usage,
)
from .answers import AnswerFormat
from .bodies import ChatFields, PromptFields
from .resolution import Asked, Choice
from .sampler_fields import Json
from .state import EVENTS, JSON, RouteSpec, ServerState, generate


class OpenAIFormat(AnswerFormat):
    """An answer of OpenAI's, to texts or to a chat. The chunks of all its choices are one stream."""

    def __init__(self, asked: Asked) -> None:
        self._asked, fields = asked, asked.fields
        self._is_chat = isinstance(fields, ChatFields)
        self._echo = bool(fields.echo)
        self._has_usage = fields.stream_options is not None and bool(fields.stream_options.include_usage)
        self._shape = LogprobShape(
            has_both_forms=True,
            has_all_requested=True,
            writes_token_ids=bool(fields.return_tokens_as_token_ids),
        )
        self._id, self._created = secrets.token_hex(12), int(time.time())
        self._chunks = [self._chunk_writer(choice) for choice in asked.choices] if fields.stream else []
        self._usages: dict[int, Mapping[str, int]] = {}
        self._last: Json = {}

    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json:
        """Return the answer with all its choices."""
        asked = self._asked
        bodies = [self._body(choice, run) for choice, run in zip(asked.choices, runs, strict=True)]
        answer = merge_choices(bodies, asked.choices_per_prompt) | {"x_gen": facts}
        if self._echo:
            answer["prompt"] = [
                echoed_prompt(run, choice.prompt, self._shape)
                for choice, run in list(zip(asked.choices, runs, strict=True))[:: asked.choices_per_prompt]
            ]
        if asked.prompt_logprob_count is not None:
            answer["prompt_logprobs"] = answer["choices"][0]["prompt_logprobs"]
        return answer

    def _body(self, choice: Choice, run: Sequence[Event]) -> Json:
        """Return the answer with one choice."""
        if self._is_chat:
            body = chat_completion(run, self._id, created=self._created, shape=self._shape)
        else:
            body = text_completion(
                run, self._id, prompt=choice.prompt, echo=self._echo, created=self._created, shape=self._shape
            )
        count = self._asked.prompt_logprob_count
        if count is not None:
            body["choices"][0]["prompt_logprobs"] = prompt_logprobs(split_events(run)[1], count)
        return body

    def _chunk_writer(self, choice: Choice) -> TextChunks | ChatChunks:
        if self._is_chat:
            return ChatChunks(self._id, created=self._created, shape=self._shape)
        return TextChunks(
            self._id, prompt=choice.prompt, echo=self._echo, created=self._created, shape=self._shape
        )

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the chunks of an event."""
        chunks = list(self._chunks[index].push(event))
        for number, chunk in enumerate(chunks):
            usage = chunk.pop("usage", None)
            if index:
                chunk["choices"][0]["index"] = index
            if isinstance(event, Done) and number == len(chunks) - 1:
                self._last = dict(chunk)
                self._usages[index] = usage or {}
                chunk["x_gen"] = facts
            if self._has_usage:
                chunk["usage"] = None
            yield server_sent(chunk)

    def end(self) -> Iterable[str]:
        """Yield the chunk of the usage, if it is requested, and the end."""
        if self._has_usage:
            usages = [usage for _, usage in sorted(self._usages.items())]
            usage = total_usage(usages, self._asked.choices_per_prompt)
            yield server_sent(self._last | {"choices": [], "usage": usage})
        yield SERVER_SENT_DONE


async def completions(request: Request, state: ServerState) -> Response:
    """Answer `/v1/completions`."""
    return await generate(request, state, PromptFields, OpenAIFormat)


async def chat_completions(request: Request, state: ServerState) -> Response:
    """Answer `/v1/chat/completions`."""
    return await generate(request, state, ChatFields, OpenAIFormat)


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
