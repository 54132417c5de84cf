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

from ..engine.model import Model
from ..engine.request import GenerationRequest
from ..logprobs.events import Event
from ..logprobs.other_apis import KoboldMessages, kobold_logprobs, kobold_result, kobold_server_sent
from ..logprobs.text_tokens import tokens_of_text
from ..models.errors import ModelError
from ..requests.fields import PromptFields, fields_without_place
from ..requests.strict_model import Json, StrictModel
from .answers import AnswerFormat, answer
from .errors import InvalidRequestError, RequestError
from .state import EVENTS, RouteSpec, ServerState, json_answer, read_fields, read_json
from .tracked_answers import TrackedAnswer

# The version of KoboldAI's API. SillyTavern sends stop strings only from 1.2.2 on.
API_VERSION = "1.2.5"
# The version of KoboldCpp whose fields and routes are supported. Clients derive from it what they may send.
KOBOLDCPP_VERSION = "1.117"
# Number of most likely tokens if a request says only `"logprobs": true`.
_TOP_COUNT = 5


# The fields of other APIs that KoboldCpp's answers have no place for.
_NOT_ANSWERED = ("echo", "prompt_logprobs", "return_tokens", "return_tokens_as_token_ids", "trace")


class KoboldFields(PromptFields):
    """KoboldCpp's fields, and all others.

    ``memory`` precedes the prompt, and stays if the prompt's beginning is left out because the context is short.
    """

    prompt: str | list[int] | list[str] | list[list[int]] = ""
    memory: str | None = None
    max_context_length: int | None = None
    genkey: str | None = None
    trim_stop: bool | None = None
    use_default_badwordsids: bool | None = None
    singleline: bool | None = None
    tool_of_route: ClassVar[str] = "koboldcpp"

    def normalized(self, is_stream: bool) -> KoboldFields:
        """Return the fields with values under the names that all routes have."""
        unused = [*_NOT_ANSWERED, *fields_without_place(self, _NOT_ANSWERED)]
        changes: Json = dict.fromkeys(unused) | {"stream": is_stream}
        if self.memory and isinstance(self.prompt, str):
            changes["prompt"] = self.memory + self.prompt
        elif self.memory:
            raise InvalidRequestError("memory: it needs a prompt that is a text", "memory")
        if self.logprobs is True:
            changes["logprobs"] = _TOP_COUNT
        if self.use_default_badwordsids and self.ban_eos_token is None:
            changes["ban_eos_token"] = True
        if self.singleline:
            stop = self.stop_sequence or []
            changes["stop_sequence"] = [*([stop] if isinstance(stop, str) else stop), "\n"]
        return self.model_copy(update=changes)


class KoboldFormat(AnswerFormat):
    """KoboldCpp's answer."""

    # A stream has the messages of the first choice, and ends with its finish reason. ``dropped_count``: number of
    # tokens at the beginning of the prompt that were left out.

    def __init__(self, keeps_stop: bool, dropped_count: int) -> None:
        self._keeps_stop = keeps_stop
        self._messages = KoboldMessages(keeps_stop=keeps_stop)
        self._more_facts = {"dropped_prompt_tokens": dropped_count} if dropped_count else {}

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
    length, context = fields.max_context_length, state.engine.context_length
    length = context if length is None or length < 1 else min(length, context)

    dropped_counts = [0]

    def fit(generation: GenerationRequest) -> GenerationRequest:
        fitted = _fit(maker.model, generation, fields.memory or "", length)
        lengths = [len(cast("Sequence[int]", request.prompt)) for request in (generation, fitted)]
        dropped_counts.append(lengths[0] - lengths[1])
        return _with_negative_before_prompt(maker.model, fitted)

    prepared = await state.prepare(request, fields, lambda: maker.make(fields.normalized(is_stream), ignored, fit))
    if is_stream and len(prepared.choices) > 1:  # messages do not say to which text they belong
        many = {"prompt": len(fields.prompts()), "n": fields.n or 1, "n_cmpl": fields.n_cmpl or 1}
        dropped = [name for name, count in many.items() if count > 1 and name not in prepared.ignored]
        prepared = replace(prepared, choices=prepared.choices[:1], ignored=(*prepared.ignored, *dropped))
    form = KoboldFormat(fields.trim_stop is False, max(dropped_counts))
    key = _answer_key(request, fields.genkey)
    return await answer(request, state.engine, prepared, form, partial(state.answers.track, key))


def _with_negative_before_prompt(model: Model, request: GenerationRequest) -> GenerationRequest:
    """Return a request whose negative prompt stands before the prompt, as in KoboldCpp, and not in its place."""
    # The beginning of the prompt is left out there if the context is too short for both.
    guidance = request.rules.guidance
    if guidance is None or not isinstance(guidance.negative_prompt, str) or not guidance.negative_prompt:
        return request
    vocabulary = model.vocabulary
    negative_ids = vocabulary.tokenize_prompt(f"{guidance.negative_prompt}\n".encode())
    prompt_ids = list(cast("Sequence[int]", request.prompt))
    if vocabulary.adds_bos and prompt_ids[:1] == [vocabulary.bos]:
        del prompt_ids[0]
    room = model.context_length - len(negative_ids) - (request.max_tokens or 0) - 1
    ids = (*negative_ids, *prompt_ids[-max(1, room) :])
    return request.guided_by(replace(guidance, negative_prompt=ids))


# A fifth of the context, and at least so many tokens, are left for the prompt, whatever length is requested.
_MIN_PROMPT_SHARE, _MIN_PROMPT_TOKENS = 5, 16
_MIN_TOKENS_AFTER_MEMORY = 4


def _fit(model: Model, request: GenerationRequest, memory: str, length: int) -> GenerationRequest:
    """Return a request whose prompt and answer fit into the context; the same one if they do already."""
    # As in KoboldCpp, tokens are left out after the memory, which stays at the beginning; of a memory that is too
    # long itself, the beginning is left out. BOS stays.
    ids = cast("tuple[int, ...]", request.prompt)
    min_prompt_count = max(min(length - _MIN_TOKENS_AFTER_MEMORY, _MIN_PROMPT_TOKENS), length // _MIN_PROMPT_SHARE)
    if request.max_tokens is not None:
        answer_count = min(request.max_tokens, length - max(min_prompt_count, 1))
    elif len(ids) < length:
        return request
    else:  # an answer without a limit gets half of the context, if the prompt is too long
        answer_count = length // 2
    room = max(min(length - answer_count, model.context_length - 1), 1)
    if len(ids) <= room:
        return request
    kept = model.vocabulary.tokenize_prompt(memory.encode())
    if excess := max(len(kept) + _MIN_TOKENS_AFTER_MEMORY - room, 0):
        has_bos = model.vocabulary.adds_bos and kept[:1] == [model.vocabulary.bos]
        kept = [*kept[:1], *kept[excess + 1 :]] if has_bos else kept[excess:]
    kept_end = ids[len(ids) - (room - len(kept)) :] if room > len(kept) else ()
    return replace(request, prompt=(*kept, *kept_end)[:room], max_tokens=answer_count)


def _answer_key(request: Request, genkey: str | None) -> Hashable:
    """Return the key of an answer: the client's word for it, or else the client's address."""
    # So a client without a word for its answers does not read or end those of other machines.
    if genkey:
        return ("kobold", genkey)
    return ("kobold", None, None if request.client is None else request.client.host)


async def _requested_key(request: Request, state: ServerState) -> Hashable:
    """Return the key that a request names. Clients send no body, or one of another type; both name no key."""
    try:
        body = await read_json(request, state)
    except RequestError:
        body = None
    genkey = body.get("genkey") if isinstance(body, dict) else None
    return _answer_key(request, genkey if isinstance(genkey, str) else None)


async def abort(request: Request, state: ServerState) -> Response:
    """End the answers of a client, which get their text so far."""
    running = state.answers.running(await _requested_key(request, state))
    for tracked in running:
        state.engine.interrupt(tracked.stream)
    word = "true" if running else "false"
    return JSONResponse({"success": word, "done": word})


async def generate_check(request: Request, state: ServerState) -> Response:
    """Return the text so far of a client's last answer."""
    tracked = state.answers.latest(await _requested_key(request, state))
    return JSONResponse({"results": [{"text": "" if tracked is None else tracked.text}]})


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
    counts, answers, now = state.engine.counts, state.answers, time.monotonic()
    return JSONResponse(
        {
            **_last_answer(answers.last_ended()),
            "total_gens": answers.total,
            "queue": counts.waiting,
            "idle": int(state.engine.is_idle),
            "uptime": now - answers.started,
            "idletime": now - answers.last_used,
            "quiet": True,
        }
    )


# KoboldCpp's number for a finish reason; 2 is a stop string, and -1 any other reason.
_STOP_REASONS = {"length": 0, "context": 0, "stop": 1, "grammar": 1, "banned": 1, "loop": 1}


def _last_answer(tracked: TrackedAnswer | None) -> Json:
    """Return KoboldCpp's fields about the last answer, in seconds, and milliseconds per token."""
    done = None if tracked is None else tracked.done
    start = None if tracked is None else tracked.start
    prompt_count, count = (0, 0) if done is None else (done.prompt_tokens, done.completion_tokens)
    prompt_time, time_ = (0.0, 0.0) if done is None else (done.timings.prompt, done.timings.generation)
    reason, drafted_count, accepted_count = -1, 0, 0
    if done is not None:
        drafted_count, accepted_count = done.drafted_tokens or 0, done.accepted_tokens or 0
        reason = 2 if done.stop is not None else _STOP_REASONS.get(done.finish_reason, -1)
    return {
        "last_process": prompt_time * 1e3 / prompt_count if prompt_count else 0.0,
        "last_eval": time_ * 1e3 / count if count else 0.0,
        "last_token_count": count,
        "last_input_count": prompt_count,
        "last_process_time": prompt_time,
        "last_eval_time": time_,
        "last_process_speed": prompt_count / prompt_time if prompt_time else 0.0,
        "last_eval_speed": count / time_ if time_ else 0.0,
        "last_seed": -1 if start is None else start.seed,
        "last_draft_success": accepted_count,
        "last_draft_failed": drafted_count - accepted_count,
        "stop_reason": reason,
    }


async def model_name(_: Request, state: ServerState) -> Response:
    """Return the name of the model."""
    model, _maker = state.loaded()
    return JSONResponse({"result": model.name})


async def api_version(_: Request, _state: ServerState) -> Response:
    """Return the version of KoboldAI's API."""
    return JSONResponse({"result": API_VERSION})


async def koboldcpp_version(_: Request, _state: ServerState) -> Response:
    """Return the version of KoboldCpp, and the features that KoboldCpp has beyond texts."""
    features = ("protected", "llm", "txt2img", "vision", "audio", "transcribe", "multiplayer", "websearch")
    more_features = ("tts", "embeddings", "music", "savedata", "guidance", "jinja", "mcp")
    flags = dict.fromkeys((*features, *more_features), False)
    return JSONResponse({"result": "KoboldCpp", "version": KOBOLDCPP_VERSION, **flags, "llm": True, "admin": 0})


async def max_length(_: Request, state: ServerState) -> Response:
    """Return the number of tokens of an answer whose request says none."""
    _model, maker = state.loaded()
    limit = maker.resolver.default_settings().token_limit
    return JSONResponse({"value": state.engine.context_length if limit is None or limit < 0 else limit})


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


ROUTES = (
    *(
        RouteSpec(f"/api/{version}/{path}", handler, method, body, keys=keys)
        for version in ("v1", "latest")
        for path, handler, method, body, keys in (
            ("generate", generate, "POST", KoboldFields, ("results", "x_gen")),
            ("model", model_name, "GET", None, ("result",)),
            ("info/version", api_version, "GET", None, ("result",)),
            ("config/max_length", max_length, "GET", None, ("value",)),
            ("config/max_context_length", max_context_length, "GET", None, ("value",)),
            ("config/soft_prompts_list", soft_prompts, "GET", None, ("values",)),
            ("config/soft_prompt", soft_prompt, "GET", None, ("value",)),
        )
    ),
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
