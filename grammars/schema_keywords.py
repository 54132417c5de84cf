"""The keywords of JSON Schema. Their values are checked, and keywords that restrict nothing are removed.

Keywords of all drafts are read, whichever draft ``$schema`` names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..common.text import unknown_name
from .errors import GrammarError
from .schema_formats import FORMAT_PATTERNS, NUMBER_FORMATS
from .schema_references import SchemaPart

TYPE_NAMES = ("object", "array", "string", "number", "integer", "boolean", "null")  # the types of JSON Schema
JSON_TYPES = tuple(name for name in TYPE_NAMES if name != "integer")  # the types of JSON

# The formats that are left to llguidance. It rejects those that it does not support.
_FORMATS_OF_LLGUIDANCE = ("duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
FORMATS = (*_FORMATS_OF_LLGUIDANCE, *FORMAT_PATTERNS)  # All formats of JSON Schema

DEPENDENCIES = ("dependencies", "dependentRequired", "dependentSchemas")
# the keywords that may restrict JSON, by the type of the JSON that they restrict
RESTRICTING = {
    "any": (
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        *("$ref", "$dynamicRef", "$recursiveRef"),
    ),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": (
        *("items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains"),
        *("minItems", "maxItems", "uniqueItems", "unevaluatedItems"),
    ),
    "object": (
        *("properties", "patternProperties", "additionalProperties", "propertyNames", "required"),
        *("minProperties", "maxProperties", *DEPENDENCIES, "unevaluatedProperties"),
    ),
}
ALL_RESTRICTING = tuple(keyword for keywords in RESTRICTING.values() for keyword in keywords)

# Keywords that name a schema or its draft. References are resolved before llguidance reads the schema.
IDENTIFIERS = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")
# Keywords that restrict nothing, as their definitions say
_ANNOTATIONS = frozenset(
    (
        *("$defs", "definitions", "$comment", "title", "description", "default", "examples", "deprecated"),
        *("readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema"),
        *("example", "discriminator", "xml", "externalDocs"),  # OpenAPI's
    )
)

# Keywords that restrict JSON in draft 3 only, and the keywords that replaced them
_DRAFT_3 = {
    "extends": "write allOf",
    "disallow": "write not",
    "divisibleBy": "write multipleOf",
}

MAX_COUNT = 2**31 - 1  # Maximum length and number. No text is as long as this.

_SHOWN_CHARACTERS = 60


def shown(value: Any) -> str:
    """Return a value of a schema as JSON for an error message; a long one is shortened."""
    # An ASCII escape replaces half of a surrogate pair, which cannot be printed.
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf and value == int(value)


class _AllowedValue(NamedTuple):
    """The values that a keyword may have."""

    description: str  # for messages
    is_allowed: Callable[[Any], bool]


_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_CONTAINS_COUNTS = ("minContains", "maxContains")

_COUNT = _AllowedValue("an integer ≥ 0", _is_count)
_NUMBER = _AllowedValue("a number", _is_number)
_NUMBER_OR_BOOLEAN = _AllowedValue(
    "a number", lambda value: isinstance(value, int | float)
)  # a boolean in draft 4
_POSITIVE_NUMBER = _AllowedValue("a number above 0", lambda value: _is_number(value) and 0 < value < math.inf)
_STRING = _AllowedValue("a string", lambda value: isinstance(value, str))
_LIST = _AllowedValue("a list", lambda value: isinstance(value, list))
_OBJECT = _AllowedValue("an object", lambda value: isinstance(value, dict))
_TYPES = _AllowedValue("a string or a list of strings", lambda value: isinstance(value, str | list))
_BOOLEAN = _AllowedValue("true or false", lambda value: isinstance(value, bool))
_SCHEMA = _AllowedValue("a schema; must be an object, true or false", lambda value: isinstance(value, dict | bool))

_ALLOWED_VALUES: dict[str, _AllowedValue] = {
    **dict.fromkeys((*_COUNTS, *_CONTAINS_COUNTS), _COUNT),
    **dict.fromkeys(("minimum", "maximum"), _NUMBER),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _NUMBER_OR_BOOLEAN),
    "multipleOf": _POSITIVE_NUMBER,
    **dict.fromkeys(("pattern", "format", "$ref", "$dynamicRef", "$recursiveRef"), _STRING),
    **dict.fromkeys(("enum", "allOf", "anyOf", "oneOf", "prefixItems", "required"), _LIST),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), _OBJECT),
    **dict.fromkeys(DEPENDENCIES, _OBJECT),
    "type": _TYPES,
    "uniqueItems": _BOOLEAN,
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames"), _SCHEMA),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), _SCHEMA),
}


def check_values(part: SchemaPart) -> None:
    """Raise ``GrammarError`` for a keyword whose value no draft of JSON Schema allows."""
    for keyword, value in part.schema.items():
        problem = _value_problem(keyword, value)
        if problem is not None:
            raise GrammarError(f"{part.pointer}/{keyword}: {problem}")
    _check_type_names(part)
    for index, name in enumerate(part.schema.get("required", ())):
        if not isinstance(name, str):
            raise GrammarError(f"{part.pointer}/required/{index}: {shown(name)} is not a string")


def _value_problem(keyword: str, value: Any) -> str | None:
    """Return why a keyword cannot have a value; None if it can."""
    if keyword in _DRAFT_3:
        return f"{keyword!r} is a keyword of draft 3 (here {shown(value)}); {_DRAFT_3[keyword]}"
    allowed = _ALLOWED_VALUES.get(keyword)
    if allowed is not None and not allowed.is_allowed(value):
        is_of_draft_3 = keyword == "required" and isinstance(value, bool)
        hint = "; name the key in the list 'required' of the object that has it" if is_of_draft_3 else ""
        return f"{shown(value)} is not {allowed.description}{hint}"
    if keyword in ("minLength", "minItems", "minProperties") and value > MAX_COUNT:
        return f"{shown(value)} is too much; the limit is {MAX_COUNT:,}"
    return None


def _check_type_names(part: SchemaPart) -> None:
    types = part.schema.get("type", [])
    for type_name in [types] if isinstance(types, str) else types:
        if not isinstance(type_name, str):
            raise GrammarError(f"{part.pointer}/type: {shown(type_name)} is not the name of a type")
        if type_name not in TYPE_NAMES:
            raise GrammarError(f"{part.pointer}/type: {unknown_name('type', type_name, TYPE_NAMES)}")


_REGEX_PART = re.compile(
    r"""
    \\.  # an escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]  # a class, in which the signs of the next lines have no meaning
    | \(\?<?[=!]  # look-around
    | \(\?>  # an atomic group
    """,
    re.VERBOSE | re.DOTALL,
)
_IRREGULAR_PART = re.compile(r"\\[bB]|\\[1-9k]|\(\?")


def irregular_part(pattern: str) -> str | None:
    r"""Return the first part of a regular expression that no mask can follow, such as ``(?=`` or ``\b``."""
    # Returns None if there is none.
    parts = (match[0] for match in _REGEX_PART.finditer(pattern))
    return next((part for part in parts if _IRREGULAR_PART.match(part)), None)


def unknown_keywords(schema: Mapping[str, Any]) -> list[str]:
    """Return the keywords of one schema that JSON Schema does not define, without extensions (``x-…``)."""
    return [
        keyword
        for keyword in schema
        if not keyword.startswith("x-")
        and keyword not in _ALLOWED_VALUES
        and keyword not in ALL_RESTRICTING
        and keyword not in IDENTIFIERS
        and keyword not in _ANNOTATIONS
    ]


def similar_keyword(name: str) -> str | None:
    """Return the keyword from which an unknown one differs in capitals, dashes or underscores only."""
    # Returns None if there is none, and for a name that begins with a dash or an underscore. People write an
    # underscore before a keyword to turn it off.
    first_character = name[:1]
    squeezed_name = first_character + name[1:].replace("_", "").replace("-", "")
    folded_name = squeezed_name.casefold()
    return next((keyword for keyword in ALL_RESTRICTING if keyword.casefold() == folded_name), None)


Resolve = Callable[[dict[str, Any]], Any]  # a function that returns the target of a schema's ``$ref``

# maximum length of a chain of references that is followed to see that a schema restricts nothing
_MAX_REFERENCES = 20


def allows_all(schema: Any, type_name: str, resolve: Resolve, depth: int = 0) -> bool:
    """Return True if a schema surely allows all JSON of a type other than ``integer``."""
    if not isinstance(schema, dict) or depth > _MAX_REFERENCES:
        return schema is True
    restricting_keywords = (*RESTRICTING["any"], *RESTRICTING.get(type_name, ()))
    return all(
        _keyword_allows_all(schema, keyword, type_name, resolve, depth)
        for keyword in restricting_keywords
        if keyword in schema
    )


def _keyword_allows_all(
    schema: dict[str, Any], keyword: str, type_name: str, resolve: Resolve, depth: int
) -> bool:
    """Return True if one keyword of a schema allows all JSON of a type."""
    value = schema[keyword]
    match keyword:
        case "type":
            return type_name == value or (isinstance(value, list) and type_name in value)
        case "$ref":
            return isinstance(value, str) and allows_all(resolve(schema), type_name, resolve, depth + 1)
        case "allOf" | "anyOf":
            allowed = [allows_all(option, type_name, resolve, depth + 1) for option in value]
            return all(allowed) if keyword == "allOf" else any(allowed)
        case "format":
            return value not in FORMATS
        case "items" | "additionalProperties" | "additionalItems" | "unevaluatedItems" | "unevaluatedProperties":
            return value is True or value == {}
        case _:
            return value in _VALUES_WITHOUT_EFFECT.get(keyword, ()) and not isinstance(value, float)


_VALUES_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "minLength": (0,),
    "minItems": (0,),
    "minProperties": (0,),
    "uniqueItems": (False,),
    "required": ([],),
    "properties": ({},),
    "patternProperties": ({},),
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "prefixItems": ([],),
}


def allows_everything(schema: Any, resolve: Resolve) -> bool:
    """Return True if a schema surely allows all JSON."""
    return all(allows_all(schema, name, resolve) for name in JSON_TYPES)


def simplify(schema: dict[str, Any], resolve: Resolve) -> None:
    """Remove keywords of one schema that restrict nothing, and write others as llguidance knows them."""
    # The values must have been checked. The schema describes the same JSON afterward.
    for keyword in (*_COUNTS, *_CONTAINS_COUNTS):
        if keyword in schema:
            schema[keyword] = int(schema[keyword])
            if keyword.startswith("max") and schema[keyword] > MAX_COUNT:
                del schema[keyword]
    types = schema.get("type", ())
    is_integer = "integer" in types and "string" not in types  # a type, or a list of types
    if schema.get("format") in NUMBER_FORMATS and is_integer:
        schema["allOf"] = [*schema.get("allOf", []), dict(NUMBER_FORMATS[schema.pop("format")])]
    if schema.get("format") in FORMAT_PATTERNS:
        format_name = schema.pop("format")
        schema["allOf"] = [*schema.get("allOf", []), {"pattern": FORMAT_PATTERNS[format_name]}]
    # The unevaluated parts are first, because keywords that restrict nothing, such as an ``if`` alone, evaluate
    # parts of the JSON. The next steps remove such keywords.
    _move_unevaluated(schema, "unevaluatedProperties", "additionalProperties", resolve)
    rest_keyword = "additionalItems" if isinstance(schema.get("items"), list) else "items"
    _move_unevaluated(schema, "unevaluatedItems", rest_keyword, resolve)
    _simplify_reference(schema, resolve)
    _simplify_conditions(schema, resolve)
    _simplify_arrays(schema, resolve)
    _simplify_objects(schema, resolve)


def _simplify_reference(schema: dict[str, Any], resolve: Resolve) -> None:
    """Remove keywords that llguidance rejects beside a recursive reference."""
    if "$ref" not in schema:
        return
    target = resolve(schema)
    if isinstance(target, dict) and "type" in schema and schema["type"] == target.get("type"):
        del schema["type"]
    for keyword, value in list(schema.items()):
        if keyword.startswith("x-") and not isinstance(value, dict):
            del schema[keyword]


def _simplify_conditions(schema: dict[str, Any], resolve: Resolve) -> None:
    negated = schema.get("not")
    if negated is False:
        del schema["not"]
    elif "not" in schema and allows_everything(negated, resolve):
        schema["not"] = True
    branches = {keyword: schema[keyword] for keyword in ("then", "else") if keyword in schema}
    is_never = schema.get("if") is False
    is_always = "if" in schema and allows_everything(schema["if"], resolve)
    if is_never or is_always:
        applying_branch = branches.get("else" if is_never else "then", True)
        schema["allOf"] = [*schema.get("allOf", []), applying_branch]
    has_no_effect = all(allows_everything(branch, resolve) for branch in branches.values())
    if is_never or is_always or has_no_effect:
        schema.pop("if", None)
    if "if" not in schema:
        for keyword in branches:
            del schema[keyword]


def _simplify_arrays(schema: dict[str, Any], resolve: Resolve) -> None:
    if not isinstance(schema.get("items"), list):
        schema.pop("additionalItems", None)
    min_count = schema.get("minContains", 1)
    if "contains" not in schema or (min_count == 0 and "maxContains" not in schema):
        _remove_contains(schema)
    elif allows_everything(schema["contains"], resolve):
        schema["minItems"] = max(min_count, schema.get("minItems", 0))
        if "maxContains" in schema:
            schema["maxItems"] = min(schema["maxContains"], schema.get("maxItems", math.inf))
        _remove_contains(schema)
    has_at_most_one_item = schema.get("maxItems", math.inf) <= 1
    if schema.get("uniqueItems") is False or has_at_most_one_item:
        schema.pop("uniqueItems", None)


def _remove_contains(schema: dict[str, Any]) -> None:
    for keyword in ("contains", *_CONTAINS_COUNTS):
        schema.pop(keyword, None)


def _simplify_objects(schema: dict[str, Any], resolve: Resolve) -> None:
    if "propertyNames" in schema and allows_all(schema["propertyNames"], "string", resolve):
        del schema["propertyNames"]
    required_keys = set(schema.get("required", []))
    for keyword in DEPENDENCIES:
        if keyword in schema:
            for name, dependency in list(schema[keyword].items()):
                if _is_always_met(dependency, required_keys, resolve):
                    del schema[keyword][name]
            if not schema[keyword]:
                del schema[keyword]
    _simplify_property_counts(schema)


def _is_always_met(dependency: Any, required_keys: set[str], resolve: Resolve) -> bool:
    """Return True if a dependency, a list of keys or a schema, restricts nothing."""
    if _is_key_list(dependency):
        return set(dependency) <= required_keys
    return allows_everything(dependency, resolve)


def _simplify_property_counts(schema: dict[str, Any]) -> None:
    """Remove limits of the number of properties that other keywords keep anyway."""
    if schema.get("minProperties", 1) <= len(set(schema.get("required", []))):
        schema.pop("minProperties", None)
    is_closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    if is_closed and schema.get("maxProperties", 0) >= len(schema.get("properties", {})):
        schema.pop("maxProperties", None)


def _is_key_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


# Keywords whose schemas apply to the same JSON. They may evaluate parts that the schema itself does not evaluate.
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas")


def _move_unevaluated(schema: dict[str, Any], keyword: str, rest_keyword: str, resolve: Resolve) -> None:
    """Remove a keyword about unevaluated parts of the JSON, or write it as ``rest_keyword``."""
    # ``rest_keyword`` is about the parts that the same schema does not name, such as ``additionalProperties``.
    # Beside ``rest_keyword``, all parts are evaluated.
    if keyword not in schema:
        return
    may_other_keywords_evaluate = any(other in schema for other in (*_IN_PLACE, "dependencies", "contains"))
    if rest_keyword in schema or allows_everything(schema[keyword], resolve):
        del schema[keyword]
    elif not may_other_keywords_evaluate:
        schema[rest_keyword] = schema.pop(keyword)
