"""What of a JSON Schema llguidance does not read: found with its path, refused or left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..common.text import nearest_name, one_of
from .errors import GrammarError
from .schema_multiples import can_follow, check_common_multiples, multiple_of
from .schema_walk import schemas_below, walk_schema

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
"""The types of JSON Schema."""
FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "unknown")
)
"""The formats that llguidance checks; it refuses others."""
LENIENT_HINT = "schema_lenient=True leaves it out"

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


def remove_unsupported(schema: dict[str, Any], *, is_lenient: bool) -> list[str]:
    """Remove from a schema what llguidance does not read, and return the JSON pointers of what constrains JSON.

    Only what the schema uses is looked at: a definition that nothing refers to may hold anything. What is removed
    makes the schema allow more, never less. Unless ``is_lenient``, raises ``GrammarError`` for the first such
    keyword. Raises it always for a type or a schema that is none, and for a reference to nothing.
    """
    removed: list[str] = []
    for pointer, part in walk_schema(schema):
        _check_type(pointer, part)
        _check_parts(pointer, part)
        for keyword in _unsupported_keywords(part):
            if not is_lenient:
                raise _unsupported(pointer, part, keyword)
            removed.append(f"{pointer}/{keyword}")
            del part[keyword]
        for keyword in (*_WITHOUT_EFFECT, *_UNSUPPORTED, *_BELONGS_TO):
            part.pop(keyword, None)
    check_common_multiples(schema)
    return removed


def _check_type(pointer: str, schema: Mapping[str, Any]) -> None:
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types if isinstance(types, list) else []:
        if isinstance(name, str) and name not in TYPES:
            near = nearest_name(name.lower(), TYPES)
            hint = f"did you mean {near!r}?" if near else f"there are {one_of(TYPES)}"
            raise GrammarError(f"{pointer}/type: {name!r} is not a type; {hint}")


def _check_parts(pointer: str, schema: Mapping[str, Any]) -> None:
    for path, below in schemas_below(schema):
        if not isinstance(below, dict | bool):
            raise GrammarError(f"{pointer}/{path}: {json.dumps(below)} is not a schema: an object, true or false")


def _unsupported_keywords(schema: Mapping[str, Any]) -> list[str]:
    """The keywords of one schema that constrain JSON in a way that llguidance does not know."""
    keywords = [keyword for keyword in _UNSUPPORTED if keyword in schema and _constrains(keyword, schema)]
    keywords += [keyword for keyword, owner in _BELONGS_TO.items() if keyword in schema and owner in keywords]
    if _has_unknown_format(schema):
        keywords.append("format")
    multiple = multiple_of(schema)
    if multiple is not None and not can_follow([multiple]):
        keywords.append("multipleOf")
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
    elif keyword == "multipleOf":
        message = f"multiples of {schema[keyword]} cannot be followed; those of numbers up to 50,000 can"
    else:
        message = f"{keyword!r} is not supported"
    return GrammarError(f"{pointer}/{keyword}: {message}", advice=LENIENT_HINT)
