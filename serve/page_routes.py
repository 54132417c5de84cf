"""The page of the server: its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ..logprobs.web import SHARED_FOLDER, read_shared, shared_names
from .errors import NotFoundError
from .state import HTML, RouteSpec, ServerState

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class PageFile(NamedTuple):
    """A file of the page. ``tag`` changes with the content, so that a browser loads a changed file again."""

    content: bytes
    media_type: str
    tag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files of the page by name. The table is made once: a request can never name another file."""
    folder = files(__package__) / "page"
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    texts |= {SHARED_FOLDER + name: read_shared(name) for name in shared_names()}
    return {name: _page_file(name, text) for name, text in texts.items()}


# The indentation of a line, and a comment on lines of its own. A browser need not load them.
_UNREAD = re.compile(r"^ *(?:(?://[^\n]*|/\*.*?\*/)\n)?", re.MULTILINE | re.DOTALL)


def _page_file(name: str, text: str) -> PageFile:
    content = _UNREAD.sub("", text).encode()
    return PageFile(content, _MEDIA_TYPES[name.rpartition(".")[2]], f'"{sha256(content).hexdigest()[:32]}"')


async def home(request: Request, _: ServerState) -> Response:
    """Return the page."""
    return _file_response(request, page_files()["index.html"])


async def page_file(request: Request, _: ServerState) -> Response:
    """Return a file of the page."""
    return _named_file(request, request.path_params["name"])


async def shared_file(request: Request, _: ServerState) -> Response:
    """Return a file that the page shares with reports."""
    return _named_file(request, SHARED_FOLDER + request.path_params["name"])


def _named_file(request: Request, name: str) -> Response:
    file = page_files().get(name)
    if file is None:
        raise NotFoundError("the page has no file of this name", "name")
    return _file_response(request, file)


def _file_response(request: Request, file: PageFile) -> Response:
    headers = {
        "content-security-policy": _POLICY,
        "cache-control": "no-cache",
        "etag": file.tag,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


ROUTES = (
    RouteSpec("/", home, "GET", media_types=(HTML,)),
    RouteSpec("/page/{name}", page_file, "GET", media_types=tuple(_MEDIA_TYPES.values())),
    RouteSpec("/page/web/{name}", shared_file, "GET", media_types=tuple(_MEDIA_TYPES.values())),
)
