"""KoboldAI's routes, as KoboldCpp has them: `/api/v1/…` and `/api/extra/…`."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.strict_model import Json, StrictModel
from ..common.text import short_repr
from ..engine.model import Model
from ..engine.request import GenerationRequest
from ..logprobs.events import Event
from ..logprobs.other_apis import KoboldMessages, kobold_logprobs, kobold_result, kobold_server_sent
from ..logprobs.text_tokens import tokens_of_text
from ..models.errors import ModelError
from ..requests.fields import PromptFields, fields_without_place
from .answers import AnswerFormat, answer
from .errors import InvalidRequestError, RequestError
from .resolution import PreparedRequest
from .state import EVENTS, RouteSpec, ServerState, json_answer, read_fields, read_json
from .tracked_answers import TrackedAnswer

# The version of KoboldAI's API. SillyTavern sends stop strings only from 1.2.2 on.
API_VERSION = "1.2.5"
# The version of KoboldCpp whose fields and routes are supported. Clients derive from it what they may send.
KOBOLDCPP_VERSION = "1.117"
# Number of most likely tokens if a request says only `"logprobs": true`.
_TOP_COUNT = 5


# The fields of other APIs that KoboldCpp's answers have no place for.
_NOT_ANSWERED = (
    "echo",
    "prompt_logprobs",
    "return_tokens",
    "return_tokens_as_token_ids",
    "trace",
    "field_confidence",
)


class KoboldFields(PromptFields):
    """KoboldCpp's fields, and all others.

    ``memory`` precedes the prompt, and stays if the prompt's beginning is left out because the context is short.
    With an author's note or world info, also of a preset, KoboldAI Lite's rules hold, see `Story`.
    """

    prompt: str | list[int] | list[str] | list[list[int]] = ""
    max_context_length: int | None = None
    genkey: str | None = None
    trim_stop: bool | None = None
    use_default_badwordsids: bool | None = None
    singleline: bool | None = None
    tool_of_route: ClassVar[str] = "koboldcpp"

    def normalized(self, *, is_stream: bool, has_story: bool) -> KoboldFields:
        """Return the fields with values under the names that all routes have."""
        # ``has_story``: whether there is more than a memory, which KoboldCpp reads in its own way
        changes: Json = {"stream": is_stream}
        if has_story:
            pass
        elif isinstance(self.prompt, str):
            changes |= {"prompt": (self.memory or "") + self.prompt, "memory": None}
        elif self.memory:
            raise InvalidRequestError("memory: it needs a prompt that is a text", "memory")
        if self.logprobs is True:
            changes["logprobs"] = _TOP_COUNT
        if self.use_default_badwordsids and self.ban_eos_token is None:
            changes["ban_eos_token"] = True
        if self.singleline:
            stop_strings = self.stop_sequence or []
            if isinstance(stop_strings, str):
                stop_strings = [stop_strings]
            changes["stop_sequence"] = [*stop_strings, "\n"]
        unused = [*_NOT_ANSWERED, *fields_without_place(self, _NOT_ANSWERED)]
        return self.without(unused).model_copy(update=changes)


class KoboldFormat(AnswerFormat):
    """KoboldCpp's answer."""

    # A stream has the messages of the first choice, and ends with the finish reason of this choice.

    def __init__(self, *, keeps_stop: bool, dropped_count: int) -> None:
        """Prepare an answer. ``dropped_count``: number of prompt tokens that were left out."""
        self._keeps_stop = keeps_stop
        self._messages = KoboldMessages(keeps_stop=keeps_stop)
        self._more_facts: Json = {}
        if dropped_count:
            self._more_facts["dropped_prompt_tokens"] = dropped_count

    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json:
        """Return the answer with a result for each choice."""
        results = [kobold_result(run, keeps_stop=self._keeps_stop) for run in runs]
        return {"results": results, "x_gen": facts | self._more_facts}

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the messages of an event."""
        for message in self._messages.push(event):
            if facts is not None and message["finish_reason"] is not None:
                message["x_gen"] = facts | self._more_facts
            yield kobold_server_sent(message)


async def generate(request: Request, state: ServerState) -> Response:
    """Answer `/api/v1/generate`."""
    return await _generate(request, state, is_stream=False)


async def generate_stream(request: Request, state: ServerState) -> Response:
    """Answer `/api/extra/generate/stream`."""
    return await _generate(request, state, is_stream=True)


async def _generate(request: Request, state: ServerState, *, is_stream: bool) -> Response:
    _, maker = state.loaded()
    state.check_queue()
    fields, ignored = await read_fields(request, state, KoboldFields)
    ignored += fields_without_place(fields, _NOT_ANSWERED)
    context_length = state.engine.context_length
    if fields.max_context_length is not None and fields.max_context_length >= 1:
        context_length = min(fields.max_context_length, context_length)
    dropped_counts = [0]  # one for each prompt; the answer tells the largest

    def prepare() -> PreparedRequest:
        has_story = fields.memory is not None and maker.has_story(fields.without(("memory",)))

        def fit(generation: GenerationRequest) -> GenerationRequest:
            memory = "" if has_story else fields.memory or ""
            fitted = _shorten_prompt(maker.model, generation, memory, context_length)
            dropped_counts.append(len(_prompt_ids(generation)) - len(_prompt_ids(fitted)))
            return _with_negative_before_prompt(maker.model, fitted)

        return maker.make(fields.normalized(is_stream=is_stream, has_story=has_story), ignored, fit)

    prepared = await state.prepare(request, fields, prepare)
    if is_stream and len(prepared.choices) > 1:
        prepared = _only_first_choice(prepared, fields)
    form = KoboldFormat(keeps_stop=fields.trim_stop is False, dropped_count=max(dropped_counts))
    key = _answer_key(request, fields.genkey)
    return await answer(request, state.engine, prepared, form, partial(state.answers.track, key))


def _only_first_choice(prepared: PreparedRequest, fields: KoboldFields) -> PreparedRequest:
    """Return a request for one text. The messages of a stream do not say to which of several texts they belong."""
    text_counts = {"prompt": len(fields.prompts()), "n": fields.n or 1, "n_cmpl": fields.n_cmpl or 1}
    unused = [name for name, count in text_counts.items() if count > 1 and name not in prepared.ignored]
    return replace(prepared, choices=prepared.choices[:1], ignored=(*prepared.ignored, *unused))


def _prompt_ids(request: GenerationRequest) -> Sequence[int]:
    """Return the prompt of a request that `RequestMaker` has tokenized."""
    return cast("Sequence[int]", request.prompt)


def _with_negative_before_prompt(model: Model, request: GenerationRequest) -> GenerationRequest:
    """Return a request whose negative prompt stands before the prompt, as in KoboldCpp."""
    # Elsewhere, the negative prompt takes the place of the prompt. If the context is too short for both, the
    # beginning of the prompt is left out.
    guidance = request.rules.guidance
    if guidance is None or not isinstance(guidance.negative_prompt, str) or not guidance.negative_prompt:
        return request
    vocabulary = model.vocabulary
    negative_ids = vocabulary.tokenize_prompt(f"{guidance.negative_prompt}\n".encode())
    prompt_ids = list(_prompt_ids(request))
    if vocabulary.adds_bos and prompt_ids[:1] == [vocabulary.bos]:
        del prompt_ids[0]
    max_prompt_tokens = max(1, model.context_length - len(negative_ids) - (request.max_tokens or 0) - 1)
    ids = (*negative_ids, *prompt_ids[-max_prompt_tokens:])
    return request.guided_by(replace(guidance, negative_prompt=ids))


_MIN_PROMPT_TOKENS = 16
# The last tokens of the prompt that stay although the memory is long.
_MIN_TOKENS_AFTER_MEMORY = 4


def _shorten_prompt(
    model: Model, request: GenerationRequest, memory: str, context_length: int
) -> GenerationRequest:
    """Return a request whose prompt and answer fit into the context; the same one if they do already."""
    # As in KoboldCpp, the memory stays at the beginning, and the tokens after it are left out.
    ids = _prompt_ids(request)
    if request.max_tokens is not None:
        max_answer_tokens = min(request.max_tokens, context_length - _min_prompt_tokens(context_length))
    elif len(ids) < context_length:
        return request
    else:  # an answer without a limit gets half of the context, if the prompt is too long
        max_answer_tokens = context_length // 2
    max_prompt_tokens = max(min(context_length - max_answer_tokens, model.context_length - 1), 1)
    if len(ids) <= max_prompt_tokens:
        return request
    kept_ids = _memory_ids(model, memory, max_prompt_tokens - _MIN_TOKENS_AFTER_MEMORY)
    end_length = max(0, max_prompt_tokens - len(kept_ids))
    shortened_ids = (*kept_ids, *ids[len(ids) - end_length :])
    return replace(request, prompt=shortened_ids[:max_prompt_tokens], max_tokens=max_answer_tokens)


def _min_prompt_tokens(context_length: int) -> int:
    """Return the number of tokens that stay free for the prompt, however long an answer a request asks for."""
    min_tokens = min(context_length - _MIN_TOKENS_AFTER_MEMORY, _MIN_PROMPT_TOKENS)
    return max(1, min_tokens, context_length // 5)


def _memory_ids(model: Model, memory: str, max_tokens: int) -> list[int]:
    """Return the tokens of a memory. BOS stays; the beginning of a memory that is too long is left out."""
    ids = model.vocabulary.tokenize_prompt(memory.encode())
    excess = len(ids) - max_tokens
    if excess <= 0:
        return ids
    if model.vocabulary.adds_bos and ids[:1] == [model.vocabulary.bos]:
        return [ids[0], *ids[excess + 1 :]]
    return ids[excess:]


def _answer_key(request: Request, genkey: str | None) -> Hashable:
    """Return the key of an answer: the client's ``genkey``, or else the client's address."""
    # The address keeps a client without a ``genkey`` from reading and ending the answers of other machines.
    if genkey:
        return ("kobold", genkey)
    address = None if request.client is None else request.client.host
    return ("kobold", None, address)


async def _requested_key(request: Request, state: ServerState) -> Hashable:
    """Return the key of the answer that a request asks about."""
    try:
        body = await read_json(request, state)
    except RequestError:  # some clients send no body, or one that is not JSON
        body = None
    genkey = body.get("genkey") if isinstance(body, dict) else None
    if not isinstance(genkey, str):
        genkey = None
    return _answer_key(request, genkey)


async def abort(request: Request, state: ServerState) -> Response:
    """End the answers of a client, which get their text so far."""
    running = state.answers.running(await _requested_key(request, state))
    for tracked in running:
        state.engine.interrupt(tracked.stream)
    has_ended_some = "true" if running else "false"  # strings, as KoboldCpp writes them
    return JSONResponse({"success": has_ended_some, "done": has_ended_some})


async def generate_check(request: Request, state: ServerState) -> Response:
    """Return the text so far of a client's last answer."""
    tracked = state.answers.latest(await _requested_key(request, state))
    text = "" if tracked is None else tracked.text
    return JSONResponse({"results": [{"text": text}]})


async def last_logprobs(request: Request, state: ServerState) -> Response:
    """Return the logprobs of a client's last answer; null if it has none."""
    tracked = state.answers.latest(await _requested_key(request, state))
    if tracked is None or tracked.start is None:
        return JSONResponse({"logprobs": None})
    stop = None if tracked.done is None else tracked.done.stop
    tokens = tokens_of_text(tracked.tokens, tracked.text, stop)
    return JSONResponse({"logprobs": kobold_logprobs(tracked.start, tokens)})


async def perf(_: Request, state: ServerState) -> Response:
    """Return the times of the last answer, and numbers of requests."""
    answers = state.answers
    now = time.monotonic()
    return JSONResponse(
        {
            **_last_answer(answers.last_ended()),
            "total_gens": answers.total,
            "queue": state.engine.counts.waiting,
            "idle": int(state.engine.is_idle),
            "uptime": now - answers.started,
            "idletime": now - answers.last_used,
            "quiet": True,
        }
    )


# KoboldCpp's numbers for the reasons why a text ends.
_STOP_REASONS = {"length": 0, "context": 0, "stop": 1, "grammar": 1, "banned": 1, "loop": 1}
_STOP_STRING_REASON = 2
_OTHER_STOP_REASON = -1


def _last_answer(tracked: TrackedAnswer | None) -> Json:
    """Return KoboldCpp's fields about the last answer, in seconds, and milliseconds per token."""
    prompt_tokens = completion_tokens = drafted_tokens = accepted_tokens = 0
    prompt_seconds = generation_seconds = 0.0
    stop_reason = _OTHER_STOP_REASON
    if tracked is not None and tracked.done is not None:
        done = tracked.done
        prompt_tokens = done.prompt_tokens
        completion_tokens = done.completion_tokens
        drafted_tokens = done.drafted_tokens or 0
        accepted_tokens = done.accepted_tokens or 0
        prompt_seconds = done.timings.prompt
        generation_seconds = done.timings.generation
        stop_reason = _STOP_REASONS.get(done.finish_reason, _OTHER_STOP_REASON)
        if done.stop is not None:
            stop_reason = _STOP_STRING_REASON
    seed = -1
    if tracked is not None and tracked.start is not None:
        seed = tracked.start.seed
    return {
        "last_process": _ratio(prompt_seconds * 1e3, prompt_tokens),
        "last_eval": _ratio(generation_seconds * 1e3, completion_tokens),
        "last_token_count": completion_tokens,
        "last_input_count": prompt_tokens,
        "last_process_time": prompt_seconds,
        "last_eval_time": generation_seconds,
        "last_process_speed": _ratio(prompt_tokens, prompt_seconds),
        "last_eval_speed": _ratio(completion_tokens, generation_seconds),
        "last_seed": seed,
        "last_draft_success": accepted_tokens,
        "last_draft_failed": drafted_tokens - accepted_tokens,
        "stop_reason": stop_reason,
    }


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


async def model_name(_: Request, state: ServerState) -> Response:
    """Return the name of the model."""
    model, _maker = state.loaded()
    return JSONResponse({"result": model.name})


async def api_version(_: Request, _state: ServerState) -> Response:
    """Return the version of KoboldAI's API."""
    return JSONResponse({"result": API_VERSION})


async def koboldcpp_version(_: Request, _state: ServerState) -> Response:
    """Return the version of KoboldCpp, and which of its features this server has: texts only."""
    missing_features = (
        *("protected", "txt2img", "vision", "audio", "transcribe", "multiplayer", "websearch"),
        *("tts", "embeddings", "music", "savedata", "guidance", "jinja", "mcp"),
    )
    return JSONResponse(
        {
            "result": "KoboldCpp",
            "version": KOBOLDCPP_VERSION,
            "llm": True,
            "admin": 0,
            **dict.fromkeys(missing_features, False),
        }
    )


async def max_length(_: Request, state: ServerState) -> Response:
    """Return the number of tokens of an answer whose request says none."""
    _model, maker = state.loaded()
    limit = maker.resolver.default_settings().token_limit
    if limit is None or limit < 0:
        limit = state.engine.context_length
    return JSONResponse({"value": limit})


async def max_context_length(_: Request, state: ServerState) -> Response:
    """Return the length of the context of a request."""
    state.loaded()
    return JSONResponse({"value": state.engine.context_length})


async def soft_prompts(_: Request, _state: ServerState) -> Response:
    """List the soft prompts, trained prompts of KoboldAI: there are none."""
    return JSONResponse({"values": []})


async def soft_prompt(_: Request, _state: ServerState) -> Response:
    """Name the soft prompt in use: none."""
    return JSONResponse({"value": ""})


class SoftPromptFields(StrictModel):
    """The name of a soft prompt; empty for none."""

    value: str = ""


async def set_soft_prompt(request: Request, state: ServerState) -> Response:
    """Use no soft prompt: a request for another one is an error."""
    fields, ignored = await read_fields(request, state, SoftPromptFields)
    if fields.value:
        problem = f"value: the soft prompt {short_repr(fields.value)} does not exist; this server has none"
        raise InvalidRequestError(problem, "value")
    return json_answer(request, {}, ignored)


async def preloaded_story(_: Request, _state: ServerState) -> Response:
    """Return the story that KoboldCpp can be started with: none."""
    return JSONResponse({})


class TokenCountFields(StrictModel):
    """A text to be tokenized.

    ``special``: whether the tokens begin with BOS, which KoboldCpp puts there even if the model does not.
    """

    prompt: str = ""
    special: bool | None = None


async def token_count(request: Request, state: ServerState) -> Response:
    """Return the tokens of a text, and their number."""
    model, _maker = state.loaded()
    fields, ignored = await read_fields(request, state, TokenCountFields)
    ids = await state.run(lambda: model.vocabulary.tokenize(fields.prompt.encode(), special=True))
    bos = model.vocabulary.bos
    if fields.special is not False and bos is not None and ids[:1] != [bos]:
        ids = [bos, *ids]
    return json_answer(request, {"value": len(ids), "ids": ids}, ignored)


class DetokenizeFields(StrictModel):
    """Token ids. ``special``: whether control tokens are written by their names."""

    ids: list[int] = Field(default_factory=list)
    special: bool | None = None


async def detokenize(request: Request, state: ServerState) -> Response:
    """Return the text of tokens."""
    model, _maker = state.loaded()
    fields, ignored = await read_fields(request, state, DetokenizeFields)
    vocabulary = model.vocabulary
    try:
        if fields.special is False:
            data = vocabulary.detokenize(fields.ids)
        else:
            data = b"".join(map(vocabulary.piece, fields.ids))
    except ModelError as error:
        raise InvalidRequestError(f"ids: {error}", "ids") from None
    return json_answer(request, {"result": data.decode("utf-8", "replace"), "success": True}, ignored)


_API_ROUTES = (
    RouteSpec("/api/v1/generate", generate, body=KoboldFields, keys=("results", "x_gen")),
    RouteSpec("/api/v1/model", model_name, "GET", keys=("result",)),
    RouteSpec("/api/v1/info/version", api_version, "GET", keys=("result",)),
    RouteSpec("/api/v1/config/max_length", max_length, "GET", keys=("value",)),
    RouteSpec("/api/v1/config/max_context_length", max_context_length, "GET", keys=("value",)),
    RouteSpec("/api/v1/config/soft_prompts_list", soft_prompts, "GET", keys=("values",)),
    RouteSpec("/api/v1/config/soft_prompt", soft_prompt, "GET", keys=("value",)),
    RouteSpec("/api/v1/config/soft_prompt", set_soft_prompt, "PUT", body=SoftPromptFields),
)

ROUTES = (
    *_API_ROUTES,
    *(route._replace(path=route.path.replace("/v1/", "/latest/")) for route in _API_ROUTES),
    RouteSpec("/api/extra/version", koboldcpp_version, "GET", keys=("result", "version")),
    RouteSpec("/api/extra/preloadstory", preloaded_story, "GET"),
    RouteSpec("/api/extra/true_max_context_length", max_context_length, "GET", keys=("value",)),
    RouteSpec("/api/extra/tokencount", token_count, body=TokenCountFields, keys=("value", "ids")),
    RouteSpec("/api/extra/tokenize", token_count, body=TokenCountFields, keys=("value", "ids")),
    RouteSpec("/api/extra/detokenize", detokenize, body=DetokenizeFields, keys=("result", "success")),
    RouteSpec("/api/extra/generate/stream", generate_stream, body=KoboldFields, media_types=(EVENTS,)),
    RouteSpec("/api/extra/generate/check", generate_check, "GET", keys=("results",)),
    RouteSpec("/api/extra/generate/check", generate_check, keys=("results",)),
    RouteSpec("/api/extra/last_logprobs", last_logprobs, "GET", keys=("logprobs",)),
    RouteSpec("/api/extra/last_logprobs", last_logprobs, keys=("logprobs",)),
    RouteSpec("/api/extra/abort", abort, keys=("success", "done")),
    RouteSpec("/api/extra/perf", perf, "GET", keys=("last_token_count", "total_gens", "queue", "idle")),
)
