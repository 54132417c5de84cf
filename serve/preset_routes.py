"""The routes of samplers, chains and presets below `/gen/`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..common.strict_model import Json, StrictModel
from ..presets.errors import PresetError
from ..presets.foreign.formats import import_metadata, import_text, is_foreign
from ..presets.foreign.preset_file import MissingSectionError
from ..presets.preset import Preset, load_preset
from ..presets.search import PresetEntry, list_presets
from ..presets.setting_table import SETTINGS
from ..presets.settings import preset_of_text, resolve_settings
from ..presets.settings_list import list_settings
from ..presets.yaml_reader import MAX_FILE_BYTES, check_table, parse_yaml, read_text
from ..presets.yaml_writer import write_step, write_yaml
from ..requests.fields import setting_value
from ..samplers.base import Sampler
from ..samplers.building import chain_notation, parse_chain
from ..samplers.errors import SamplingError
from ..samplers.methods.dist import Dist
from ..samplers.registry import catalogue
from .errors import InvalidRequestError, NotFoundError, client_message
from .limits import public_origin
from .requested_names import find_listed_preset
from .state import YAML, RouteSpec, ServerState, read_fields


async def list_samplers(_: Request, _state: ServerState) -> Response:
    """List the samplers with their parameters."""
    return JSONResponse({"samplers": [sampler_json(cls) for cls in catalogue().values()]})


def sampler_json(cls: type[Sampler]) -> Json:
    """Return the description of a sampler. The parameters are those of its JSON Schema, with their names."""
    names = (
        *("name", "summary", "formula", "reference", "llama_cpp", "aliases", "main_parameter", "example"),
        *("off_values", "stage", "is_selector"),
    )
    description: Json = {name: getattr(cls.about, name) for name in names}
    schema = cls.model_json_schema()
    properties = schema.get("properties", {})
    description["parameters"] = [{"name": name, **facts} for name, facts in properties.items()]
    if "$defs" in schema:
        description["$defs"] = schema["$defs"]
    return description


class ChainFields(StrictModel):
    """A chain in notation, or the name of a preset. Without both, the server's own chain is meant."""

    chain: str | None = None
    preset: str | None = None


async def read_chain(request: Request, state: ServerState) -> Response:
    """Return the steps of a chain with all parameters. A preset's other settings are returned, too."""
    fields, _ = await read_fields(request, state, ChainFields)
    return JSONResponse(await state.run(lambda: _chain_fields(state, fields)))


def _chain_fields(state: ServerState, fields: ChainFields) -> Json:
    _, maker = state.loaded()
    if fields.chain is not None:
        return {**_chain_json(_parse_complete_chain(fields.chain)), "settings": {}}
    if fields.preset is None:
        settings = maker.resolver.default_settings()
    else:
        find_listed_preset(fields.preset, "preset")
        settings = resolve_settings(load_preset(fields.preset))
    values = {
        name: None if setting.origin == "default" else setting.value for name, setting in settings.values.items()
    }
    return {**_chain_json(settings.samplers()), "settings": values}


def _parse_complete_chain(notation: str) -> list[Sampler]:
    """Return the samplers of a chain. A chain without a sampler that draws ends with `Dist`."""
    try:
        samplers = parse_chain(notation)
    except SamplingError as error:
        raise InvalidRequestError(client_message(error), "chain") from None
    if not samplers or not samplers[-1].about.is_selector:
        samplers.append(Dist())
    return samplers


def _chain_json(samplers: Sequence[Sampler]) -> Json:
    """Return a chain as notation, and its steps with all parameters."""
    notation = chain_notation([{sampler.about.name: sampler.model_dump()} for sampler in samplers])
    steps = [
        {"name": sampler.about.name, "parameters": _with_text_keys(sampler.model_dump())} for sampler in samplers
    ]
    return {"chain": notation, "steps": steps}


def _with_text_keys(value: Any) -> Any:
    """Return a value whose tables have texts as keys, at any depth, as JSON needs them."""
    if isinstance(value, Mapping):
        return {_text_key(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(item) for item in value]
    return value


def _text_key(key: int | str) -> str:
    """Return a key of a table of tokens as text: the id 5 as ``5``, and the text "5" with its quotes."""
    if isinstance(key, int) or key.isidentifier():
        return str(key)
    return json.dumps(key)


async def presets(_: Request, state: ServerState) -> Response:
    """List the presets with their chains."""
    entries = await state.run(lambda: [_preset_json(entry) for entry in list_presets() if not entry.is_shadowed])
    return JSONResponse({"presets": entries})


def _preset_json(entry: PresetEntry) -> Json:
    fields: Json = {"name": entry.name, "origin": public_origin(entry.origin)}
    try:
        preset = preset_of_text(read_text(entry.path, entry.name), entry.name)
    except PresetError as error:
        return fields | {"error": client_message(error)}
    return fields | {"description": preset.description, **_notation_of(preset)}


def _notation_of(preset: Preset) -> Json:
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
    return read_text(entry.path, name)


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
    fields, _ = await read_fields(request, state, PresetImportFields)
    return await state.run(lambda: _imported(fields))


def _imported(fields: PresetImportFields) -> Response:
    if len(fields.text.encode()) > MAX_FILE_BYTES:
        raise InvalidRequestError(f"text: it has more than {MAX_FILE_BYTES:,} bytes", "text")
    path = (fields.name or "").replace("\\", "/")
    name = path.rpartition("/")[2] or "preset"
    try:
        if fields.format is None and not is_foreign(fields.text, name):
            facts = _own_preset(fields.text, name)
        else:
            imported = import_text(fields.text, name, fields.format, fields.section)
            facts = {
                "name": imported.preset.name,
                "format": imported.format,
                "preset": imported.yaml_text(),
                **_notation_of(imported.preset),
                "settings": dict(imported.other_settings),
                "unsupported": list(imported.unsupported_settings),
                "notes": list(imported.notes),
                "sections": imported.sections,
            }
    except MissingSectionError as error:
        body = InvalidRequestError(str(error), "section").as_json()
        return JSONResponse(body | {"sections": list(error.names)}, 400)
    except (PresetError, SamplingError) as error:
        raise InvalidRequestError(client_message(error), "text") from None
    return JSONResponse(facts)


def _own_preset(text: str, name: str) -> Json:
    """Return the description of a preset of logitsmith, whose text is kept."""
    stem = name.removesuffix(".yaml").removesuffix(".yml")
    table = check_table(parse_yaml(text, name), name)
    preset = Preset.from_table(table, origin=name, name=stem, source=name)
    return {
        "name": stem,
        "format": "logitsmith",
        "preset": text,
        **_notation_of(preset),
        "settings": {name: getattr(preset, name) for name in SETTINGS if name in preset.model_fields_set},
        "unsupported": [],
        "notes": [],
        "sections": [],
    }


class PresetTextFields(StrictModel):
    """The settings of a preset.

    ``base``: the text of a preset, whose other keys are kept. ``chain``: the chain in notation. ``settings``: the
    changed keys of the preset, without its chain; null removes a key.
    """

    base: str | None = None
    chain: str
    settings: dict[str, Any] = Field(default_factory=dict)


async def write_preset(request: Request, state: ServerState) -> Response:
    """Return the text of a preset file with a chain and settings. Nothing is saved."""
    fields, _ = await read_fields(request, state, PresetTextFields)
    return JSONResponse({"preset": await state.run(lambda: _checked_preset_text(fields))})


def _checked_preset_text(fields: PresetTextFields) -> str:
    try:
        return _preset_file_text(fields)
    except (PresetError, SamplingError) as error:
        is_about_setting = error.place and error.place[0] in fields.settings
        field = "settings" if is_about_setting else "chain"
        raise InvalidRequestError(client_message(error), field) from None


def _preset_file_text(fields: PresetTextFields) -> str:
    if fields.base is not None and len(fields.base.encode("utf-8", "replace")) > MAX_FILE_BYTES:
        raise InvalidRequestError(f"base: it has more than {MAX_FILE_BYTES:,} bytes", "base")
    table: Json = {}
    if fields.base is not None:
        table.update(check_table(parse_yaml(fields.base, "base"), "base"))
    chain = [_changed_step(sampler) for sampler in parse_chain(fields.chain)]
    for name, value in fields.settings.items():
        table.pop(name, None)
        if value is not None:
            table[name] = setting_value(name, value)
    phases = table.get("phases")
    if isinstance(phases, list) and phases:
        table["phases"] = [*phases[:-1], {"chain": chain}]  # the last phase has the chain of the preset
    else:
        table["chain"] = chain
    Preset.from_table(table)
    lines = []
    for key, value in table.items():
        if key == "chain":
            lines += ["chain:\n", *(f"  - {write_step(step)}\n" for step in value)]
        else:
            lines.append(write_yaml({key: value}))
    return "".join(lines)


def _changed_step(sampler: Sampler) -> str | Json:
    """Return a step as presets write it, without the parameters that have their default values."""
    values = _with_lists(sampler.model_dump(exclude_defaults=True))
    return {sampler.about.name: values} if values else sampler.about.name


def _with_lists(value: Any) -> Any:
    """Return a value whose tuples are lists, at any depth, as YAML needs them."""
    if isinstance(value, Mapping):
        return {key: _with_lists(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_lists(item) for item in value]
    return value


async def settings_list(_: Request, _state: ServerState) -> Response:
    """List all settings: allowed values, defaults, flags, names in other tools."""
    return JSONResponse({"settings": [each.as_json() for each in list_settings()]})


ROUTES = (
    RouteSpec("/gen/settings", settings_list, "GET", keys=("settings",)),
    RouteSpec("/gen/samplers", list_samplers, "GET", keys=("samplers",)),
    RouteSpec("/gen/chain", read_chain, body=ChainFields, keys=("chain", "steps", "settings")),
    RouteSpec("/gen/presets", presets, "GET", keys=("presets",)),
    RouteSpec("/gen/presets/import", import_preset, body=PresetImportFields, keys=("name", "format", "preset")),
    RouteSpec("/gen/presets/text", write_preset, body=PresetTextFields, keys=("preset",)),
    RouteSpec("/gen/presets/{name}", preset_text, "GET", media_types=(YAML,)),
)
