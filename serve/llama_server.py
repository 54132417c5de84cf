"""llama-server's routes: `/completion`, `/completions`, `/apply-template`, `/props` and `/slots`.

`docs/serve/llama-server.md` lists the differences from llama-server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.strict_json import without_whole_floats
from ..common.strict_model import Json
from ..engine.generation import prompt_token_ids, versions
from ..engine.vocabulary import Vocabulary
from ..logprobs.events import Event, Start
from ..logprobs.openai import server_sent
from ..logprobs.other_apis import LlamaServerChunks, llama_server_completion, llama_server_samplers
from ..presets.foreign.lists import read_biased_token
from ..requests.fields import ChatFields, PromptFields, fields_without_place, read_body
from ..samplers.tokens import tokens_of_text
from .answers import AnswerFormat, answer
from .errors import InvalidRequestError
from .resolution import PreparedRequest
from .state import EVENTS, JSON, RouteSpec, ServerState, json_answer, read_fields, read_json
from .x_gen import x_gen

# The seed with which llama-server draws a random seed.
_RANDOM_SEED = 0xFFFFFFFF


class CompletionFields(PromptFields):
    """A text to be continued, or several; a list may mix texts and token ids."""

    response_fields: list[str] | None = None
    tool_of_route: ClassVar[str] = "llama.cpp"
    every_stream_tells_confidence: ClassVar[bool] = True


class LlamaServerFormat(AnswerFormat):
    """llama-server's answer, or a list of several. No event marks the end of a stream, as in llama-server."""

    def __init__(self, prepared: PreparedRequest, fields: CompletionFields) -> None:
        self._prepared = prepared
        self._fields = fields
        self._chunks = [
            LlamaServerChunks(prompt=choice.prompt, index=index) for index, choice in enumerate(prepared.choices)
        ]

    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json | list[Json]:
        """Return the answer, or a list of several answers."""
        records = []
        for index, (choice, run) in enumerate(zip(self._prepared.choices, runs, strict=True)):
            record = llama_server_completion(
                run, prompt=choice.prompt, index=index, has_token_ids=bool(self._fields.return_tokens)
            )
            assert isinstance(run[0], Start)  # noqa: S101 - a run without a failure begins so
            own_facts = x_gen(self._prepared, choice, run[0], facts["exactness"])
            records.append(self._complete(record, own_facts))
        return records if len(records) > 1 else records[0]

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the chunks of an event."""
        for chunk in self._chunks[index].push(event):
            is_last = chunk["stop"]
            yield server_sent(self._complete(chunk, facts) if is_last else chunk)

    def _complete(self, record: Json, facts: Json | None) -> Json:
        """Return an answer with the fields that only a server knows, reduced to ``response_fields``."""
        settings = record["generation_settings"] | {"stream": bool(self._fields.stream)}
        record = record | {"generation_settings": settings, "x_gen": facts}
        paths = self._fields.response_fields
        return _select_fields(record, paths) if paths else record


def _select_fields(record: Json, paths: Sequence[str]) -> Json:
    """Return the fields at these paths, such as ``timings/predicted_n``, by path. Unknown paths are left out."""
    selected: Json = {}
    for path in paths:
        value: Any = record
        for name in path.split("/"):
            if not isinstance(value, Mapping) or name not in value:
                break
            value = value[name]
        else:
            selected[path] = value
    return selected


async def completion(request: Request, state: ServerState) -> Response:
    """Answer `/completion`."""
    model, maker = state.loaded()
    state.check_queue()
    record = await read_json(request, state)
    is_strict = state.is_strict(request)
    fields, ignored = await state.run(lambda: _read_fields(record, model.vocabulary, is_strict=is_strict))
    prepared = await state.prepare(request, fields, lambda: maker.make(fields, ignored))
    return await answer(request, state.engine, prepared, LlamaServerFormat(prepared, fields))


# The fields of other routes for which llama-server's answers have no place.
_NOT_IN_THIS_FORMAT = ("echo", "prompt_logprobs", "return_tokens_as_token_ids", "logprob_token_ids", "trace")


def _read_fields(record: object, vocabulary: Vocabulary, *, is_strict: bool) -> tuple[CompletionFields, list[str]]:
    """Return the fields of a request, and the names of those without effect. Raises ``InvalidRequestError``."""
    if isinstance(record, dict):
        record = dict(record)
        if record.get("prompt") is not None:
            record["prompt"] = _read_prompts(without_whole_floats(record["prompt"]), vocabulary)
        if record.get("logit_bias") is not None:
            record["logit_bias"] = _read_biases(without_whole_floats(record["logit_bias"]), vocabulary)
    fields, ignored = read_body(CompletionFields, record, is_strict=is_strict)
    unused = fields_without_place(fields, _NOT_IN_THIS_FORMAT)
    return fields.without(unused), [*ignored, *unused]


def _read_prompts(value: Any, vocabulary: Vocabulary) -> Any:
    """Return llama-server's prompts as OpenAI writes prompts. Values of a wrong type remain as they are."""
    # Two forms are llama-server's alone. A list that mixes texts and ids, such as ["a", 5], is one prompt. An
    # object has its text at ``prompt_string``.
    if isinstance(value, dict) and isinstance(value.get("prompt_string"), str):
        if value.get("multimodal_data"):
            raise InvalidRequestError(
                "prompt: multimodal_data is not supported; the model reads text only", "prompt"
            )
        return value["prompt_string"]
    if not isinstance(value, list):
        return value
    if any(type(item) is int for item in value):
        return _joined_ids(value, vocabulary)
    prompts: list[Any] = []
    for item in value:
        if isinstance(item, list):
            prompts.append(_joined_ids(item, vocabulary))
        else:
            prompts.append(_read_prompts(item, vocabulary))
    if not any(isinstance(prompt, list) for prompt in prompts):
        return prompts
    # OpenAI knows a list of texts or a list of ids, but not both in one list.
    return [prompt_token_ids(vocabulary, prompt) if isinstance(prompt, str) else prompt for prompt in prompts]


def _joined_ids(parts: list[Any], vocabulary: Vocabulary) -> list[Any]:
    """Return the token ids of a list of texts and ids. Only a text at the beginning of the list gets BOS."""
    ids: list[Any] = []
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            ids.append(part)
        elif number == 0:
            ids += prompt_token_ids(vocabulary, part)
        elif part:
            ids += vocabulary.tokenize(part.encode(), special=True)
    return ids


def _read_biases(value: Any, vocabulary: Vocabulary) -> Any:
    """Return biases as pairs of id and bias. Values of a wrong type remain as they are."""
    # As in llama-server, a bias may name a text instead of an id. The token with exactly this text gets the bias.
    # If there is no such token, each token of the text gets it. Several biases of one token are added.
    if isinstance(value, Mapping):
        pairs = [(read_biased_token(key), bias) for key, bias in value.items()]
    elif isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        pairs = [(key, bias) for key, bias in value]
    else:
        return value
    biases: dict[Any, Any] = {}
    for key, bias in pairs:
        if not isinstance(key, (int, str)) or not isinstance(bias, (int, float)):
            return value
        tokens = tokens_of_text(vocabulary, key.encode()) if isinstance(key, str) else [key]
        for token in tokens:
            is_banned = bias is False or biases.get(token) is False
            biases[token] = False if is_banned else biases.get(token, 0) + bias
    return [[token, bias] for token, bias in biases.items()]


async def apply_template(request: Request, state: ServerState) -> Response:
    """Return the prompt that the chat template makes of messages."""
    _, maker = state.loaded()
    fields, ignored = await read_fields(request, state, ChatFields)
    prepared = await state.prepare(request, fields, lambda: maker.make(fields, ignored))
    return json_answer(request, {"prompt": prepared.choices[0].prompt}, list(prepared.ignored))


async def props(_: Request, state: ServerState) -> Response:
    """Describe the model, and the settings of requests that set nothing."""
    model, maker = state.loaded()
    settings = maker.resolver.default_settings()
    max_tokens = -1 if settings.token_limit is None else settings.token_limit
    seed = settings["seed"].value
    chain = [{step.name: step.sampler.model_dump()} for step in settings.steps if not step.is_off]
    params = {
        "seed": _RANDOM_SEED if seed is None else seed,
        **llama_server_samplers(chain),
        "max_tokens": max_tokens,
        "n_predict": max_tokens,
        "stop": settings["stop"].value,
        "stream": False,
        "n_probs": 0,
        "post_sampling_probs": False,
    }
    return JSONResponse(
        {
            "default_generation_settings": {"params": params, "n_ctx": model.context_length},
            "total_slots": state.engine.counts.slots,
            "model_alias": model.name,
            "model_path": model.path.name,  # only the name: a client must not learn the folders of this machine
            "modalities": {"vision": False, "video": False, "audio": False},
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "chat_template": model.chat_template or "",
            "bos_token": model.special_text("bos"),
            "eos_token": model.special_text("eos"),
            "build_info": f"logitsmith-{versions()['logitsmith']}",
            "is_sleeping": False,
        }
    )


async def slots(_: Request, state: ServerState) -> Response:
    """List the slots. The first ones count as busy: it is not known which slot runs which request."""
    model, _maker = state.loaded()
    counts = state.engine.counts
    has_drafts = state.defaults.draft is not None or state.defaults.lookup > 0
    return JSONResponse(
        [
            {
                "id": number,
                "n_ctx": model.context_length,
                "speculative": has_drafts,
                "is_processing": number < counts.running,
            }
            for number in range(counts.slots)
        ]
    )


ROUTES = (
    RouteSpec("/completion", completion, body=CompletionFields, media_types=(JSON, EVENTS)),
    RouteSpec("/completions", completion, body=CompletionFields, media_types=(JSON, EVENTS)),
    RouteSpec("/apply-template", apply_template, body=ChatFields, keys=("prompt",)),
    RouteSpec("/props", props, "GET", keys=("default_generation_settings", "total_slots", "chat_template")),
    RouteSpec("/slots", slots, "GET"),
)
