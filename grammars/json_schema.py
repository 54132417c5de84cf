"""JSON Schemas, translated to llguidance's dialect of Lark.

What llguidance does not read in a schema is found with its path, and rejected or left out. Only the schemas that
the whole schema uses count. ``multipleOf`` is supported as far as llguidance can follow it: llguidance keeps a
state for each remainder, in 32 bits.
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

If blanks could stand anywhere, a model might write them forever, and hardly any text would be forced.
"""
LENIENT_HINT = "schema_lenient=True leaves it out"
TOO_DEEP = "the JSON Schema is nested too deeply"

_FILE_NAME = re.compile(r"[^\s{}\[\]\"]+\.json")


def parse_json_schema(source: str) -> dict[str, Any]:
    """Parse the text of a JSON Schema. Raises ``GrammarError`` for what is neither a JSON object nor ``true``."""
    try:
        schema = parse_strict_json(source)
    except json.JSONDecodeError as error:
        if _FILE_NAME.fullmatch(source):
            raise GrammarError(
                f"{source!r} is not JSON but looks like a file", advice="give a file by json_schema_file=…"
            ) from None
        raise GrammarError(f"not JSON: {json_problem(error)}", error.lineno, error.colno, source) from None
    except NonFiniteNumberError as error:
        raise GrammarError(f"not JSON: {error}") from None
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number of too many digits") from None
    if schema is True:
        return {}
    if schema is False:
        raise GrammarError("a JSON Schema is an object; this one allows nothing")
    if not isinstance(schema, dict):
        raise GrammarError("a JSON Schema is an object")
    if not isinstance(schema.get("x-guidance", {}), dict):
        raise GrammarError("x-guidance is not an object")
    return schema


def open_object(schema: dict[str, Any]) -> str | None:
    """The JSON pointer of an object that names its properties and allows others; None if there is none.

    Schemas below ``allOf`` are not looked at: they describe one object together.
    """
    remaining: list[tuple[str, Any]] = [("", schema)]
    while remaining:
        pointer, part = remaining.pop()
        if not isinstance(part, dict):
            continue
        if part.get("properties") and not {"additionalProperties", "unevaluatedProperties"} & part.keys():
            return pointer
        for key in ("properties", "$defs", "definitions"):
            named = part.get(key)
            if isinstance(named, dict):
                remaining += ((f"{pointer}/{key}/{name}", below) for name, below in named.items())
        for key in ("anyOf", "oneOf", "prefixItems"):
            listed = part.get(key)
            if isinstance(listed, list):
                remaining += ((f"{pointer}/{key}/{number}", below) for number, below in enumerate(listed))
        remaining.append((f"{pointer}/items", part.get("items")))
    return None


_HALF_OF_A_PAIR = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])")


def json_schema_to_lark(schema: dict[str, Any], style: dict[str, object]) -> str:
    """Return a Lark grammar of JSON that fits the schema; llguidance does the translation.

    ``style``: llguidance's options for blanks and separators. Those in the schema's ``x-guidance`` go first.
    Raises ``GrammarError``.
    """
    try:
        text = json.dumps({**schema, "x-guidance": {**style, **schema.get("x-guidance", {})}}, allow_nan=False)
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number that is too large") from None
    if _HALF_OF_A_PAIR.search(text):
        raise GrammarError("the JSON Schema has half of a surrogate pair, which is not a character")
    return f"start: %json {text}\n"


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
    for pointer, part in _walk_schema(schema):
        _check_type(pointer, part)
        _check_parts(pointer, part)
        for keyword in _unsupported_keywords(part):
            if not is_lenient:
                raise _unsupported(pointer, part, keyword)
            removed.append(f"{pointer}/{keyword}")
            del part[keyword]
        for keyword in (*_WITHOUT_EFFECT, *_UNSUPPORTED, *_BELONGS_TO):
            part.pop(keyword, None)
    _check_common_multiples(schema)
    return removed


_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
"""The types of JSON Schema."""


def _check_type(pointer: str, schema: Mapping[str, Any]) -> None:
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types if isinstance(types, list) else []:
        if isinstance(name, str) and name not in _TYPES:
            near = nearest_name(name.lower(), _TYPES)
            hint = f"did you mean {near!r}?" if near else f"there are {join_alternatives(_TYPES)}"
            raise GrammarError(f"{pointer}/type: {name!r} is not a type; {hint}")


def _check_parts(pointer: str, schema: Mapping[str, Any]) -> None:
    for path, below in _schemas_below(schema):
        if not isinstance(below, dict | bool):
            raise GrammarError(f"{pointer}/{path}: {json.dumps(below)} is not a schema: an object, true or false")


def _unsupported_keywords(schema: Mapping[str, Any]) -> list[str]:
    """The keywords of one schema that constrain JSON in a way that llguidance does not know."""
    keywords = [keyword for keyword in _UNSUPPORTED if keyword in schema and _constrains(keyword, schema)]
    keywords += [keyword for keyword, owner in _BELONGS_TO.items() if keyword in schema and owner in keywords]
    if _has_unknown_format(schema):
        keywords.append("format")
    multiple = _multiple_of(schema)
    if multiple is not None and not _can_follow([multiple]):
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


FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "unknown")
)
"""The formats that llguidance checks; it refuses others."""


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


_MAX_DIGITS = (2**32 - 10) // 10
"""The largest number, without its decimal point, of which llguidance's sums do not overflow."""
_MAX_STATES = 50_000
"""300,000 take seconds to follow, and 4 million a gigabyte."""


def _multiple_of(schema: Mapping[str, Any]) -> Fraction | None:
    """The ``multipleOf`` of one schema; None if it has none, or one that is no positive number."""
    value = schema.get("multipleOf")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        return None
    return Fraction(str(value))  # a float as it is written: 0.1 is a tenth


def _can_follow(multiples: Iterable[Fraction]) -> bool:
    """True if llguidance follows the multiples of all of these quickly, and without an overflow."""
    common: Fraction | None = None
    for multiple in multiples:
        common = multiple if common is None else _least_common_multiple(common, multiple)
        if not _is_small(common):
            return False
    return True


def _check_common_multiples(root: dict[str, Any]) -> None:
    """Refuse schemas that hold together and whose multiples have a common one that is too large.

    Also those of properties of one name count together there.
    """
    if _can_follow(_multiples(root, SchemaPart("", root))):
        return
    for part in _walk_schema(root):
        is_joined = "allOf" in part.schema or ("$ref" in part.schema and len(part.schema) > 1)
        if is_joined and not _can_follow(_multiples(root, part)):
            keyword = "allOf" if "allOf" in part.schema else "$ref"
            message = "the values of multipleOf below have a common multiple that cannot be followed"
            raise GrammarError(f"{part.pointer}/{keyword}: {message}")


def _multiples(root: dict[str, Any], start: SchemaPart) -> Iterator[Fraction]:
    for part in _walk_from(root, start):
        multiple = _multiple_of(part.schema)
        if multiple is not None:
            yield multiple


def _least_common_multiple(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))


def _is_small(multiple: Fraction) -> bool:
    """True for few remainders; a final zero adds fewer than another digit. The threefold was fitted to times."""
    digits, places = multiple.numerator, multiple.denominator
    while places % 10 == 0:
        places //= 10
    while places > 1:  # what is left is a power of 2 or of 5
        factor = 5 if places % 2 == 0 else 2
        digits, places = digits * factor, places // (10 // factor)
    rest, zeros = digits, 0
    while rest % 10 == 0:
        rest, zeros = rest // 10, zeros + 1
    return digits <= _MAX_DIGITS and rest * 3**zeros <= _MAX_STATES


class SchemaPart(NamedTuple):
    """A schema inside of another. ``pointer``: its JSON pointer; empty for the whole schema."""

    pointer: str
    schema: dict[str, Any]


def _walk_schema(schema: dict[str, Any]) -> Iterator[SchemaPart]:
    """Yield the schema and each one that it uses, once, in the order of the text; references are followed.

    Raises ``GrammarError`` for a reference to nothing.
    """
    yield from _walk_from(schema, SchemaPart("", schema))


def _walk_from(root: dict[str, Any], start: SchemaPart) -> Iterator[SchemaPart]:
    """Yield a part of the schema ``root`` and each one that it uses, as `_walk_schema`."""
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
    """Yield the schemas that a part of the schema ``root`` uses.

    Raises ``GrammarError`` for a reference to nothing.
    """
    pointer, schema = part
    for path, below in _schemas_below(schema):
        if isinstance(below, dict):
            yield SchemaPart(f"{pointer}/{path}", below)
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        target = _resolve(root, reference, pointer)
        if target is not None:
            yield target


_ONE_SCHEMA = ("items", "additionalItems", "additionalProperties")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_TABLES_OF_SCHEMAS = ("properties", "patternProperties")


def _schemas_below(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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
