"""The description of all routes, as OpenAPI and as a page that loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from inspect import getdoc
from typing import Any, cast

from pydantic import BaseModel

from .. import __version__
from .errors import (
    EngineError,
    ForbiddenError,
    HeadersTooLargeError,
    InvalidRequestError,
    NotFoundError,
    RequestError,
    RequestTimeoutError,
    TimedOutError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
)
from .security import needs_no_key
from .state import FILE, JSON, LINES, OWN_PATHS, RouteSpec

Json = dict[str, Any]

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


# The errors of every route.
_ERRORS: tuple[type[RequestError], ...] = (
    *(InvalidRequestError, UnauthorizedError, ForbiddenError, RequestTimeoutError, HeadersTooLargeError),
    *(EngineError, UnavailableError, TimedOutError),
)
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")


def openapi(
    routes: Sequence[RouteSpec], ignored_fields: Iterable[str], *, needs_key: bool = False, prefix: str = ""
) -> Json:
    """Return the OpenAPI description of the routes. ``ignored_fields`` are accepted without an effect."""
    schemas: Json = {"Error": _ERROR_SCHEMA}
    paths: dict[str, Json] = {}
    for route in routes:
        operation: Json = {"summary": (getdoc(route.handler) or "").partition("\n")[0]}
        names = _PATH_PARAMETER.findall(route.documented_path)
        if names:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ]
        if route.body is not None:
            schema = _schema(route, ignored_fields, schemas)
            operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
        if route.takes_lines:
            operation["requestBody"] = {"required": True, "content": {LINES: {"schema": {"type": "string"}}}}
        if route.takes_file:
            operation["requestBody"] = {"required": True, "content": {FILE: {"schema": {"type": "string"}}}}
        if needs_key and not needs_no_key(route.path):
            operation["security"] = [{"key": []}]
        operation["responses"] = _responses(route, has_parameters=bool(names))
        paths.setdefault(route.documented_path, {})[route.method.lower()] = operation
    for schema in schemas.values():
        _allow_nulls(schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "gen serve", "version": __version__},
        "servers": [{"url": f"{prefix}/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _responses(route: RouteSpec, *, has_parameters: bool) -> Json:
    """Return the answers of a route by status."""
    content: dict[str, Json] = {media_type: {} for media_type in route.media_types}
    if JSON in content:
        schema = {"type": "object", "required": list(route.keys)} if route.keys else {}
        content[JSON] = {"schema": schema}
    responses: Json = {"200": {"description": "the answer", "content": content}}
    errors = [*_ERRORS, *route.errors]
    if route.method != "GET":
        errors.append(TooLargeError)
    if has_parameters:
        errors.append(NotFoundError)
    for error in sorted(errors, key=lambda error: error.status):
        error_content = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
        response = responses.setdefault(str(error.status), {"content": error_content})
        summary = (getdoc(error) or "").partition("\n\n")[0]
        # Several errors may have the same status.
        response["description"] = f"{response['description']} {summary}" if "description" in response else summary
        if error.retry_after is not None:
            description = "seconds after which the request may be sent again; absent if it would fail again"
            response["headers"] = {"retry-after": {"schema": {"type": "integer"}, "description": description}}
    return responses


def _schema(route: RouteSpec, ignored_fields: Iterable[str], schemas: Json) -> Json:
    """Return a reference to the schema of a route's body, which is added to ``schemas``."""
    # Unknown fields are accepted, and named in the answer, except on our own routes.
    body = cast("type[BaseModel]", route.body)
    if body.__name__ not in schemas:
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        for name in ignored_fields:
            schema["properties"].setdefault(name, {"description": "accepted; named in x_gen.ignored"})
        schema["additionalProperties"] = not route.path.startswith(OWN_PATHS)
        schemas[body.__name__] = schema
    return {"$ref": f"#/components/schemas/{body.__name__}"}


def _allow_nulls(schema: Json) -> None:
    """Allow null as the value of every field that may be absent, because the two mean the same."""
    null = {"type": "null"}
    if schema.get("additionalProperties") is False:
        schema["additionalProperties"] = null
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        has_type = bool(field.keys() & {"type", "anyOf", "$ref"})
        if name in required or not has_type or null in field.get("anyOf", ()):
            continue
        nullable_field: Json = {"anyOf": [field, null]}
        if "description" in field:
            nullable_field["description"] = field.pop("description")
        schema["properties"][name] = nullable_field


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
summary { cursor: pointer; padding: .25rem 0; }
table { border-collapse: collapse; } td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
.method { display: inline-block; width: 4rem; opacity: .7; }
"""


def page(title: str, body: str) -> str:
    """Return a page. ``body``: its HTML; texts in it must be escaped."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><body>{body}</body></html>'
    )


def docs_page(description: Mapping[str, Any]) -> str:
    link = '<a href="openapi.json">The same as OpenAPI</a>.'
    parts = [f"<h1>gen serve</h1><p>Every route for text takes these fields. {link}</p>"]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            heading = (
                f'<code class="method">{escape(method.upper())}</code><code>{escape(path)}</code> '
                f"{escape(operation['summary'])}"
            )
            fields = _fields_table(operation, description["components"]["schemas"])
            if fields:
                parts.append(f"<details><summary>{heading}</summary>{fields}</details>")
            else:
                parts.append(f"<p>{heading}</p>")
    return page("gen serve: the routes", "".join(parts))


def _fields_table(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the table of the fields of an operation's body; empty without a body."""
    content = operation.get("requestBody", {"content": {}})["content"]
    if JSON not in content:
        return ""
    reference = content[JSON]["schema"]["$ref"]
    schema = schemas[reference.rpartition("/")[2]]
    required = schema.get("required", ())
    table_rows = []
    for name, field in schema["properties"].items():
        mark = " (required)" if name in required else ""
        table_rows.append(
            f"<tr><td><code>{escape(name)}</code>{mark}</td><td>{escape(_type_text(field))}</td></tr>"
        )
    return f"<table>{''.join(table_rows)}</table>"


def _type_text(field: Mapping[str, Any]) -> str:
    """Return the types of a field in words, such as ``integer or string``."""
    if "description" in field and "type" not in field and "anyOf" not in field:
        return str(field["description"])
    names: list[str] = []
    for schema in field.get("anyOf", [field]):
        name = schema.get("type") or str(schema.get("$ref", "any value")).rpartition("/")[2]
        if name != "null" and str(name) not in names:
            names.append(str(name))
    return " or ".join(names)
