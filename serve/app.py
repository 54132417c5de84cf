"""The application: the routes of all APIs, and the answers for requests that fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from . import kobold, llama_server, openai, own, tokenizer_routes
from .answers import ClientLeftError
from .bodies import IGNORED_FIELDS
from .docs import docs_page, page
from .docs import openapi as describe
from .errors import FaultError, InvalidRequestError, MethodError, NotFoundError, RequestError
from .request_log import CLIENT_LEFT, RecordMiddleware, record_of
from .security import SecurityMiddleware
from .state import HTML, TEXT, RouteSpec, ServerState

_LINKS = (
    ("docs", "The routes and their fields"),
    ("v1/models", "The model"),
    ("metrics", "Numbers for Prometheus"),
)


async def home(_: Request, state: ServerState) -> Response:
    """Return the first page: the name of the model, and links to the other pages."""
    name = "loading the model" if state.model is None else escape(state.model.name)
    links = " · ".join(f'<a href="{path}">{text}</a>' for path, text in _LINKS)
    return HTMLResponse(page("gen serve", f"<h1>gen serve</h1><p>{name}</p><p>{links}</p>"))


async def show_docs(_: Request, state: ServerState) -> Response:
    """Show the routes and their fields."""
    return HTMLResponse(docs_page(_description(state)))


async def show_openapi(_: Request, state: ServerState) -> Response:
    """Describe the routes as OpenAPI."""
    return JSONResponse(_description(state))


def _description(state: ServerState) -> dict[str, Any]:
    return describe(ROUTES, IGNORED_FIELDS, needs_key=bool(state.access.keys))


async def show_metrics(_: Request, state: ServerState) -> Response:
    """Show the numbers of requests and tokens for Prometheus."""
    return Response(state.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


ROUTES: tuple[RouteSpec, ...] = (
    RouteSpec("/", home, "GET", media_types=(HTML,)),
    RouteSpec("/docs", show_docs, "GET", media_types=(HTML,)),
    RouteSpec("/openapi.json", show_openapi, "GET", keys=("openapi", "info", "paths", "components")),
    RouteSpec("/metrics", show_metrics, "GET", media_types=(TEXT,)),
    *openai.ROUTES,
    *llama_server.ROUTES,
    *tokenizer_routes.ROUTES,
    *kobold.ROUTES,
    *own.ROUTES,
)


def make_app(state: ServerState) -> RecordMiddleware:
    """Return the application."""
    routes = Starlette(
        routes=[Route(spec.path, _endpoint(spec, state), methods=[spec.method]) for spec in ROUTES],
        exception_handlers={
            RequestError: _error_response,
            HTTPException: _http_error_response,
            Exception: _fault_response,
        },
    )
    return RecordMiddleware(SecurityMiddleware(routes, state.access), (state.log, state.metrics))


def _endpoint(spec: RouteSpec, state: ServerState) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        record_of(request.scope).route = spec.path
        try:
            return await spec.handler(request, state)
        except (ClientLeftError, ClientDisconnect):
            return Response(status_code=CLIENT_LEFT)

    return endpoint


async def _error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)  # noqa: S101 - the handlers above pass nothing else
    return error.response(has_detail=request.scope["path"].startswith("/api/"))


async def _fault_response(request: Request, _: Exception) -> Response:
    return FaultError(record_of(request.scope).id).response()


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
