"""The routes of grammars below `/gen/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.errors import LogitsmithError
from ..common.strict_model import Json, StrictModel
from ..grammars.errors import GrammarError
from ..grammars.mismatch import Mismatch, find_mismatch
from ..grammars.search import list_grammars
from ..grammars.spec import GRAMMAR_KEYS, resolve_grammar
from ..requests.grammar_fields import text_grammar
from ..requests.sources import grammar_folders
from .errors import client_message
from .limits import public_origin
from .requested_names import check_grammar_source
from .resolution import RequestMaker
from .state import RouteSpec, ServerState, read_fields


async def grammars(_: Request, state: ServerState) -> Response:
    """List the grammars that have a name."""
    entries = await state.run(lambda: list_grammars(grammar_folders()))
    grammars_json = [
        {"name": entry.name, "origin": public_origin(entry.origin), "description": entry.description}
        for entry in entries
    ]
    return JSONResponse({"grammars": grammars_json})


# Maximum length of a text to be matched.
_MAX_TEXT_CHARACTERS = 100_000


class GrammarCheckFields(StrictModel):
    """A grammar, and a text to be matched.

    ``grammar``: the name of a grammar, its text, a table as in presets, or a JSON Schema.
    """

    grammar: str | Json
    text: Annotated[str, Field(max_length=_MAX_TEXT_CHARACTERS)] | None = None


async def check_grammar(request: Request, state: ServerState) -> Response:
    """Check a grammar, or a text against it. A wrong grammar is an answer, not an error of the request."""
    _, maker = state.loaded()
    fields, _ = await read_fields(request, state, GrammarCheckFields)
    return JSONResponse(await state.run(lambda: _checked(maker, fields), is_program=True))


def _checked(maker: RequestMaker, fields: GrammarCheckFields) -> Json:
    value = text_grammar(fields.grammar) if isinstance(fields.grammar, str) else fields.grammar
    is_json_schema = isinstance(value, Mapping) and not GRAMMAR_KEYS.keys() & value.keys()
    if is_json_schema:
        value = {"json_schema": value}
    check_grammar_source(value, "grammar")
    try:
        spec = resolve_grammar(value, grammar_folders())
        spec.try_compilation(maker.guard)
        vocabulary = maker.model.vocabulary if spec.has_token_references else None
        grammar = spec.compile(vocabulary)
        mismatch = None if fields.text is None else find_mismatch(grammar, fields.text)
    except GrammarError as error:
        message = client_message(GrammarError(error.message, place=error.place, advice=error.advice))
        return {"ok": False, "message": message, "line": error.line, "column": error.column}
    except LogitsmithError as error:
        return {"ok": False, "message": client_message(error), "line": None, "column": None}
    answer: Json = {"ok": True, "kind": spec.kind, "ignored_schema_paths": list(spec.ignored_schema_paths)}
    if grammar.parsed.translated_schema_paths:
        answer["translated_schema_paths"] = list(grammar.parsed.translated_schema_paths)
    if fields.text is not None:
        answer["matches"] = mismatch is None
        answer["mismatch"] = None if mismatch is None else _mismatch_json(mismatch)
    return answer


def _mismatch_json(mismatch: Mismatch) -> Json:
    character = mismatch.character
    reason = "the text ends too early" if character is None else f"{character!r} is not allowed here"
    message = f"{reason}; expected {mismatch.expected}"
    return {"line": mismatch.line, "column": mismatch.column, "offset": mismatch.offset, "message": message}


ROUTES = (
    RouteSpec("/gen/grammars", grammars, "GET", keys=("grammars",)),
    RouteSpec("/gen/grammars/check", check_grammar, body=GrammarCheckFields, keys=("ok",)),
)
