"""The route `/gen/next`: the distribution of the next token, before it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.text import short_repr
from ..engine.generation import heal_prompt_of, negative_prompt_ids, read_beginning
from ..engine.guidance import Guidance, GuidedLogits, guide
from ..engine.healing import PromptHealer
from ..engine.model import Model
from ..engine.next_token import RecordingChain, next_token_json, trace_row
from ..engine.request import GenerationRequest
from ..engine.text_rules import TextRules
from ..grammars.constraint import Constraint
from ..logprobs.events import Start
from ..presets.errors import PresetError
from ..presets.preset import load_preset
from ..presets.settings import resolve_settings
from ..requests.fields import ChatFields, GenerationFields, TokenPromptFields, fields_without_place, read_body
from ..samplers.building import build, chain_notation
from ..samplers.chain import Chain
from ..samplers.errors import SamplingError
from ..samplers.kernels import Floats
from .answers import run_requests
from .errors import InvalidRequestError, client_message
from .request_log import record_of
from .requested_names import listed_presets
from .resolution import PreparedRequest
from .state import RouteSpec, ServerState, read_json


class NextTokenFields(GenerationFields):
    """The fields of `/gen/next` in addition to the prompt.

    ``top``: number of most likely tokens of each stage; ``against``: presets or chains to compare with.
    """

    top: Annotated[int, Field(ge=1, le=1000)] | None = None
    against: Annotated[list[str], Field(max_length=16)] | None = None


class NextTokenOfPrompt(NextTokenFields, TokenPromptFields):
    """The next token of a prompt."""


class NextTokenOfChat(NextTokenFields, ChatFields):
    """The first token of the answer to messages."""


_DEFAULT_TOP = 10

# The fields about the tokens of an answer. `/gen/next` returns no answer, but the values of each stage.
_NOT_ANSWERED = (
    *("stream", "echo", "logprobs", "top_logprobs", "n_probs", "post_sampling_probs", "logprob_token_ids"),
    *("prompt_logprobs", "return_tokens", "return_tokens_as_token_ids", "trace"),
)


async def next_token(request: Request, state: ServerState) -> Response:
    """Return the distribution of the next token after each step of a chain. No token is drawn."""
    model, maker = state.loaded()
    record = await read_json(request, state)
    fields_type: type[NextTokenOfPrompt | NextTokenOfChat] = NextTokenOfPrompt
    if isinstance(record, dict) and record.get("messages") is not None:
        fields_type = NextTokenOfChat
    fields, ignored = read_body(fields_type, record, is_strict=state.is_strict(request))
    ignored += fields_without_place(fields, _NOT_ANSWERED)

    def prepare() -> tuple[PreparedRequest, list[tuple[str, Chain]]]:
        prepared = maker.make(fields, ignored)
        if len(prepared.choices) > 1:
            raise InvalidRequestError("the next token of one prompt only can be shown; leave n out", "prompt")
        choice = prepared.choices[0]
        if choice.request.constraint is not None:
            read_beginning(model, cast("Constraint", choice.request.constraint), choice.request.answer_beginning)
        compared_chains = [
            (text, _chain_to_compare(text, choice.chain.seed, model)) for text in fields.against or ()
        ]
        return prepared, compared_chains

    prepared, compared_chains = await state.prepare(request, fields, prepare)
    record_of(request.scope).ignored = prepared.ignored
    generation = prepared.choices[0].request
    chain = prepared.choices[0].chain
    prompt_ids = list(cast("Sequence[int]", generation.prompt))
    healer = heal_prompt_of(model.vocabulary, generation, prompt_ids)
    generation = replace(generation, prompt=tuple(prompt_ids))
    row, decoded_count = await _logits(request, state, model, generation, healer)
    top = min(fields.top or _DEFAULT_TOP, model.vocabulary.size)
    other_chains = [other_chain for _, other_chain in compared_chains]
    result = await state.run(
        lambda: trace_row(model.vocabulary, row, generation, top=top, against=other_chains, healer=healer)
    )
    facts = {
        "chain": chain_notation(chain.config),
        "ignored": list(prepared.ignored),
        "decoded_tokens": decoded_count,
    }
    return JSONResponse(next_token_json(model, chain, result, compared_chains) | {"x_gen": facts})


def _chain_to_compare(text: str, seed: int, model: Model) -> Chain:
    """Return the chain that an entry of ``against`` names or spells."""
    try:
        if text in listed_presets():
            settings = resolve_settings(load_preset(text))
        else:
            settings = resolve_settings(None, chain=text, chain_origin="")
        return build(settings.steps, seed=seed, vocab=model.vocabulary)
    except (PresetError, SamplingError) as error:
        problem = client_message(error)
        raise InvalidRequestError(
            f"against: {short_repr(text)} is not a preset or a chain: {problem}", "against"
        ) from None


async def _logits(
    request: Request,
    state: ServerState,
    model: Model,
    generation: GenerationRequest,
    healer: PromptHealer | None,
) -> tuple[Floats | GuidedLogits, int]:
    """Return the logits after the prompt, and the number of tokens that were decoded for them."""
    ids = cast("tuple[int, ...]", generation.prompt)
    guidance = generation.rules.guidance
    row, decoded_count = await _plain_logits(request, state, model, ids)
    negative_ids = negative_prompt_ids(model, generation, ids)
    if guidance is None or negative_ids is None:
        return row, decoded_count
    if healer is not None:
        negative_ids = healer.without_removed(negative_ids)
    if guidance.model is None:
        negative_row, negative_count = await _plain_logits(request, state, model, tuple(negative_ids))
        return guide(row, negative_row, guidance.scale), decoded_count + negative_count
    # Only the engine may use another model. It returns the logits under guidance, not those of the other model.
    guided_row, count = await _decoded_logits(request, state, model, ids, guidance)
    return GuidedLogits(row, guided_row, guidance.scale), decoded_count + count + len(negative_ids)


async def _plain_logits(
    request: Request, state: ServerState, model: Model, ids: tuple[int, ...]
) -> tuple[Floats, int]:
    """Return the logits after a prompt without guidance, kept from an earlier request if possible."""
    row = state.rows.get(ids)
    if row is not None:
        return row, 0
    row, decoded_count = await _decoded_logits(request, state, model, ids)
    state.rows.put(ids, row)
    return row, decoded_count


async def _decoded_logits(
    request: Request, state: ServerState, model: Model, ids: tuple[int, ...], guidance: Guidance | None = None
) -> tuple[Floats, int]:
    """Decode a prompt, and return the logits after it and the number of decoded tokens."""
    # The engine gives logits only to the chain of a request. This chain keeps them, and its token is not used.
    chain = RecordingChain(model.vocabulary)
    generation = GenerationRequest(ids, chain, max_tokens=1, rules=TextRules(guidance=guidance))
    (events,) = await run_requests(request, state.engine, [generation])
    if chain.row is None:
        raise InvalidRequestError("the prompt fills the whole context; no token can follow", "prompt")
    start = cast("Start", events[0])
    return chain.row, start.prompt_tokens - start.cached_tokens


ROUTES = (RouteSpec("/gen/next", next_token, body=NextTokenOfPrompt, keys=("x_gen",)),)
