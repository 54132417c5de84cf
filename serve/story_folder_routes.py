"""The routes of the stories in a folder of the server, below `/gen/`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.strict_model import Json, StrictModel
from .errors import ConflictError, NotFoundError
from .state import RouteSpec, ServerState, read_fields
from .story_folder import StoryFolder


class StoryFields(StrictModel):
    """A story. ``text``: for people, in NAME.txt; ``data``: for the page, in NAME.json."""

    text: str
    data: dict[str, Any]


class NewStoryFields(StoryFields):
    """A new story. Its name is made of ``title``."""

    title: str


class ChangedStoryFields(StoryFields):
    """A story that replaces the last one. ``version``: of the one that was read."""

    version: str


def _folder(state: ServerState) -> StoryFolder:
    if state.stories is None:
        raise NotFoundError("this server keeps no stories; start it with --stories FOLDER")
    return state.stories


async def list_stories(_: Request, state: ServerState) -> Response:
    """List the stories of the server's folder, the one that was changed last first."""
    folder = _folder(state)
    return JSONResponse({"stories": [story._asdict() for story in await state.run(folder.stories)]})


async def create_story(request: Request, state: ServerState) -> Response:
    """Write a story into the server's folder, under a free name."""
    folder = _folder(state)
    fields, _ = await read_fields(request, state, NewStoryFields)
    name, version = await state.run(lambda: folder.create(fields.title, fields.text, fields.data))
    return _versioned({"name": name}, version)


async def read_story(request: Request, state: ServerState) -> Response:
    """Return a story of the server's folder."""
    folder, name = _folder(state), request.path_params["name"]
    story = await state.run(lambda: folder.read(name))
    return _versioned({"name": name, "text": story.text, "data": story.data}, story.version)


async def replace_story(request: Request, state: ServerState) -> Response:
    """Replace a story of the server's folder, if its version is the last one."""
    folder, name = _folder(state), request.path_params["name"]
    fields, _ = await read_fields(request, state, ChangedStoryFields)
    version = await state.run(lambda: folder.replace(name, fields.text, fields.data, fields.version))
    return _versioned({"name": name}, version)


async def delete_story(request: Request, state: ServerState) -> Response:
    """Delete a story of the server's folder, if `version` in the address is the last one."""
    folder, name = _folder(state), request.path_params["name"]
    version = request.query_params.get("version", "")
    await state.run(lambda: folder.delete(name, version))
    return JSONResponse({"name": name})


def _versioned(body: Json, version: str) -> Response:
    return JSONResponse(body | {"version": version}, headers={"etag": f'"{version}"'})


_STORY = "/gen/stories/{name}"
ROUTES = (
    RouteSpec("/gen/stories", list_stories, "GET", keys=("stories",), errors=(NotFoundError,)),
    RouteSpec(
        "/gen/stories", create_story, body=NewStoryFields, keys=("name", "version"), errors=(NotFoundError,)
    ),
    RouteSpec(_STORY, read_story, "GET", keys=("name", "version", "text", "data")),
    RouteSpec(
        _STORY,
        replace_story,
        "PUT",
        body=ChangedStoryFields,
        keys=("name", "version"),
        errors=(ConflictError,),
    ),
    RouteSpec(_STORY, delete_story, "DELETE", keys=("name",), errors=(ConflictError,)),
)
