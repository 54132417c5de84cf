"""The translation of JSON Schemas to llguidance's dialect of Lark.

Keywords that llguidance does not support are rejected with their path, or ignored. Unused definitions are not
checked. ``multipleOf`` is supported for small numbers only, because llguidance needs a state for each remainder
and computes with 32 bits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from ..common.errors import Word
from ..common.strict_json import NonFiniteNumberError, json_problem, parse_strict_json
from .errors import LENIENT_HINT, GrammarError
from .schema_keywords import (
    FORMATS,
    IDENTIFIERS,
    check_values,
    irregular_part,
    shown,
    similar_keyword,
    simplify,
    unknown_keywords,
)
from .schema_numbers import inexact_limits, reject_extreme_numbers, with_exact_numbers
from .schema_parts import iterate_subschemas, walk_from, walk_schema
from .schema_references import References, SchemaPart, escape_pointer_token

# llguidance's options for JSON on one line, with one space after each comma and colon. If whitespace were allowed
# anywhere, a model might write it forever, and hardly any text would be forced.
ONE_LINE_STYLE: dict[str, object] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
TOO_DEEP = "the JSON Schema is nested too deeply"

_FILE_NAME = re.compile(r"[^\s{}\[\]\"]+\.json")


def parse_json_schema(source: str) -> dict[str, Any]:
    """Parse a JSON Schema. Raises ``GrammarError`` unless the source is a JSON object or ``true``."""
    schema = _parse_json(source)
    if schema is True:
        return {}
    if schema is False:
        raise GrammarError("a JSON Schema must be an object; false allows no JSON at all")
    if not isinstance(schema, dict):
        raise GrammarError("a JSON Schema must be an object")
    if not isinstance(schema.get("x-guidance", {}), dict):
        raise GrammarError(f"/x-guidance: {shown(schema['x-guidance'])} is not an object")
    if _SURROGATE_ESCAPE.search(source):
        _check_characters(schema)
    return schema


def _parse_json(source: str) -> Any:
    try:
        return parse_strict_json(source)
    except json.JSONDecodeError as error:
        if _FILE_NAME.fullmatch(source):
            raise GrammarError(
                f"{source!r} is not JSON but looks like a file", advice=("pass a file as ", Word.JSON_SCHEMA_FILE)
            ) from None
        raise GrammarError(f"not JSON: {json_problem(error)}", error.lineno, error.colno, source) from None
    except NonFiniteNumberError as error:
        raise GrammarError(f"not JSON: {error}") from None
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number with too many digits") from None


_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def _check_characters(schema: dict[str, Any]) -> None:
    """Raise ``GrammarError`` with the path for half of a surrogate pair, which llguidance rejects."""
    remaining_parts: list[tuple[str, Any]] = [("", schema)]
    while remaining_parts:
        pointer, node = remaining_parts.pop()
        texts = [pointer]
        if isinstance(node, dict):
            remaining_parts += ((f"{pointer}/{escape_pointer_token(key)}", value) for key, value in node.items())
        elif isinstance(node, list):
            remaining_parts += ((f"{pointer}/{index}", item) for index, item in enumerate(node))
        elif isinstance(node, str):
            texts.append(node)
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError:
                path = pointer.encode(errors="backslashreplace").decode()
                raise GrammarError(
                    f"{path}: {shown(text)} has half of a surrogate pair, which is not a character"
                ) from None


def open_object(schema: dict[str, Any]) -> str | None:
    """Return the JSON pointer of an object that lists properties and allows other properties, too."""
    # Returns None if there is no such object. Schemas in ``allOf`` are skipped, because only all of them together
    # describe an object.
    remaining_parts: list[tuple[str, Any]] = [("", schema)]
    while remaining_parts:
        pointer, part = remaining_parts.pop()
        if not isinstance(part, dict):
            continue
        is_closed = "additionalProperties" in part or "unevaluatedProperties" in part
        if part.get("properties") and not is_closed:
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


def json_schema_to_lark(schema: dict[str, Any], style: dict[str, object]) -> str:
    """Return a Lark grammar of the JSON that matches a schema. Raises ``GrammarError``."""
    # The schema's ``x-guidance`` takes precedence over ``style``, llguidance's options for whitespace and
    # separators.
    schema = with_exact_numbers(schema)
    options = {**style, **schema.get("x-guidance", {})}
    keywords = {keyword: value for keyword, value in schema.items() if keyword not in IDENTIFIERS}
    try:
        text = json.dumps({**keywords, "x-guidance": options}, allow_nan=False)
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number that is too large") from None
    return f"start: %json {text}\n"


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
# Keywords that have no effect without another keyword, and this keyword
_OWNER_KEYWORDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}


def prepare(schema: dict[str, Any], references: References, *, is_lenient: bool) -> list[str]:
    """Check and simplify a schema, and return the JSON pointers of the removed annotations."""
    # Unknown formats and keywords are annotations, as JSON Schema defines them. Unused definitions are not
    # checked. Raises ``GrammarError`` with the path for a wrong value of a keyword, for an unknown keyword that
    # resembles a known keyword, and for a reference without a target.
    removed_pointers: list[str] = []
    for pointer, part in walk_schema(schema):
        check_values(SchemaPart(pointer, part))
        reject_extreme_numbers(part, pointer)
        _check_subschemas(pointer, part)
        _check_key_patterns(pointer, part)
        references.rewrite(SchemaPart(pointer, part))
        removed_pointers += _remove_annotations(pointer, part, is_lenient=is_lenient)
        simplify(part, references.target)
        if part.get("not") is True:
            _forbid_all(pointer, part)
    return removed_pointers


def remove_unsupported(schema: dict[str, Any]) -> list[str]:
    """Remove the keywords that llguidance does not support, and return their JSON pointers."""
    # A removed keyword makes the schema allow more JSON, never less.
    removed_pointers: list[str] = []
    for pointer, part in walk_schema(schema):
        for keyword in (*unsupported_keywords(part), *inexact_limits(part)):
            removed_pointers.append(f"{pointer}/{keyword}")
            del part[keyword]
    _remove_identifiers(schema)
    check_common_multiples(schema)
    return removed_pointers


def _remove_annotations(pointer: str, schema: dict[str, Any], *, is_lenient: bool) -> list[str]:
    """Remove unknown keywords and formats, and return their JSON pointers."""
    # Raises ``GrammarError`` for a keyword that resembles a known one, unless ``is_lenient``.
    removed_keywords = unknown_keywords(schema)
    if not is_lenient:
        _reject_misspelled_keywords(pointer, schema, removed_keywords)
    if _has_unknown_format(schema):
        removed_keywords.append("format")
    for keyword in removed_keywords:
        # An unknown keyword with an object or a list stays, because it may contain the target of a reference.
        may_contain_target = keyword != "format" and isinstance(schema[keyword], dict | list)
        if not may_contain_target:
            del schema[keyword]
    return [f"{pointer}/{escape_pointer_token(keyword)}" for keyword in removed_keywords]


def _reject_misspelled_keywords(pointer: str, schema: Mapping[str, Any], keywords: Iterable[str]) -> None:
    for keyword in keywords:
        nearest = similar_keyword(keyword)
        if nearest is not None:
            problem = f"{shown(keyword)} is not a keyword of JSON Schema (here {shown(schema[keyword])})"
            raise GrammarError(
                f"{pointer}/{escape_pointer_token(keyword)}: {problem}; did you mean {nearest}?",
                advice=LENIENT_HINT,
            )


def _remove_identifiers(schema: dict[str, Any]) -> None:
    """Remove the identifiers of all parts below the root, since the references do not need them any more."""
    parts: list[Any] = [part.schema for part in walk_schema(schema)]
    for key in ("$defs", "definitions"):
        if isinstance(schema.get(key), dict):
            parts += schema[key].values()
    for part in parts:
        if part is not schema and isinstance(part, dict):
            for keyword in IDENTIFIERS:
                part.pop(keyword, None)


def _forbid_all(pointer: str, schema: dict[str, Any]) -> None:
    """Rewrite a schema that no JSON matches for llguidance. Raises ``GrammarError`` for the complete schema."""
    if not pointer:
        raise GrammarError("/not: no JSON matches the schema, because 'not' excludes all JSON")
    schema.clear()
    schema["allOf"] = [False]


def _check_subschemas(pointer: str, schema: Mapping[str, Any]) -> None:
    for path, subschema in iterate_subschemas(schema):
        if not isinstance(subschema, dict | bool):
            raise GrammarError(
                f"{pointer}/{path}: {shown(subschema)} is not a schema; must be an object, true or false"
            )


def unsupported_keywords(schema: Mapping[str, Any]) -> list[str]:
    """Return the keywords of one schema that restrict JSON and that llguidance does not support."""
    keywords = [keyword for keyword in _UNSUPPORTED_KEYWORDS if keyword in schema]
    keywords += [keyword for keyword, owner in _OWNER_KEYWORDS.items() if keyword in schema and owner in keywords]
    multiple = _read_multiple_of(schema)
    if multiple is not None and not _are_multiples_supported([multiple]):
        keywords.append("multipleOf")
    if irregular_part(schema.get("pattern", "")) is not None:
        keywords.append("pattern")
    return keywords


def _check_key_patterns(pointer: str, schema: Mapping[str, Any]) -> None:
    for pattern in schema.get("patternProperties", {}):
        irregular = irregular_part(pattern)
        if irregular is not None:
            path = f"{pointer}/patternProperties/{escape_pointer_token(pattern)}"
            raise GrammarError(f"{path}: {irregular} is not supported in a pattern", advice=_REGULAR_ADVICE)


_REGULAR_ADVICE = "write the pattern without look-around, back-references and word borders"


def _has_unknown_format(schema: Mapping[str, Any]) -> bool:
    types = schema.get("type", "string")
    type_names = types if isinstance(types, list) else [types]
    return "string" in type_names and "format" in schema and schema["format"] not in FORMATS


# Maximum value of a multiple's digits without the decimal point. Above it, llguidance's 32-bit sums overflow.
_MAX_DIGITS_VALUE = (2**32 - 10) // 10
# Maximum number of llguidance's states. A mask with 300,000 states takes seconds; 4 million states take 1 GB.
_MAX_MULTIPLE_STATES = 50_000


def _read_multiple_of(schema: Mapping[str, Any]) -> Fraction | None:
    """Return the ``multipleOf`` of one schema; None if there is none or the value is not a positive number."""
    value = schema.get("multipleOf")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if not 0 < value < math.inf:
        return None
    return Fraction(str(value))  # exactly as written: 0.1 is a tenth, not the float next to it


def _are_multiples_supported(multiples: Iterable[Fraction]) -> bool:
    """Return True if llguidance supports numbers that are multiples of all these numbers."""
    common_multiple: Fraction | None = None
    for multiple in multiples:
        if common_multiple is None:
            common_multiple = multiple
        else:
            common_multiple = _least_common_multiple(common_multiple, multiple)
        if not is_multiple_supported(common_multiple):
            return False
    return True


def check_common_multiples(root: dict[str, Any]) -> None:
    """Raise ``GrammarError`` for schemas that apply together and have a common multiple that is too large."""
    # Schemas apply together in ``allOf`` and next to ``$ref``. Properties of one name in them apply together, too.
    if _are_multiples_supported(_iterate_multiples(root, SchemaPart("", root))):
        return
    for part in walk_schema(root):
        applies_together = "allOf" in part.schema or ("$ref" in part.schema and len(part.schema) > 1)
        if applies_together and not _are_multiples_supported(_iterate_multiples(root, part)):
            keyword = "allOf" if "allOf" in part.schema else "$ref"
            message = "the least common multiple of the values of multipleOf below is too large"
            raise GrammarError(f"{part.pointer}/{keyword}: {message}")


def _iterate_multiples(root: dict[str, Any], start_part: SchemaPart) -> Iterator[Fraction]:
    for part in walk_from(root, start_part):
        multiple = _read_multiple_of(part.schema)
        if multiple is not None:
            yield multiple


def _least_common_multiple(first: Fraction, second: Fraction) -> Fraction:
    return Fraction(math.lcm(first.numerator, second.numerator), math.gcd(first.denominator, second.denominator))


def is_multiple_supported(multiple: Fraction) -> bool:
    """Return True if llguidance needs at most ``_MAX_MULTIPLE_STATES`` states, and its sums do not overflow."""
    # The number of states is estimated. A final zero of the number multiplies it by about 3, any other digit by
    # 10.
    digits = multiple.numerator  # the digits of the number as an integer, such as 25 for 0.25
    denominator = multiple.denominator
    while denominator % 10 == 0:
        denominator //= 10
    while denominator > 1:  # a power of 2 or a power of 5
        if denominator % 2 == 0:
            digits *= 5
            denominator //= 2
        else:
            digits *= 2
            denominator //= 5
    significant_digits = digits
    zero_count = 0
    while significant_digits % 10 == 0:
        significant_digits //= 10
        zero_count += 1
    state_count = significant_digits * 3**zero_count
    return digits <= _MAX_DIGITS_VALUE and state_count <= _MAX_MULTIPLE_STATES
