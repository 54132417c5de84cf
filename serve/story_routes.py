"""The routes of stories below `/gen/`: what the model reads of one, and files of other tools."""

from __future__ import annotations

from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.strict_model import Json, StrictModel
from ..presets.errors import PresetError
from ..presets.overrides import Override
from ..presets.settings import resolve_settings
from ..presets.story import Story
from ..requests.fields import ChatFields, TokenPromptFields, read_body, read_world_info_field
from ..requests.story_files import Piece, StoryFileError, import_story, kobold_story
from .errors import InvalidRequestError, client_message
from .resolution import ReadStory
from .state import RouteSpec, ServerState, json_answer, read_fields, read_json, read_parts


class ContextFields(TokenPromptFields):
    """The fields of `/gen/context`: those of a request for text."""


async def read_context(request: Request, state: ServerState) -> Response:
    """Return what the model reads of a story: its parts, their tokens, and what is left out."""
    model, maker = state.loaded()
    record = await read_json(request, state)
    is_chat = isinstance(record, dict) and record.get("messages") is not None
    fields_type: type[ContextFields | ChatFields] = ChatFields if is_chat else ContextFields
    fields, ignored = read_body(fields_type, record, is_strict=state.is_strict(request))
    read: ReadStory = await state.prepare(request, fields, lambda: maker.read_story(fields, ignored))
    context = read.context
    answer = {
        "prompt": read.prompt,
        "ids": read.ids,
        "token_count": len(read.ids),
        "max_prompt_tokens": read.max_prompt_tokens,
        "context_length": model.context_length,
        "parts": [part.as_json() for part in context.parts],
        "left_out": [each.as_json() for each in context.left_out],
        "messages": None if context.messages is None else list(context.messages),
    }
    return json_answer(request, answer, list(read.ignored))


async def import_file(request: Request, state: ServerState) -> Response:
    """Read a story of KoboldAI (Lite), or a card, chat or world info of SillyTavern. Nothing is saved."""
    data = b"".join(await read_parts(request, state.access.max_body_bytes))
    user = request.query_params.get("user") or "User"
    try:
        imported = await state.run(lambda: import_story(data, user))
    except StoryFileError as error:
        raise InvalidRequestError(str(error)) from None
    return JSONResponse(imported.as_json())


class ExportFields(StrictModel):
    """A story for KoboldAI. ``pieces``: the text in parts with other versions; ``text``: the text as a whole."""

    format: Literal["koboldai"] = "koboldai"
    memory: str | None = None
    authors_note: str | Json | None = None
    world_info: Json | list[Any] | None = None
    text: str | None = None
    pieces: list[Piece] | None = None


async def export_file(request: Request, state: ServerState) -> Response:
    """Return a story as KoboldAI and KoboldAI Lite read it."""
    fields, _ = await read_fields(request, state, ExportFields)
    pieces = fields.pieces or [Piece(text=fields.text or "")]
    return JSONResponse(kobold_story(pieces, _story_of(fields)))


def _story_of(fields: ExportFields) -> Story:
    given = [(name, getattr(fields, name)) for name in ("memory", "authors_note")]
    overrides = [Override(name, name, value) for name, value in given if value is not None]
    overrides += read_world_info_field(fields.world_info, [])
    try:
        return resolve_settings(None, flags=overrides).story or Story()
    except PresetError as error:
        raise InvalidRequestError(client_message(error)) from None


_CONTEXT_KEYS = (
    "prompt",
    "ids",
    "token_count",
    "max_prompt_tokens",
    "context_length",
    "parts",
    "left_out",
    "messages",
)
_STORY_KEYS = ("format", "name", "text", "pieces", "messages", "memory", "authors_note", "world_info", "remarks")

ROUTES = (
    RouteSpec("/gen/context", read_context, body=ContextFields, keys=_CONTEXT_KEYS),
    RouteSpec("/gen/import", import_file, takes_file=True, keys=_STORY_KEYS),
    RouteSpec(
        "/gen/export", export_file, body=ExportFields, keys=("gamestarted", "prompt", "actions", "worldinfo")
    ),
)
