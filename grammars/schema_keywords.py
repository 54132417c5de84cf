"""What of a JSON Schema llguidance does not read: found with its path, refused or left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..common.text import nearest_name, one_of
from .errors import GrammarError

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
"""The types of JSON Schema."""
FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "unknown")
)
"""The formats that llguidance checks; it refuses others."""
LENIENT_HINT = "--schema-lenient leaves it out"

_ONE_SCHEMA = ("items", "additionalItems", "additionalProperties")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_TABLES_OF_SCHEMAS = ("properties", "patternProperties")
_WITHOUT_EFFECT = ("$dynamicAnchor", "$recursiveAnchor")
"""They only name a place, and llguidance refuses them."""
_UNSUPPORTED = (
    "not",
    "if",
    "contains",
    "uniqueItems",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
)
_BELONGS_TO = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
"""Keywords that mean nothing without another one."""


class SchemaPart(NamedTuple):
    """A schema inside of another. ``pointer``: its JSON pointer; empty for the whole schema."""

    pointer: str
    schema: dict[str, Any]


def remove_unsupported(schema: dict[str, Any], *, is_lenient: bool) -> list[str]:
    """Remove from a schema what llguidance does not read, and return the JSON pointers of what constrains JSON.

    Only what the schema uses is looked at: a definition that nothing refers to may hold anything. What is removed
    makes the schema allow more, never less. Unless ``is_lenient``, raises ``GrammarError`` for the first such
    keyword. Raises it always for a type that is none, and for a reference to nothing.
    """
    removed: list[str] = []
    for pointer, part in walk_schema(schema):
        _check_type(pointer, part)
        for keyword in _unsupported_keywords(part):
            if not is_lenient:
                raise _unsupported(pointer, part, keyword)
            removed.append(f"{pointer}/{keyword}")
            del part[keyword]
        for keyword in (*_WITHOUT_EFFECT, *_UNSUPPORTED, *_BELONGS_TO):
            part.pop(keyword, None)
    return removed


def walk_schema(schema: dict[str, Any]) -> Iterator[SchemaPart]:
    """Yield the schema and each one that it uses, once, in the order of the text; references are followed.

    Raises ``GrammarError`` for a reference to nothing.
    """
    remaining = [SchemaPart("", schema)]
    visited: set[int] = set()
    while remaining:
        part = remaining.pop()
        if id(part.schema) in visited:
            continue
        visited.add(id(part.schema))
        yield part
        remaining += reversed(list(children(schema, part)))


def children(root: dict[str, Any], part: SchemaPart) -> Iterator[SchemaPart]:
    """Yield the schemas that a part of the schema ``root`` uses. Raises ``GrammarError`` as `walk_schema`."""
    pointer, schema = part
    for path, below in _schemas_below(schema):
        if isinstance(below, dict):
            yield SchemaPart(f"{pointer}/{path}", below)
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        target = _resolve(root, reference, pointer)
        if target is not None:
            yield target


def _schemas_below(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what stands where a schema belongs, with its path."""
    for keyword in _ONE_SCHEMA:
        yield keyword, schema.get(keyword)
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


def _check_type(pointer: str, schema: Mapping[str, Any]) -> None:
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types if isinstance(types, list) else []:
        if isinstance(name, str) and name not in TYPES:
            near = nearest_name(name.lower(), TYPES)
            hint = f"did you mean {near!r}?" if near else f"there are {one_of(TYPES)}"
            raise GrammarError(f"{pointer}/type: {name!r} is not a type; {hint}")


def _unsupported_keywords(schema: Mapping[str, Any]) -> list[str]:
    """The keywords of one schema that constrain JSON in a way that llguidance does not know."""
    keywords = [keyword for keyword in _UNSUPPORTED if keyword in schema and _constrains(keyword, schema)]
    keywords += [keyword for keyword, owner in _BELONGS_TO.items() if keyword in schema and owner in keywords]
    if _has_unknown_format(schema):
        keywords.append("format")
    return keywords


def _constrains(keyword: str, schema: Mapping[str, Any]) -> bool:
    value = schema[keyword]
    if keyword == "uniqueItems":
        return value is True
    if keyword == "if":
        return "then" in schema or "else" in schema
    if keyword in ("not", "contains", "$dynamicRef", "$recursiveRef"):
        return True
    return value is not True and value != {}


def _has_unknown_format(schema: Mapping[str, Any]) -> bool:
    types = schema.get("type", "string")
    is_text = "string" in (types if isinstance(types, list) else [types])
    name = schema.get("format")
    return is_text and isinstance(name, str) and name not in FORMATS


def _unsupported(pointer: str, schema: Mapping[str, Any], keyword: str) -> GrammarError:
    if keyword == "format":
        formats = ", ".join(sorted(FORMATS - {"unknown"}))
        message = f"the format {schema[keyword]!r} is not supported, but {formats} are"
    else:
        message = f"{keyword!r} is not supported"
    return GrammarError(f"{pointer}/{keyword}: {message}; {LENIENT_HINT}")


def _escape(token: str) -> str:
    """A key as a JSON pointer writes it."""
    return token.replace("~", "~0").replace("/", "~1")


def _unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
