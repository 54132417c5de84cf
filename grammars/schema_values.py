"""Whether a value matches a JSON Schema. It is computed exactly: numbers are compared as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from .json_strings import json_string, matches_format, matches_terminal, pattern_terminal
from .schema_case import UntranslatableError
from .schema_keywords import DEPENDENCIES, Resolve
from .schema_numbers import exact_value, is_number, range_of


def type_of(value: Any) -> str:
    """Return the type of a value; ``number`` for an integer, too."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def are_equal(first: Any, second: Any) -> bool:
    """Return True if two values are the same JSON: 1 and 1.0 are the same, but 1 and true are not."""
    if type_of(first) != type_of(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(are_equal, first, second))
    if is_number(first):
        return exact_value(first) == exact_value(second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(are_equal(first[key], second[key]) for key in first)
    return bool(first == second)


def is_integer(value: Any) -> bool:
    return is_number(value) and exact_fraction(value).denominator == 1


def exact_fraction(value: float) -> Fraction:
    return Fraction(exact_value(value))


class ValueCheck:
    """The check of values against the parts of one JSON Schema."""

    def __init__(self, target: Resolve) -> None:
        self._target = target

    def matches(self, value: Any, schema: Any) -> bool:
        """Return True if the value matches the schema. Raises ``UntranslatableError``."""
        if not isinstance(schema, dict):
            return schema is True
        return (
            _is_allowed(value, schema) and self._matches_others(value, schema) and self._matches_own(value, schema)
        )

    def _matches_others(self, value: Any, schema: dict[str, Any]) -> bool:
        """Return True if the value matches the schemas that this schema applies to it."""
        applied = [*schema.get("allOf", ())]
        if "$ref" in schema:
            applied.append(self._target(schema))
        if "if" in schema:
            applied.append(schema.get("then" if self.matches(value, schema["if"]) else "else", True))
        return (
            all(self.matches(value, member) for member in applied)
            and ("anyOf" not in schema or any(self.matches(value, option) for option in schema["anyOf"]))
            and ("oneOf" not in schema or sum(self.matches(value, option) for option in schema["oneOf"]) == 1)
            and ("not" not in schema or not self.matches(value, schema["not"]))
        )

    def _matches_own(self, value: Any, schema: dict[str, Any]) -> bool:
        """Return True if the value matches the keywords of its type."""
        match type_of(value):
            case "number":
                return _matches_number(exact_fraction(value), schema)
            case "string":
                return self._matches_string(value, schema)
            case "array":
                return self._matches_array(value, schema)
            case "object":
                return self._matches_object(value, schema)
        return True

    def _matches_string(self, value: str, schema: dict[str, Any]) -> bool:
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
        if "pattern" in schema and not matches_terminal(pattern_terminal(schema["pattern"]), json_string(value)):
            return False
        return "format" not in schema or matches_format(schema["format"], value)

    def _matches_array(self, value: list[Any], schema: dict[str, Any]) -> bool:
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        if "unevaluatedItems" in schema:
            raise UntranslatableError("no exact form is known", "unevaluatedItems")
        prefix, rest = array_items(schema)
        if not all(map(self.matches, value, prefix)):
            return False
        if not all(self.matches(item, rest) for item in value[len(prefix) :]):
            return False
        if "contains" in schema:
            count = sum(self.matches(item, schema["contains"]) for item in value)
            if not schema.get("minContains", 1) <= count <= schema.get("maxContains", count):
                return False
        return not (schema.get("uniqueItems") and any(are_equal(*pair) for pair in combinations(value, 2)))

    def _matches_object(self, value: dict[str, Any], schema: dict[str, Any]) -> bool:
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            return False
        if "unevaluatedProperties" in schema:
            raise UntranslatableError("no exact form is known", "unevaluatedProperties")
        if not value.keys() >= set(schema.get("required", ())):
            return False
        if "propertyNames" in schema and not all(self.matches(key, schema["propertyNames"]) for key in value):
            return False
        for key, item in value.items():
            if not all(self.matches(item, part) for part in self.schemas_of_key(key, schema)):
                return False
        for key, dependency in dependencies(schema):
            if key in value and not self.matches(value, dependency):
                return False
        return True

    def schemas_of_key(self, key: str, schema: Mapping[str, Any]) -> list[Any]:
        """Return the schemas that apply to the value of a key."""
        schemas = []
        if key in schema.get("properties", ()):
            schemas.append(schema["properties"][key])
        for pattern, part in schema.get("patternProperties", {}).items():
            if matches_terminal(pattern_terminal(pattern), json_string(key)):
                schemas.append(part)
        return schemas or [schema.get("additionalProperties", True)]


def _is_allowed(value: Any, schema: dict[str, Any]) -> bool:
    """Return True if the schema allows the type of the value, and lists the value if it lists any."""
    if "type" in schema and not has_type(value, schema["type"]):
        return False
    if "const" in schema and not are_equal(value, schema["const"]):
        return False
    return "enum" not in schema or any(are_equal(value, other) for other in schema["enum"])


def has_type(value: Any, types: str | list[str]) -> bool:
    type_name = type_of(value)
    names = [types] if isinstance(types, str) else types
    return type_name in names or ("integer" in names and is_integer(value))


def array_items(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Return the schemas of the first items of an array, and the schema of the other items."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def schemas_of_item(index: int, schemas: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the schemas that apply to an item of an array that matches all these schemas."""
    parts = map(array_items, schemas)
    return [prefix[index] if index < len(prefix) else rest for prefix, rest in parts]


def dependencies(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return keys, and the schema that applies to an object that has the key."""
    found = []
    for keyword in DEPENDENCIES:
        for key, dependency in schema.get(keyword, {}).items():
            found.append((key, {"required": dependency} if isinstance(dependency, list) else dependency))
    return found


def _matches_number(number: Fraction, schema: dict[str, Any]) -> bool:
    limits = range_of(schema)
    if limits.low is not None and (number < limits.low or (number == limits.low and not limits.has_low)):
        return False
    if limits.high is not None and (number > limits.high or (number == limits.high and not limits.has_high)):
        return False
    return "multipleOf" not in schema or (number / exact_fraction(schema["multipleOf"])).denominator == 1


def comparable_text(value: Any) -> str:
    """Return a text that equal values have in common, and different values have not."""
    if is_number(value):
        return str(exact_fraction(value))
    if isinstance(value, list | tuple):
        return f"[{','.join(map(comparable_text, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_string(key)}:{comparable_text(value[key])}" for key in sorted(value)) + "}"
    return json_string(value) if isinstance(value, str) else str(value)
