"""Logitsmith's own routes, below `/gen/`: the next token, samplers, presets and grammars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..common.errors import LogitsmithError
from ..common.text import short_repr
from ..engine.generation import heal_prompt_of, negative_prompt_ids, read_beginning
from ..engine.guidance import GuidedLogits, guide
from ..engine.healing import PromptHealer
from ..engine.model import Model
from ..engine.next_token import RowReader, next_token_json, trace_row
from ..engine.request import GenerationRequest
from ..grammars.constraint import Constraint
from ..grammars.errors import GrammarError
from ..grammars.mismatch import Mismatch, find_mismatch
from ..grammars.search import list_grammars
from ..grammars.spec import GRAMMAR_KEYS, resolve_grammar
from ..jobs.bodies import StrictModel
from ..jobs.sources import grammar_folders
from ..logprobs.events import Start
from ..presets.errors import PresetError
from ..presets.foreign.conversion import MissingSectionError
from ..presets.foreign.formats import import_metadata, import_text, is_foreign
from ..presets.overrides import SETTING_NAMES
from ..presets.preset import Preset, load_preset
from ..presets.search import PresetEntry, list_presets
from ..presets.settings import resolve_settings
from ..presets.yaml_reader import MAX_FILE_BYTES, check_table, parse_yaml
from ..samplers.base import Sampler
from ..samplers.building import build, chain_notation
from ..samplers.chain import Chain
from ..samplers.errors import SamplingError
from ..samplers.kernels import Floats
from ..samplers.registry import catalogue
from .answers import run_requests
from .bodies import ChatFields, GenerationFields, PromptFields, read_body, text_grammar
from .errors import InvalidRequestError, NotFoundError
from .resolution import Asked, RequestMaker, check_grammar_source, find_listed_preset, listed_presets
from .sampler_fields import Json
from .state import YAML, RouteSpec, ServerState, read_json


class NextTokenFields(GenerationFields):
    """The fields of `/gen/next` in addition to the prompt.

    ``top``: number of most likely tokens of each stage; ``against``: presets or chains to compare with.
    """

    top: Annotated[int, Field(ge=1, le=1000)] | None = None
    against: Annotated[list[str], Field(max_length=16)] | None = None


class NextTokenOfPrompt(NextTokenFields, PromptFields):
    """The next token of a prompt."""


class NextTokenOfChat(NextTokenFields, ChatFields):
    """The first token of the answer to messages."""


_DEFAULT_TOP = 10


async def next_token(request: Request, state: ServerState) -> Response:
    """Return the distribution of the next token after each step of a chain. No token is drawn."""
    model, maker = state.loaded()
    record = await read_json(request, state)
    has_messages = isinstance(record, dict) and record.get("messages") is not None
    fields_type: type[NextTokenOfPrompt | NextTokenOfChat] = NextTokenOfChat if has_messages else NextTokenOfPrompt
    fields, ignored = read_body(fields_type, record)

    def prepare() -> tuple[Asked, list[tuple[str, Chain]]]:
        asked = maker.make(fields, ignored)
        if len(asked.choices) > 1:
            raise InvalidRequestError("the next token of one prompt only can be shown; leave n out", "prompt")
        request = asked.choices[0].request
        if request.constraint is not None:
            read_beginning(model, cast("Constraint", request.constraint), request.beginning)
        seed = cast("Chain", request.chain).seed
        return asked, [(text, _other_chain(text, seed, model)) for text in fields.against or ()]

    asked, against = await state.prepare(request, fields, prepare)
    generation = asked.choices[0].request
    chain = cast("Chain", generation.chain)
    prompt_ids = list(cast("tuple[int, ...]", generation.prompt))
    healer = heal_prompt_of(model.vocabulary, generation, prompt_ids)
    generation = replace(generation, prompt=tuple(prompt_ids))
    row, decoded_count = await _logits(request, state, model, generation, healer)
    top = min(fields.top or _DEFAULT_TOP, model.vocabulary.size)
    result = await state.run(
        lambda: trace_row(
            model.vocabulary, row, generation, top=top, against=[other for _, other in against], healer=healer
        )
    )
    facts = {
        "chain": chain_notation(chain.config),
        "ignored": list(asked.ignored),
        "decoded_tokens": decoded_count,
    }
    return JSONResponse(next_token_json(model, chain, result, against) | {"x_gen": facts})


def _other_chain(text: str, seed: int, model: Model) -> Chain:
    """Return the chain of a preset, or the chain in notation. Raises ``InvalidRequestError``."""
    try:
        is_preset = text in listed_presets()
        settings = resolve_settings(load_preset(text)) if is_preset else resolve_settings(None, chain=text)
        return build(settings.steps, seed=seed, vocab=model.vocabulary)
    except (PresetError, SamplingError) as error:
        message = str(error).removeprefix("--chain: ")
        raise InvalidRequestError(
            f"against: {short_repr(text)} is not a preset or a chain: {message}", "against"
        ) from None


async def _logits(
    request: Request,
    state: ServerState,
    model: Model,
    generation: GenerationRequest,
    healer: PromptHealer | None,
) -> tuple[Floats | GuidedLogits, int]:
    """Return the logits after the prompt, and the number of tokens that were decoded for them."""
    ids, guidance = cast("tuple[int, ...]", generation.prompt), generation.guidance
    row, decoded_count = await _row_after(request, state, model, ids)
    negative_ids = negative_prompt_ids(model, generation, ids)
    if guidance is None or negative_ids is None:
        return row, decoded_count
    if healer is not None:
        negative_ids = healer.without_removed(negative_ids)
    if guidance.model is None:
        negative_row, negative_count = await _row_after(request, state, model, tuple(negative_ids))
        return guide(row, negative_row, guidance.scale), decoded_count + negative_count
    reader = RowReader(model.vocabulary)  # gets the logits that the other model has changed
    (events,) = await run_requests(
        request, state.engine, [GenerationRequest(ids, reader, max_tokens=1, guidance=guidance)]
    )
    decoded_count += cast("Start", events[0]).prompt_tokens - cast("Start", events[0]).cached_tokens
    return GuidedLogits(row, cast("Floats", reader.row), guidance.scale), decoded_count + len(negative_ids)


async def _row_after(
    request: Request, state: ServerState, model: Model, ids: tuple[int, ...]
) -> tuple[Floats, int]:
    """Return the model's logits after a prompt, and the number of tokens that were decoded for them."""
    row = state.rows.get(ids)
    if row is not None:
        return row, 0
    reader = RowReader(model.vocabulary)
    (events,) = await run_requests(request, state.engine, [GenerationRequest(ids, reader, max_tokens=1)])
    start = cast("Start", events[0])
    if reader.row is None:
        raise InvalidRequestError("the prompt fills the whole context; no token can follow", "prompt")
    state.rows.put(ids, reader.row)
    return reader.row, start.prompt_tokens - start.cached_tokens


async def samplers(_: Request, _state: ServerState) -> Response:
    """List the samplers with their parameters."""
    return JSONResponse({"samplers": [sampler_json(cls) for cls in catalogue().values()]})


def sampler_json(cls: type[Sampler]) -> Json:
    """Return the description of a sampler. The parameters are those of its JSON Schema, with their names."""
    about = cls.about
    names = ("name", "summary", "formula", "reference", "llama_cpp", "aliases", "main_parameter", "example")
    schema = cls.model_json_schema()
    return {
        **{name: getattr(about, name) for name in (*names, "off_values", "stage", "is_selector")},
        "parameters": [{"name": name, **values} for name, values in schema.get("properties", {}).items()],
        **({"$defs": schema["$defs"]} if "$defs" in schema else {}),
    }


def _origin(origin: str) -> str:
    """Return where a file comes from. The path of a folder is not told."""
    return origin if origin == "built-in" else "user"


async def presets(_: Request, state: ServerState) -> Response:
    """List the presets with their chains."""
    entries = await state.run(lambda: [_preset_json(entry) for entry in list_presets() if not entry.is_shadowed])
    return JSONResponse({"presets": entries})


def _preset_json(entry: PresetEntry) -> Json:
    fields: Json = {"name": entry.name, "origin": _origin(entry.origin)}
    try:
        preset = load_preset(entry.name)
    except PresetError as error:
        return fields | {"error": str(error).replace(str(entry.path), entry.name)}
    return fields | {"description": preset.description, **_chain_json(preset)}


def _chain_json(preset: Preset) -> Json:
    config = [{sampler.about.name: sampler.model_dump()} for sampler in preset.samplers()]
    return {"chain": chain_notation(config)}


async def preset_text(request: Request, state: ServerState) -> Response:
    """Return the YAML of a preset."""
    name = request.path_params["name"]
    text = await state.run(lambda: _preset_yaml(state, name))
    return PlainTextResponse(text, media_type=YAML)


def _preset_yaml(state: ServerState, name: str) -> str:
    if name == "model":
        model, _ = state.loaded()
        imported = import_metadata(model.metadata)
        if imported is None:
            raise NotFoundError("model: this model names no sampling settings", "name")
        return imported.yaml_text()
    try:
        entry = find_listed_preset(name, "name")
    except InvalidRequestError as error:
        raise NotFoundError(str(error), "name") from None
    return entry.path.read_text("utf-8", "replace")


class PresetImportFields(StrictModel):
    """The text of a preset.

    ``name``: the name of its file, which is part of messages; ``format``: the tool that wrote it, recognized by
    default; ``section``: one of several presets in the text.
    """

    text: str
    name: str | None = None
    format: str | None = None
    section: str | None = None


async def import_preset(request: Request, state: ServerState) -> Response:
    """Convert a preset of another tool to a preset of logitsmith. Nothing is saved."""
    fields, _ = read_body(PresetImportFields, await read_json(request, state))
    return await state.run(lambda: _imported(fields))


def _imported(fields: PresetImportFields) -> Response:
    if len(fields.text.encode()) > MAX_FILE_BYTES:
        raise InvalidRequestError(f"text: it has more than {MAX_FILE_BYTES:,} bytes", "text")
    name = (fields.name or "preset").replace("\\", "/").rpartition("/")[2] or "preset"
    try:
        if fields.format is None and not is_foreign(fields.text, name):
            facts = _own_preset(fields.text, name)
        else:
            imported = import_text(fields.text, name, fields.format, fields.section)
            facts = {
                "name": imported.preset.name,
                "format": imported.format,
                "preset": imported.yaml_text(),
                **_chain_json(imported.preset),
                "settings": dict(imported.other_settings),
                "unsupported": list(imported.unsupported_settings),
                "notes": list(imported.notes),
                "sections": imported.sections,
            }
    except MissingSectionError as error:
        body = InvalidRequestError(str(error), "section").as_json()
        return JSONResponse(body | {"sections": list(error.names)}, 400)
    except (PresetError, SamplingError) as error:
        raise InvalidRequestError(str(error), "text") from None
    return JSONResponse(facts)


def _own_preset(text: str, name: str) -> Json:
    """Return the description of a preset of logitsmith, whose text is kept."""
    stem = name.removesuffix(".yaml").removesuffix(".yml")
    preset = Preset.from_table(check_table(parse_yaml(text, name), name), origin=name, name=stem, source=name)
    facts = {"name": stem, "format": "logitsmith", "preset": text, **_chain_json(preset)}
    settings = {name: getattr(preset, name) for name in SETTING_NAMES if name in preset.model_fields_set}
    return facts | {"settings": settings, "unsupported": [], "notes": [], "sections": []}


async def grammars(_: Request, state: ServerState) -> Response:
    """List the grammars that have a name."""
    entries = [
        {"name": entry.name, "origin": _origin(entry.origin), "description": entry.description}
        for entry in await state.run(lambda: list_grammars(grammar_folders()))
    ]
    return JSONResponse({"grammars": entries})


_MAX_TEXT_CHARACTERS = 100_000
"""Maximum length of a text to be matched."""


class GrammarCheckFields(StrictModel):
    """A grammar: a name, the text of one, or a table as in presets; and a text to be matched."""

    grammar: str | Json
    text: Annotated[str, Field(max_length=_MAX_TEXT_CHARACTERS)] | None = None


async def check_grammar(request: Request, state: ServerState) -> Response:
    """Check a grammar, or a text against it. A wrong grammar is an answer, not an error of the request."""
    _, maker = state.loaded()
    fields, _ = read_body(GrammarCheckFields, await read_json(request, state))
    return JSONResponse(await state.run(lambda: _checked(maker, fields), is_program=True))


def _checked(maker: RequestMaker, fields: GrammarCheckFields) -> Json:
    value = text_grammar(fields.grammar) if isinstance(fields.grammar, str) else fields.grammar
    if isinstance(value, Mapping) and not GRAMMAR_KEYS.keys() & value.keys():
        value = {"json_schema": value}
    check_grammar_source(value, "grammar")
    try:
        spec = resolve_grammar(value, grammar_folders())
        maker.guard.check(spec)
        grammar = spec.compile(maker.model.vocabulary if spec.has_token_references else None)
        mismatch = None if fields.text is None else find_mismatch(grammar, fields.text)
    except GrammarError as error:
        return {"ok": False, "message": error.message, "line": error.line, "column": error.column}
    except LogitsmithError as error:
        return {"ok": False, "message": str(error), "line": None, "column": None}
    answer: Json = {"ok": True, "kind": spec.kind, "ignored_schema_paths": list(spec.ignored_schema_paths)}
    if fields.text is not None:
        answer |= {"matches": mismatch is None, "mismatch": None if mismatch is None else _mismatch_json(mismatch)}
    return answer


def _mismatch_json(mismatch: Mismatch) -> Json:
    character = mismatch.character
    reason = "the text ends too early" if character is None else f"{character!r} is not allowed here"
    message = f"{reason}; expected {mismatch.expected}"
    return {"line": mismatch.line, "column": mismatch.column, "offset": mismatch.offset, "message": message}


ROUTES = (
    RouteSpec("/gen/next", next_token, body=NextTokenOfPrompt, keys=("x_gen",)),
    RouteSpec("/gen/samplers", samplers, "GET", keys=("samplers",)),
    RouteSpec("/gen/presets", presets, "GET", keys=("presets",)),
    RouteSpec("/gen/presets/import", import_preset, body=PresetImportFields, keys=("name", "format", "preset")),
    RouteSpec("/gen/presets/{name}", preset_text, "GET", media_types=(YAML,)),
    RouteSpec("/gen/grammars", grammars, "GET", keys=("grammars",)),
    RouteSpec("/gen/grammars/check", check_grammar, body=GrammarCheckFields, keys=("ok",)),
)
