"""The schemas that a JSON Schema contains or refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from .errors import GrammarError
from .schema_references import SchemaPart, escape_pointer_token, find_target


def walk_schema(schema: dict[str, Any]) -> Iterator[SchemaPart]:
    """Yield the schema and all schemas that it contains or refers to, each once, in the order of the source."""
    # Raises ``GrammarError`` for a reference without a target.
    yield from walk_from(schema, SchemaPart("", schema))


def all_parts(start_part: SchemaPart) -> Iterator[SchemaPart]:
    """Yield a complete schema and all schemas in it, each once, with definitions that nothing refers to."""

    def parts_below(part: SchemaPart) -> Iterator[SchemaPart]:
        with suppress(GrammarError):  # a reference without a target
            yield from list(children(start_part.schema, part))
        yield from reversed(list(_definitions(part)))

    return _each_once(start_part, parts_below)


def walk_from(root: dict[str, Any], start_part: SchemaPart) -> Iterator[SchemaPart]:
    """Yield a part of the schema ``root`` and all schemas that the part contains or refers to, each once."""
    return _each_once(start_part, lambda part: children(root, part))


def _each_once(
    start_part: SchemaPart, parts_below: Callable[[SchemaPart], Iterator[SchemaPart]]
) -> Iterator[SchemaPart]:
    """Yield a part and all parts below it, depth first."""
    remaining_parts = [start_part]
    visited_ids: set[int] = set()
    while remaining_parts:
        part = remaining_parts.pop()
        if id(part.schema) in visited_ids:
            continue
        visited_ids.add(id(part.schema))
        yield part
        remaining_parts += reversed(list(parts_below(part)))


def _definitions(part: SchemaPart) -> Iterator[SchemaPart]:
    for keyword in ("$defs", "definitions"):
        table = part.schema.get(keyword)
        if not isinstance(table, dict):
            continue
        for name, subschema in table.items():
            if isinstance(subschema, dict):
                yield SchemaPart(f"{part.pointer}/{keyword}/{escape_pointer_token(name)}", subschema)


def children(root: dict[str, Any], part: SchemaPart) -> Iterator[SchemaPart]:
    """Yield the schemas directly below a part of the schema ``root``, and the target of the part's ``$ref``."""
    # Raises ``GrammarError`` for a reference without a target.
    pointer, schema = part
    for path, subschema in iterate_subschemas(schema):
        if isinstance(subschema, dict):
            yield SchemaPart(f"{pointer}/{path}", subschema)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = find_target(root, reference)
        if target is not None:
            yield target


_KEYWORDS_OF_A_SCHEMA = (
    *("items", "additionalItems", "unevaluatedItems", "contains"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("not", "if", "then", "else"),
)
_KEYWORDS_OF_A_LIST = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_KEYWORDS_OF_A_TABLE = ("properties", "patternProperties", "dependentSchemas", "dependencies")


def iterate_subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values where schemas are expected, each with its path. They may not be valid schemas."""
    for keyword in _KEYWORDS_OF_A_SCHEMA:
        if keyword in schema and not isinstance(schema[keyword], list):  # the next loop handles lists
            yield keyword, schema[keyword]
    for keyword in _KEYWORDS_OF_A_LIST:
        items = schema.get(keyword)
        if isinstance(items, list):
            for index, subschema in enumerate(items):
                yield f"{keyword}/{index}", subschema
    for keyword in _KEYWORDS_OF_A_TABLE:
        table = schema.get(keyword)
        if isinstance(table, dict):
            for name, subschema in table.items():
                is_key_list = keyword == "dependencies" and isinstance(subschema, list)
                if not is_key_list:
                    yield f"{keyword}/{escape_pointer_token(name)}", subschema


def with_subschemas(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a checked schema with each subschema changed."""
    changed = dict(schema)
    for keyword, value in schema.items():
        if keyword in _KEYWORDS_OF_A_LIST and isinstance(value, list):
            changed[keyword] = [change(item) for item in value]
        elif keyword in _KEYWORDS_OF_A_SCHEMA:
            changed[keyword] = change(value)
        elif keyword in _KEYWORDS_OF_A_TABLE:
            changed[keyword] = {
                name: item if isinstance(item, list) else change(item) for name, item in value.items()
            }
    return changed
