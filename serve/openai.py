"""OpenAI's routes: `/v1/completions`, `/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.strict_model import Json
from ..common.text import short_repr
from ..engine.model import Model
from ..logprobs.chunks import Chunk, Prompt, join_chunks
from ..logprobs.events import Event, Start, Token
from ..logprobs.openai import (
    SERVER_SENT_DONE,
    ChatAnswer,
    LogprobShape,
    TextAnswer,
    echoed_prompt,
    logprob_lists,
    prompt_logprobs,
    server_sent,
    usage,
    usage_of,
)
from ..requests.fields import ChatFields, PromptFields, StreamOptions
from .answers import PreparedFormat
from .errors import ModelNotFoundError
from .requested_names import listed_presets
from .resolution import PreparedRequest
from .state import EVENTS, JSON, RouteSpec, ServerState, generate


class OpenAIFormat(PreparedFormat):
    """An answer of OpenAI's, to texts or to a chat. The chunks of all its choices are one stream."""

    without_place = ("return_tokens",)
    has_running_usage = True

    def __init__(self, prepared: PreparedRequest) -> None:
        self._prepared = prepared
        fields = prepared.fields
        self._is_chat = isinstance(fields, ChatFields)
        self._echo = bool(fields.echo)
        options = fields.stream_options or StreamOptions()
        self._has_usage = bool(options.include_usage)
        self._has_running_usage = bool(options.include_usage and options.continuous_usage_stats)
        self._token_counts = [0] * len(prepared.choices)
        self._shape = LogprobShape(
            has_both_forms=True,
            has_all_requested=True,
            writes_token_ids=bool(fields.return_tokens_as_token_ids),
            top_count=prepared.asked.top_logprob_count,
        )
        answer_id = secrets.token_hex(12)
        self._answer = (
            ChatAnswer(answer_id, shape=self._shape, reasoning_format=prepared.asked.reasoning_format)
            if self._is_chat
            else TextAnswer(answer_id, echo=self._echo, shape=self._shape)
        )
        self._makers = [
            self._answer.chunk_maker(index, choice.prompt) for index, choice in enumerate(prepared.choices)
        ]
        # The last chunk of each choice of a stream that is complete.
        self._last_chunks: dict[int, Chunk] = {}

    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json:
        """Return the answer with all its choices."""
        chunks: list[Chunk] = []
        for maker, run in zip(self._makers, runs, strict=True):
            for event in run:
                chunks += maker.push(event)
        choices = join_chunks(chunks)
        choices_per_prompt = self._prepared.asked.choice_count
        answer = self._answer.whole(choices, choices_per_prompt) | {"x_gen": facts}
        for choice, fields in zip(choices, answer["choices"], strict=True):
            fields.update(self._prompt_logprobs(choice))
        if self._echo:
            answer["prompt"] = [
                self._echoed_prompt(choice.start, choice.prompt)
                for choice in choices[::choices_per_prompt]
                if choice.prompt is not None
            ]
        if self._prepared.asked.prompt_logprob_count is not None:
            answer["prompt_logprobs"] = answer["choices"][0]["prompt_logprobs"]
        return answer

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the chunks of an event."""
        if isinstance(event, Token):
            self._token_counts[index] += 1
        for chunk in self._makers[index].push(event):
            fields = self._answer.chunk(chunk)
            fields["choices"][0].update(self._prompt_logprobs(chunk))
            if chunk.prompt is not None and self._is_chat and self._echo and self._is_first_of_prompt(index):
                fields["prompt"] = [self._echoed_prompt(chunk.start, chunk.prompt)]
            if chunk.done is not None:
                self._last_chunks[index] = chunk
                fields["x_gen"] = facts
            if self._has_usage:
                fields["usage"] = self._running_usage(index, chunk) if self._has_running_usage else None
            yield server_sent(fields)

    def _running_usage(self, index: int, chunk: Chunk) -> Json:
        """Return the usage of a choice so far."""
        if chunk.done is not None:
            return usage(chunk.done)
        return usage_of(chunk.start.prompt_tokens, self._token_counts[index])

    def _is_first_of_prompt(self, index: int) -> bool:
        return index % self._prepared.asked.choice_count == 0

    def _prompt_logprobs(self, chunk: Chunk) -> Json:
        """Return the field with the logprobs of the prompt; empty if the request or the chunk has none."""
        count = self._prepared.asked.prompt_logprob_count
        if count is None or chunk.prompt is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(chunk.prompt.tokens, count)}

    def _echoed_prompt(self, start: Start, prompt: Prompt) -> Json:
        return echoed_prompt(start, prompt, partial(logprob_lists, start, shape=self._shape))

    def end(self) -> Iterable[str]:
        """Yield the chunk of the usage, if it is requested, and the end."""
        if self._has_usage:
            last_chunks = [self._last_chunks[index] for index in sorted(self._last_chunks)]
            last_events = [chunk.done for chunk in last_chunks if chunk.done is not None]
            usage_chunk = self._answer.usage_chunk(
                last_chunks[0].start, last_events, self._prepared.asked.choice_count
            )
            yield server_sent(usage_chunk)
        yield SERVER_SENT_DONE


async def completions(request: Request, state: ServerState) -> Response:
    """Answer `/v1/completions`."""
    return await generate(request, state, PromptFields, OpenAIFormat)


async def chat_completions(request: Request, state: ServerState) -> Response:
    """Answer `/v1/chat/completions`."""
    return await generate(request, state, ChatFields, OpenAIFormat)


async def models(_: Request, state: ServerState) -> Response:
    """List the model, alone and with each preset."""
    return JSONResponse({"object": "list", "data": list((await _model_entries(state)).values())})


async def model(request: Request, state: ServerState) -> Response:
    """Return the entry of a model in the list, by its id."""
    name = request.path_params["name"]
    entries = await _model_entries(state)
    if name not in entries:
        raise ModelNotFoundError(
            f"the model {short_repr(name)} does not exist; this server has {', '.join(entries)}", "model"
        )
    return JSONResponse(entries[name])


async def _model_entries(state: ServerState) -> dict[str, Json]:
    """Return the entries of the list by their ids. A client that chooses ``MODEL:PRESET`` gets the preset."""
    model, _maker = state.loaded()
    presets = await state.run(listed_presets)
    ids = (model.name, *(f"{model.name}:{preset}" for preset in presets))
    return {model_id: model_entry(model, state.loaded_at, model_id) for model_id in ids}


def model_entry(model: Model, created: int, model_id: str | None = None) -> Json:
    """Return the entry of the model in OpenAI's list, under one of its ids."""
    # ``created``: when the model was loaded, seconds since 1970; ``model_id``: None for the name of the model.
    return {
        "id": model_id or model.name,
        "object": "model",
        "created": created,
        "owned_by": "logitsmith",
        "meta": {
            "n_ctx": model.context_length,
            "n_ctx_train": model.trained_context,
            "n_vocab": model.vocabulary.size,
        },
    }


async def health(_: Request, state: ServerState) -> Response:
    """Return 200 if the server accepts requests."""
    state.loaded()
    return JSONResponse({"status": "ok"})


_ANSWER_KEYS = ("id", "object", "created", "model", "choices", "usage", "x_gen")
_LIST_KEYS = ("object", "data")
_MODEL_KEYS = ("id", "object", "created", "owned_by", "meta")

ROUTES = (
    RouteSpec("/v1/completions", completions, "POST", PromptFields, (JSON, EVENTS), _ANSWER_KEYS),
    RouteSpec("/v1/chat/completions", chat_completions, "POST", ChatFields, (JSON, EVENTS), _ANSWER_KEYS),
    RouteSpec("/chat/completions", chat_completions, "POST", ChatFields, (JSON, EVENTS), _ANSWER_KEYS),
    RouteSpec("/v1/models", models, "GET", keys=_LIST_KEYS),
    RouteSpec("/models", models, "GET", keys=_LIST_KEYS),
    RouteSpec("/v1/models/{name:path}", model, "GET", keys=_MODEL_KEYS),
    RouteSpec("/models/{name:path}", model, "GET", keys=_MODEL_KEYS),
    RouteSpec("/health", health, "GET", keys=("status",)),
    RouteSpec("/v1/health", health, "GET", keys=("status",)),
)
