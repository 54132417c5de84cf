"""The schemas inside of a JSON Schema that it uses, with their paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..common.text import nearest_name
from .errors import GrammarError

_ONE_SCHEMA = ("items", "additionalItems", "additionalProperties")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_TABLES_OF_SCHEMAS = ("properties", "patternProperties")


class SchemaPart(NamedTuple):
    """A schema inside of another. ``pointer``: its JSON pointer; empty for the whole schema."""

    pointer: str
    schema: dict[str, Any]


def walk_schema(schema: dict[str, Any]) -> Iterator[SchemaPart]:
    """Yield the schema and each one that it uses, once, in the order of the text; references are followed.

    Raises ``GrammarError`` for a reference to nothing.
    """
    yield from walk_from(schema, SchemaPart("", schema))


def walk_from(root: dict[str, Any], start: SchemaPart) -> Iterator[SchemaPart]:
    """Yield a part of the schema ``root`` and each one that it uses, as `walk_schema`."""
    remaining = [start]
    visited: set[int] = set()
    while remaining:
        part = remaining.pop()
        if id(part.schema) in visited:
            continue
        visited.add(id(part.schema))
        yield part
        remaining += reversed(list(children(root, part)))


def children(root: dict[str, Any], part: SchemaPart) -> Iterator[SchemaPart]:
    """Yield the schemas that a part of the schema ``root`` uses. Raises ``GrammarError`` as `walk_schema`."""
    pointer, schema = part
    for path, below in schemas_below(schema):
        if isinstance(below, dict):
            yield SchemaPart(f"{pointer}/{path}", below)
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        target = _resolve(root, reference, pointer)
        if target is not None:
            yield target


def schemas_below(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what stands where a schema belongs, with its path."""
    for keyword in _ONE_SCHEMA:
        if keyword in schema and not isinstance(schema[keyword], list):  # a list is one of several schemas
            yield keyword, schema[keyword]
    for keyword in _LISTS_OF_SCHEMAS:
        listed = schema.get(keyword)
        if isinstance(listed, list):
            yield from ((f"{keyword}/{number}", item) for number, item in enumerate(listed))
    for keyword in _TABLES_OF_SCHEMAS:
        table = schema.get(keyword)
        if isinstance(table, dict):
            yield from ((f"{keyword}/{_escape(name)}", item) for name, item in table.items())


def _resolve(root: dict[str, Any], reference: str, pointer: str) -> SchemaPart | None:
    """The schema that a local reference names; None where that cannot be told without llguidance.

    Args:
        root: the whole schema.
        reference: ``#`` or ``#/…``.
        pointer: where the reference stands, for a message.
    """
    node: Any = root
    parents = ""
    for token in map(_unescape, unquote(reference).split("/")[1:]):
        is_key = isinstance(node, dict) and token in node
        is_index = isinstance(node, list) and token.isdecimal() and int(token) < len(node)
        if not (is_key or is_index):
            if _has_inner_id(root):
                return None  # the reference may begin at that schema
            near = nearest_name(token, node) if isinstance(node, dict) and parents else None
            hint = f"; did you mean '#{parents}/{_escape(near)}'?" if near else ""
            raise GrammarError(f"{pointer}/$ref: the schema has no {reference!r}{hint}")
        node = node[token] if is_key else node[int(token)]
        parents += f"/{_escape(token)}"
    return SchemaPart(parents, node) if isinstance(node, dict) else None


def _has_inner_id(root: dict[str, Any]) -> bool:
    """True if a schema below the root has an ``$id``, from which references may count."""
    remaining: list[Any] = list(root.values())
    while remaining:
        node = remaining.pop()
        if isinstance(node, dict):
            if "$id" in node or "id" in node:
                return True
            remaining += node.values()
        elif isinstance(node, list):
            remaining += node
    return False


def _escape(token: str) -> str:
    """A key as a JSON pointer writes it."""
    return token.replace("~", "~0").replace("/", "~1")


def _unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
