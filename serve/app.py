"""The application: the routes of all APIs, and the answers for requests that fail."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..common.errors import InvalidFieldError
from ..common.strict_json import encode_json
from ..requests.unknown_fields import UNREPORTED_VALUES
from . import (
    decisions,
    grammar_routes,
    kobold,
    line_routes,
    llama_server,
    next_token,
    openai,
    page_routes,
    preset_routes,
    responses,
    story_folder_routes,
    story_routes,
    tokenizer_routes,
)
from .answers import ClientLeftError
from .docs import docs_page, openapi as describe
from .errors import FaultError, InvalidRequestError, MethodError, NotFoundError, RequestError
from .request_log import CLIENT_LEFT, record_of, start_record
from .security import Access, check_request
from .state import HTML, JSON, TEXT, RouteSpec, ServerState

# Maximum length of the names in the header of ignored fields. Python's clients reject headers of 8,190 characters.
_MAX_HEADER = 2_000


async def show_docs(_: Request, state: ServerState) -> Response:
    """Show the routes and their fields."""
    return Response(await state.run(partial(_docs_body, state.access)), media_type=HTML)


async def show_openapi(_: Request, state: ServerState) -> Response:
    """Describe the routes as OpenAPI."""
    return Response(await state.run(partial(_openapi_body, state.access)), media_type=JSON)


@cache
def _docs_body(access: Access) -> bytes:
    return docs_page(json.loads(_openapi_body(access))).encode()


@cache
def _openapi_body(access: Access) -> bytes:
    """Return the description of the routes. It is made once, because it takes a tenth of a second."""
    description = describe(ROUTES, UNREPORTED_VALUES, needs_key=bool(access.keys), prefix=access.prefix)
    return encode_json(description).encode()


async def show_metrics(_: Request, state: ServerState) -> Response:
    """Show the numbers of requests and tokens for Prometheus."""
    return Response(state.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


ROUTES: tuple[RouteSpec, ...] = (
    RouteSpec("/docs", show_docs, "GET", media_types=(HTML,)),
    RouteSpec("/openapi.json", show_openapi, "GET", keys=("openapi", "info", "paths", "components")),
    RouteSpec("/metrics", show_metrics, "GET", media_types=(TEXT,)),
    *openai.ROUTES,
    *responses.ROUTES,
    *decisions.ROUTES,
    *llama_server.ROUTES,
    *tokenizer_routes.ROUTES,
    *kobold.ROUTES,
    *next_token.ROUTES,
    *preset_routes.ROUTES,
    *grammar_routes.ROUTES,
    *line_routes.ROUTES,
    *story_folder_routes.ROUTES,
    *story_routes.ROUTES,
    *page_routes.ROUTES,
)


class ServerApp:
    """The application: it records each request, and answers those that may not be sent."""

    # After an unexpected exception, it answers 500 with the id of the record.

    def __init__(self, routes: Starlette, state: ServerState) -> None:
        self._routes = routes
        self._state = state
        # The number of requests whose responses have not ended.
        self.open_count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        record = start_record(scope)
        added_headers = {
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "x-request-id": record.id,
        }
        has_begun = False

        async def recording_send(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                record.status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in added_headers.items():
                    headers.setdefault(name, value)
            await send(message)

        self.open_count += 1
        try:
            try:
                app = self._app_for(scope, added_headers)
            except RequestError as error:
                app = error.response()
            path = self._state.access.own_path(_plain_path(scope["path"])) or ""
            await app({**scope, "path": path}, receive, recording_send)
        except Exception as error:
            record.fault = error
            if not has_begun:
                await FaultError(record.id).response()(scope, receive, recording_send)
        finally:
            self.open_count -= 1
            record.end()
            self._state.log(record)
            self._state.metrics(record)

    def _app_for(self, scope: Scope, added_headers: dict[str, str]) -> Starlette | Response:
        """Return what answers a request: the routes, or a response. Raises ``RequestError``."""
        access, path = self._state.access, scope["path"]
        own_scope = {**scope, "path": access.own_path(path) or path}
        response = check_request(own_scope, access, added_headers)
        if response is not None:
            return response
        if access.prefix and path == access.prefix:
            # The addresses in the page are relative to the slash. So is this one: behind a proxy, this server does
            # not know its whole address.
            return RedirectResponse(f"{access.prefix.rpartition('/')[2]}/")
        if access.own_path(_plain_path(path)) is None:
            raise NotFoundError(f"{path}: no such path; the paths of this server begin with {access.prefix}/")
        return self._routes


def make_app(state: ServerState) -> ServerApp:
    routes = [Route(spec.path, _endpoint(spec, state), methods=[spec.method]) for spec in ROUTES]
    starlette = Starlette(routes=routes, exception_handlers={HTTPException: _http_error_response})
    starlette.router.redirect_slashes = False  # `_plain_path` has removed the slash
    return ServerApp(starlette, state)


def _plain_path(path: str) -> str:
    """Return a path without doubled slashes and without one at its end."""
    # Clients join a base address and a path carelessly. A redirect would fail behind a proxy: this server knows
    # neither the scheme nor the prefix of the address that the client used.
    if not path.startswith("/"):
        return path
    return "/" + "/".join(part for part in path.split("/") if part)


def _endpoint(spec: RouteSpec, state: ServerState) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        record = record_of(request.scope)
        record.route = spec.documented_path
        try:
            response = await spec.handler(request, state)
        except (ClientLeftError, ClientDisconnect):
            return Response(status_code=CLIENT_LEFT)
        except RequestError as error:
            return error.response(has_detail=spec.path.startswith("/api/"))
        except InvalidFieldError as error:
            request_error = InvalidRequestError(str(error), error.field)
            return request_error.response(has_detail=spec.path.startswith("/api/"))
        except Exception as error:
            record.fault = error
            return FaultError(record.id).response()
        if record.ignored:
            response.headers["x-gen-ignored"] = _ignored_header(record.ignored)
        return response

    return endpoint


def _ignored_header(names: Sequence[str]) -> str:
    """Return the names of fields as a header. If it would become too long, the last names are left out."""
    shown_names: list[str] = []
    length = 0
    for name in names:
        shown_name = _header_name(name)
        length += len(shown_name)
        if length > _MAX_HEADER:
            shown_names.append("...")
            break
        shown_names.append(shown_name)
    return ", ".join(shown_names)


def _header_name(name: str) -> str:
    """Return the name of a field in ASCII. It is quoted if a header could not begin or end with it."""
    quoted_name = ascii(name)
    is_stripped = name != "" and name == name.strip(" ")
    return quoted_name[1:-1] if is_stripped else quoted_name


async def _http_error_response(request: Request, error: Exception) -> Response:
    """Return the answer for an error of Starlette, such as an unknown path, in the format of all errors."""
    assert isinstance(error, HTTPException)  # noqa: S101 - the handlers above pass nothing else
    path = request.scope["path"]
    if error.status_code == NotFoundError.status:
        return NotFoundError(f"{path}: no such path").response()
    if error.status_code == MethodError.status:
        response = MethodError(f"{path}: the method {request.method} is not supported").response()
        response.headers.update(error.headers or {})
        return response
    return InvalidRequestError(error.detail).response()
