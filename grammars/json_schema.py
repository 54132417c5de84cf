"""The translation of JSON Schemas to llguidance's dialect of Lark.

Keywords that llguidance does not support are found with their paths, and are rejected or ignored. Definitions that
no reference uses are not checked. ``multipleOf`` is supported for small numbers only, because llguidance needs a
state for each remainder and computes with 32 bits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..common.strict_json import NonFiniteNumberError, json_problem, parse_strict_json
from ..common.text import join_alternatives, nearest_name
from .errors import GrammarError

ONE_LINE_STYLE: dict[str, object] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""llguidance's options for JSON on one line, with one space after each comma and colon.

If whitespace were allowed anywhere, a model might write it forever, and hardly any text would be forced.
"""
LENIENT_HINT = "schema_lenient=True ignores it"
TOO_DEEP = "the JSON Schema is nested too deeply"

_FILE_NAME = re.compile(r"[^\s{}\[\]\"]+\.json")


def parse_json_schema(source: str) -> dict[str, Any]:
    """Parse a JSON Schema. Raises ``GrammarError`` unless the source is a JSON object or ``true``."""
    try:
        schema = parse_strict_json(source)
    except json.JSONDecodeError as error:
        if _FILE_NAME.fullmatch(source):
            raise GrammarError(
                f"{source!r} is not JSON but looks like a file", advice="pass a file as json_schema_file=…"
            ) from None
        raise GrammarError(f"not JSON: {json_problem(error)}", error.lineno, error.colno, source) from None
    except NonFiniteNumberError as error:
        raise GrammarError(f"not JSON: {error}") from None
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number with too many digits") from None
    if schema is True:
        return {}
    if schema is False:
        raise GrammarError("a JSON Schema must be an object; false allows no JSON at all")
    if not isinstance(schema, dict):
        raise GrammarError("a JSON Schema must be an object")
    if not isinstance(schema.get("x-guidance", {}), dict):
        raise GrammarError("x-guidance must be an object")
    return schema


def open_object(schema: dict[str, Any]) -> str | None:
    """Return the JSON pointer of an object that lists properties and allows unlisted ones; None if there is none.

    Schemas below ``allOf`` are skipped, because only all of them together describe an object.
    """
    remaining_parts: list[tuple[str, Any]] = [("", schema)]
    while remaining_parts:
        pointer, part = remaining_parts.pop()
        if not isinstance(part, dict):
            continue
        if part.get("properties") and not {"additionalProperties", "unevaluatedProperties"} & part.keys():
            return pointer
        for key in ("properties", "$defs", "definitions"):
            schemas_by_name = part.get(key)
            if isinstance(schemas_by_name, dict):
                remaining_parts += (
                    (f"{pointer}/{key}/{name}", subschema) for name, subschema in schemas_by_name.items()
                )
        for key in ("anyOf", "oneOf", "prefixItems"):
            listed_schemas = part.get(key)
            if isinstance(listed_schemas, list):
                remaining_parts += (
                    (f"{pointer}/{key}/{index}", subschema) for index, subschema in enumerate(listed_schemas)
                )
        remaining_parts.append((f"{pointer}/items", part.get("items")))
    return None


_HALF_SURROGATE_PAIR = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])")


def json_schema_to_lark(schema: dict[str, Any], style: dict[str, object]) -> str:
    """Return a Lark grammar of the JSON that matches a schema. Raises ``GrammarError``.

    Args:
        schema: the schema, whose translation is left to llguidance.
        style: llguidance's options for whitespace and separators. Options in the schema's ``x-guidance`` take
            precedence.
    """
    try:
        text = json.dumps({**schema, "x-guidance": {**style, **schema.get("x-guidance", {})}}, allow_nan=False)
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number that is too large") from None
    if _HALF_SURROGATE_PAIR.search(text):
        raise GrammarError("the JSON Schema has half of a surrogate pair, which is not a character")
    return f"start: %json {text}\n"


_KEYWORDS_WITHOUT_EFFECT = ("$dynamicAnchor", "$recursiveAnchor")
"""Keywords that restrict nothing, but that llguidance rejects. They only name a part of the schema."""
_UNSUPPORTED_KEYWORDS = (
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
_OWNER_KEYWORDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
"""Keywords that have an effect only together with another keyword, and this other keyword."""


def remove_unsupported(schema: dict[str, Any], *, is_lenient: bool) -> list[str]:
    """Remove keywords that llguidance does not support, and return the JSON pointers of those that restrict JSON.

    A removed keyword makes the schema allow more JSON, never less. Definitions that no reference uses are not
    checked.

    Raises ``GrammarError`` for an unknown type, for a value that is not a schema where one is expected, and for a
    reference without a target.

    Args:
        schema: the schema, which is changed.
        is_lenient: False to raise ``GrammarError`` for the first unsupported keyword that restricts JSON.
    """
    removed_pointers: list[str] = []
    for pointer, part in _walk_schema(schema):
        _check_type(pointer, part)
        _check_subschemas(pointer, part)
        for keyword in _unsupported_keywords(part):
            if not is_lenient:
                raise _unsupported_error(pointer, part, keyword)
            removed_pointers.append(f"{pointer}/{keyword}")
            del part[keyword]
        for keyword in (*_KEYWORDS_WITHOUT_EFFECT, *_UNSUPPORTED_KEYWORDS, *_OWNER_KEYWORDS):
            part.pop(keyword, None)
    _check_common_multiples(schema)
    return removed_pointers


_TYPE_NAMES = ("object", "array", "string", "number", "integer", "boolean", "null")
"""The types of JSON Schema."""


def _check_type(pointer: str, schema: Mapping[str, Any]) -> None:
    types = schema.get("type", [])
    for type_name in [types] if isinstance(types, str) else types if isinstance(types, list) else []:
        if isinstance(type_name, str) and type_name not in _TYPE_NAMES:
            nearest = nearest_name(type_name.lower(), _TYPE_NAMES)
            hint = f"did you mean {nearest!r}?" if nearest else f"must be {join_alternatives(_TYPE_NAMES)}"
            raise GrammarError(f"{pointer}/type: {type_name!r} is not a type; {hint}")


def _check_subschemas(pointer: str, schema: Mapping[str, Any]) -> None:
    for path, subschema in _iterate_subschemas(schema):
        if not isinstance(subschema, dict | bool):
            raise GrammarError(
                f"{pointer}/{path}: {json.dumps(subschema)} is not a schema; must be an object, true or false"
            )


def _unsupported_keywords(schema: Mapping[str, Any]) -> list[str]:
    """Return the unsupported keywords of one schema that restrict JSON."""
    keywords = [
        keyword for keyword in _UNSUPPORTED_KEYWORDS if keyword in schema and _does_restrict(keyword, schema)
    ]
    keywords += [keyword for keyword, owner in _OWNER_KEYWORDS.items() if keyword in schema and owner in keywords]
    if _has_unknown_format(schema):
        keywords.append("format")
    multiple = _read_multiple_of(schema)
    if multiple is not None and not _are_multiples_supported([multiple]):
        keywords.append("multipleOf")
    return keywords


def _does_restrict(keyword: str, schema: Mapping[str, Any]) -> bool:
    """Return False if the keyword has a value that allows all JSON."""
    value = schema[keyword]
    if keyword == "uniqueItems":
        return value is True
    if keyword == "if":
        return "then" in schema or "else" in schema
    if keyword in ("not", "contains", "$dynamicRef", "$recursiveRef"):
        return True
    return value is not True and value != {}


FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "unknown")
)
"""The formats that llguidance supports. It rejects other formats."""


def _has_unknown_format(schema: Mapping[str, Any]) -> bool:
    types = schema.get("type", "string")
    allows_strings = "string" in (types if isinstance(types, list) else [types])
    name = schema.get("format")
    return allows_strings and isinstance(name, str) and name not in FORMATS


def _unsupported_error(pointer: str, schema: Mapping[str, Any], keyword: str) -> GrammarError:
    if keyword == "format":
        formats = ", ".join(sorted(FORMATS - {"unknown"}))
        message = f"the format {schema[keyword]!r} is not supported; supported are {formats}"
    elif keyword == "multipleOf":
        message = f"multiples of {schema[keyword]} are not supported, only multiples of numbers up to 50,000"
    else:
        message = f"{keyword!r} is not supported"
    return GrammarError(f"{pointer}/{keyword}: {message}", advice=LENIENT_HINT)


_MAX_DIGITS_VALUE = (2**32 - 10) // 10
"""Maximum value of a multiple's digits without the decimal point. Above it, llguidance's 32-bit sums overflow."""
_MAX_MULTIPLE_STATES = 50_000
"""Maximum number of llguidance's states. A mask with 300,000 states takes seconds; 4 million states take 1 GB."""


def _read_multiple_of(schema: Mapping[str, Any]) -> Fraction | None:
    """Return the ``multipleOf`` of one schema; None if there is none or the value is not a positive number."""
    value = schema.get("multipleOf")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        return None
    return Fraction(str(value))  # exactly as written: 0.1 is a tenth, not the float next to it


def _are_multiples_supported(multiples: Iterable[Fraction]) -> bool:
    """Return True if llguidance supports numbers that are multiples of all these numbers."""
    common_multiple: Fraction | None = None
    for multiple in multiples:
        common_multiple = (
            multiple if common_multiple is None else _least_common_multiple(common_multiple, multiple)
        )
        if not _is_multiple_supported(common_multiple):
            return False
    return True


def _check_common_multiples(root: dict[str, Any]) -> None:
    """Raise ``GrammarError`` for schemas that apply together and have a common multiple that is too large.

    Schemas apply together in ``allOf`` and next to ``$ref``. Properties of one name in them apply together, too.
    """
    if _are_multiples_supported(_iterate_multiples(root, SchemaPart("", root))):
        return
    for part in _walk_schema(root):
        applies_together = "allOf" in part.schema or ("$ref" in part.schema and len(part.schema) > 1)
        if applies_together and not _are_multiples_supported(_iterate_multiples(root, part)):
            keyword = "allOf" if "allOf" in part.schema else "$ref"
            message = "the least common multiple of the values of multipleOf below is too large"
            raise GrammarError(f"{part.pointer}/{keyword}: {message}")


def _iterate_multiples(root: dict[str, Any], start_part: SchemaPart) -> Iterator[Fraction]:
    for part in _walk_from(root, start_part):
        multiple = _read_multiple_of(part.schema)
        if multiple is not None:
            yield multiple


def _least_common_multiple(first: Fraction, second: Fraction) -> Fraction:
    return Fraction(math.lcm(first.numerator, second.numerator), math.gcd(first.denominator, second.denominator))


def _is_multiple_supported(multiple: Fraction) -> bool:
    """Return True if llguidance needs at most ``_MAX_MULTIPLE_STATES`` states, and its sums do not overflow.

    The states are estimated. A final zero of the number multiplies them by about 3, any other digit by 10.
    """
    digits, denominator = multiple.numerator, multiple.denominator
    while denominator % 10 == 0:
        denominator //= 10
    while denominator > 1:  # the remaining denominator is a power of 2 or of 5
        factor = 5 if denominator % 2 == 0 else 2
        digits, denominator = digits * factor, denominator // (10 // factor)
    significant_digits, zero_count = digits, 0
    while significant_digits % 10 == 0:
        significant_digits, zero_count = significant_digits // 10, zero_count + 1
    return digits <= _MAX_DIGITS_VALUE and significant_digits * 3**zero_count <= _MAX_MULTIPLE_STATES


class SchemaPart(NamedTuple):
    """A schema inside another schema.

    Attributes:
        pointer: JSON pointer of the inner schema; empty for the complete schema.
        schema: the inner schema.
    """

    pointer: str
    schema: dict[str, Any]


def _walk_schema(schema: dict[str, Any]) -> Iterator[SchemaPart]:
    """Yield the schema and all schemas that it contains or refers to, each once, in the order of the source.

    Raises ``GrammarError`` for a reference without a target.
    """
    yield from _walk_from(schema, SchemaPart("", schema))


def _walk_from(root: dict[str, Any], start_part: SchemaPart) -> Iterator[SchemaPart]:
    """Yield a part of the schema ``root`` and all schemas that the part contains or refers to, each once."""
    remaining_parts = [start_part]
    visited_ids: set[int] = set()
    while remaining_parts:
        part = remaining_parts.pop()
        if id(part.schema) in visited_ids:
            continue
        visited_ids.add(id(part.schema))
        yield part
        remaining_parts += reversed(list(children(root, part)))


def children(root: dict[str, Any], part: SchemaPart) -> Iterator[SchemaPart]:
    """Yield the schemas directly below a part of the schema ``root``, and the target of the part's ``$ref``.

    Raises ``GrammarError`` for a reference without a target.
    """
    pointer, schema = part
    for path, subschema in _iterate_subschemas(schema):
        if isinstance(subschema, dict):
            yield SchemaPart(f"{pointer}/{path}", subschema)
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        target = _resolve_reference(root, reference, pointer)
        if target is not None:
            yield target


_KEYWORDS_OF_A_SCHEMA = ("items", "additionalItems", "additionalProperties")
_KEYWORDS_OF_A_LIST = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_KEYWORDS_OF_A_TABLE = ("properties", "patternProperties")


def _iterate_subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values where schemas are expected, each with its path. They may not be valid schemas."""
    for keyword in _KEYWORDS_OF_A_SCHEMA:
        if keyword in schema and not isinstance(schema[keyword], list):  # the next loop handles lists
            yield keyword, schema[keyword]
    for keyword in _KEYWORDS_OF_A_LIST:
        items = schema.get(keyword)
        if isinstance(items, list):
            yield from ((f"{keyword}/{index}", subschema) for index, subschema in enumerate(items))
    for keyword in _KEYWORDS_OF_A_TABLE:
        table = schema.get(keyword)
        if isinstance(table, dict):
            yield from (
                (f"{keyword}/{_escape_pointer_token(name)}", subschema) for name, subschema in table.items()
            )


def _resolve_reference(root: dict[str, Any], reference: str, pointer: str) -> SchemaPart | None:
    """Return the target of a local reference; None if only llguidance can resolve the reference.

    Args:
        root: the complete schema.
        reference: the reference, ``#`` or ``#/…``.
        pointer: JSON pointer of the schema that has the reference, for an error message.
    """
    node: Any = root
    target_pointer = ""
    for token in map(_unescape_pointer_token, unquote(reference).split("/")[1:]):
        is_key = isinstance(node, dict) and token in node
        is_index = isinstance(node, list) and token.isdecimal() and int(token) < len(node)
        if not (is_key or is_index):
            if _has_inner_id(root):
                return None  # the reference may be relative to the inner schema that has the id
            nearest_key = nearest_name(token, node) if isinstance(node, dict) and target_pointer else None
            hint = (
                f"; did you mean '#{target_pointer}/{_escape_pointer_token(nearest_key)}'?" if nearest_key else ""
            )
            raise GrammarError(f"{pointer}/$ref: the schema has no {reference!r}{hint}")
        node = node[token] if is_key else node[int(token)]
        target_pointer += f"/{_escape_pointer_token(token)}"
    return SchemaPart(target_pointer, node) if isinstance(node, dict) else None


def _has_inner_id(root: dict[str, Any]) -> bool:
    """Return True if a schema below the root has an ``$id``, which references may be relative to."""
    remaining_nodes: list[Any] = list(root.values())
    while remaining_nodes:
        node = remaining_nodes.pop()
        if isinstance(node, dict):
            if "$id" in node or "id" in node:
                return True
            remaining_nodes += node.values()
        elif isinstance(node, list):
            remaining_nodes += node
    return False


def _escape_pointer_token(token: str) -> str:
    """Return a key as it is written in a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def _unescape_pointer_token(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
