"""The JSON that a JSON Schema allows, as cases: lists of keywords that all apply to JSON of one type.

``allOf``, ``anyOf``, ``oneOf``, ``not``, ``if``, references and dependencies are resolved: the schema allows
exactly the JSON of which one case is true. A negated keyword becomes another keyword, such as
``exclusiveMaximum`` for a negated ``minimum``. What no keyword of JSON Schema says is told by `Extra`.

Each step is an equivalence, for JSON ``x`` of one type:

- x matches ``not: {A, B}`` if x matches ``not: {A}`` or ``not: {B}``, and ``not: {not: S}`` if x matches S;
- x matches ``if: S, then: T, else: E`` if x matches S and T, or not S and E;
- x matches ``oneOf`` if x matches one option, and none of the others;
- x matches a dependency if it has not the key, or matches the schema of the dependency.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any

from .schema_case import Case, Extra, Schema, UntranslatableError, greatest, least, names_of
from .schema_case_check import CaseCheck, is_number_case_empty, is_string_case_empty
from .schema_keywords import DEPENDENCIES, JSON_TYPES, RESTRICTING, Resolve
from .schema_numbers import range_limits
from .schema_values import are_equal, array_items, comparable_text, dependencies, schemas_of_item, type_of

_MAX_CASES = 400
_MAX_COMPARED_CASES = 2_000  # maximum number of cases that are compared with one another
_MAX_PRODUCTS = 200_000  # maximum number of pairs of cases that are joined for one schema
_MAX_DEPTH = 60
_MAX_COMPARED_DEPTH = 8

# A dependency is a case of its own.
_TYPE_KEYWORDS = {
    type_name: [keyword for keyword in keywords if keyword not in DEPENDENCIES]
    for type_name, keywords in RESTRICTING.items()
    if type_name != "any"
}
# the keywords of limits that say the opposite
_OPPOSITE_LIMITS = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
UNTRANSLATED = ("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef")


class SchemaCases:
    """The cases of the parts of one JSON Schema."""

    def __init__(self, target: Resolve) -> None:
        self._target = target
        self.check = CaseCheck(target)
        self._cases: dict[tuple[int, str], list[Case]] = {}
        self._negated_cases: dict[tuple[int, str], list[Case]] = {}
        self._kept: list[Schema] = []  # the schemas whose ids are keys, so that the ids stay unique
        self._keys: dict[int, str] = {}
        self._negations: dict[int, dict[str, Any]] = {}
        self._remaining_products = _MAX_PRODUCTS
        self._open: set[tuple[int, str, bool]] = set()  # the schemas whose cases are being found

    def of_all(self, schemas: Iterable[Schema], type_name: str) -> list[Case]:
        """Return the cases of JSON of one type that matches all the schemas."""
        cases: list[Case] = [()]
        for schema in schemas:
            cases = self._both(cases, self.of(schema, type_name), "allOf")
        return cases

    def of(self, schema: Schema, type_name: str) -> list[Case]:
        """Return the cases of JSON of one type that matches the schema."""
        if not isinstance(schema, dict):
            return [()] if schema else []
        key = (id(schema), type_name)
        if key not in self._cases:
            with self._opened((*key, True)):
                self._cases[key] = self._of(schema, type_name)
            self._kept.append(schema)
        return self._cases[key]

    def of_not(self, schema: Schema, type_name: str) -> list[Case]:
        """Return the cases of JSON of one type that does not match the schema."""
        if not isinstance(schema, dict):
            return [] if schema else [()]
        key = (id(schema), type_name)
        if key not in self._negated_cases:
            with self._opened((*key, False)):
                self._negated_cases[key] = self._distinct(self._of_not(schema, type_name))
            self._kept.append(schema)
        return self._negated_cases[key]

    def negation(self, schema: Schema) -> Schema:
        """Return the schema that matches all other JSON, always the same object for the same schema."""
        if not isinstance(schema, dict):
            return not schema
        if schema.keys() == {"not"}:
            return schema["not"]
        self._kept.append(schema)
        return self._negations.setdefault(id(schema), {"not": schema})

    @contextmanager
    def _opened(self, key: tuple[int, str, bool]) -> Iterator[None]:
        if key in self._open:
            raise UntranslatableError("the cases of a part depend on themselves", "$ref")
        if len(self._open) > _MAX_DEPTH:
            raise UntranslatableError("it is nested too deeply")
        self._open.add(key)
        try:
            yield
        finally:
            self._open.remove(key)

    def _both(self, first: list[Case], second: list[Case], keyword: str) -> list[Case]:
        """Return the cases of JSON for which one case of each list is true."""
        self._remaining_products -= len(first) * len(second)
        if self._remaining_products < 0:
            raise UntranslatableError("too many combinations", keyword)
        joined = (self._joined(left, right) for left in first for right in second)
        cases = self._distinct(case for case in joined if not self._is_contradictory(case))
        if len(cases) > _MAX_CASES:
            raise UntranslatableError("too many combinations", keyword)
        return cases

    def _joined(self, first: Case, second: Case) -> Case:
        keys = set(map(self._key, first))
        return first + tuple(part for part in second if self._key(part) not in keys)

    def _key(self, part: dict[str, Any]) -> str:
        """Return a text that a part of a case shares with parts that mean the same: 1 is not true there."""
        if id(part) not in self._keys:
            self._kept.append(part)
            self._keys[id(part)] = comparable_text(part)
        return self._keys[id(part)]

    def _distinct(self, cases: Iterable[Case]) -> list[Case]:
        """Return the cases without those that are part of another: a case with more keywords matches less."""
        distinct = {frozenset(map(self._key, case)): case for case in cases}
        if len(distinct) > _MAX_COMPARED_CASES:
            return list(distinct.values())
        return [case for keys, case in distinct.items() if not any(other < keys for other in distinct)]

    def _is_contradictory(self, case: Case) -> bool:
        """Return True if surely no JSON of the type matches the case. Little is compared."""
        for noun in ("Length", "Items", "Properties"):
            max_count = least(case, f"max{noun}")
            if max_count is not None and greatest(case, f"min{noun}") > max_count:
                return True
        for name in names_of(case, "required"):
            schemas = [part["properties"][name] for part in case if name in part.get("properties", ())]
            if False in schemas or _have_no_common_value(schemas):
                return True
        return False

    # Proofs that no JSON matches

    def is_empty(self, schemas: Sequence[Schema], depth: int = 0) -> bool:
        """Return True if surely no JSON matches all the schemas."""
        if any(schema is False for schema in schemas):
            return True
        if depth > _MAX_COMPARED_DEPTH:
            return False
        return all(
            self.is_case_empty(case, type_name, depth)
            for type_name in JSON_TYPES
            for case in self.of_all(schemas, type_name)
        )

    def is_case_empty(self, case: Case, type_name: str, depth: int = 0) -> bool:
        """Return True if surely no JSON of the type matches the case."""
        values = self.check.values(case, type_name)
        if values is not None:
            return not values
        if self._is_contradictory(case):
            return True
        match type_name:
            case "number":
                return is_number_case_empty(case)
            case "string":
                return is_string_case_empty(case)
            case "array":
                return self._is_array_empty(case, depth)
        return self._is_object_empty(case, depth)

    def _is_array_empty(self, case: Case, depth: int) -> bool:
        last = max((len(array_items(part)[0]) for part in case), default=0)
        indexes = range(min(greatest(case, "minItems"), last + 1))
        return any(self.is_empty(schemas_of_item(index, case), depth + 1) for index in indexes)

    def _is_object_empty(self, case: Case, depth: int) -> bool:
        required = names_of(case, "required")
        max_count = least(case, "maxProperties")
        if max_count is not None and len(required) > max_count:
            return True
        for name in required:
            if not all(self.check.matches(name, part.get("propertyNames", True)) for part in case):
                return True
            if self.is_empty(self.check.schemas_of_name(name, case), depth + 1):
                return True
        return False

    def _is_surely_empty(self, case: Case, type_name: str) -> bool:
        try:
            return self.is_case_empty(case, type_name)
        except (UntranslatableError, RecursionError):
            return False

    def exclude_each_other(self, first: Sequence[Schema], second: Schema) -> bool:
        """Return True if surely no JSON matches both. False if that is not known."""
        try:
            return self.is_empty([*first, second])
        except (UntranslatableError, RecursionError):
            return False

    def _of(self, schema: dict[str, Any], type_name: str) -> list[Case]:
        own = self._own_keywords(schema, type_name)
        if own is None:
            return []
        cases: list[Case] = [(own,) if own else ()]
        if "$ref" in schema:
            cases = self._both(cases, self.of(self._target(schema), type_name), "$ref")
        for member in schema.get("allOf", ()):
            cases = self._both(cases, self.of(member, type_name), "allOf")
        if "not" in schema:
            cases = self._both(cases, self.of_not(schema["not"], type_name), "not")
        if "if" in schema:
            cases = self._both(cases, self._of_condition(schema, type_name), "if")
        if type_name == "object":
            for name, dependency in dependencies(schema):
                has_key = self._both([({"required": [name]},)], self.of(dependency, type_name), "dependentSchemas")
                cases = self._both(cases, [({"properties": {name: False}},), *has_key], "dependentSchemas")
        if "anyOf" in schema:
            options = [case for option in schema["anyOf"] for case in self.of(option, type_name)]
            cases = self._both(cases, self._distinct(options), "anyOf")
        if "oneOf" in schema:
            cases = self._both(cases, self._of_one(schema["oneOf"], type_name), "oneOf")
        return cases

    def _own_keywords(self, schema: dict[str, Any], type_name: str) -> dict[str, Any] | None:
        """Return the keywords of the schema itself that restrict JSON of the type; None if it matches none."""
        keywords = {name: schema[name] for name in _TYPE_KEYWORDS.get(type_name, ()) if name in schema}
        for untranslated in UNTRANSLATED:
            if untranslated in schema:
                keywords[untranslated] = schema[untranslated]
        types = schema.get("type", type_name)
        types = [types] if isinstance(types, str) else types
        if type_name not in types:
            if type_name != "number" or "integer" not in types:
                return None
            keywords["type"] = "integer"
        values = listed_values(schema)
        if values is not None:
            keywords["enum"] = [value for value in values if type_of(value) == type_name]
            if not keywords["enum"]:
                return None
        return keywords

    def _of_condition(self, schema: dict[str, Any], type_name: str) -> list[Case]:
        condition = schema["if"]
        met = self._both(self.of(condition, type_name), self.of(schema.get("then", True), type_name), "if")
        unmet = self._both(self.of_not(condition, type_name), self.of(schema.get("else", True), type_name), "if")
        return self._distinct([*met, *unmet])

    def _of_one(self, options: Sequence[Schema], type_name: str) -> list[Case]:
        cases: list[Case] = []
        for index, option in enumerate(options):
            others = [other for other_index, other in enumerate(options) if other_index != index]
            for case in self.of(option, type_name):
                only_cases = [case]
                for other in others:
                    common = self._both([case], self.of(other, type_name), "oneOf")
                    if not all(self._is_surely_empty(common_case, type_name) for common_case in common):
                        only_cases = self._both(only_cases, self.of_not(other, type_name), "oneOf")
                cases += only_cases
        return self._distinct(cases)

    def _of_not(self, schema: dict[str, Any], type_name: str) -> list[Case]:
        types = schema.get("type", type_name)
        types = [types] if isinstance(types, str) else types
        is_integer = type_name == "number" and "number" not in types and "integer" in types
        if type_name not in types and not is_integer:
            return [()]
        cases: list[Case] = [({Extra.NOT_INTEGER: "integer"},)] if is_integer else []
        if type_name in _TYPE_KEYWORDS:
            cases += [(keywords,) for keywords in self._negated_keywords(schema, type_name)]
        cases += [({keyword: schema[keyword]},) for keyword in UNTRANSLATED if keyword in schema]
        values = listed_values(schema)
        if values is not None:
            cases += self._of_other_values([value for value in values if type_of(value) == type_name], type_name)
        return [*cases, *self._of_not_applied(schema, type_name)]

    def _of_not_applied(self, schema: dict[str, Any], type_name: str) -> list[Case]:
        """Return the cases of JSON that does not match one of the schemas that the schema applies to it."""
        cases: list[Case] = []
        if "$ref" in schema:
            cases += self.of_not(self._target(schema), type_name)
        for member in schema.get("allOf", ()):
            cases += self.of_not(member, type_name)
        if "not" in schema:
            cases += self.of(schema["not"], type_name)
        if "if" in schema:
            cases += self._of_unmet_condition(schema, type_name)
        if type_name == "object":
            for name, dependency in dependencies(schema):
                has_key: list[Case] = [({"required": [name]},)]
                cases += self._both(has_key, self.of_not(dependency, type_name), "dependentSchemas")
        if "anyOf" in schema:
            cases += self._of_none(schema["anyOf"], type_name)
        if "oneOf" in schema:
            cases += self._of_none(schema["oneOf"], type_name)
            for first, second in combinations(schema["oneOf"], 2):
                cases += self._both(self.of(first, type_name), self.of(second, type_name), "oneOf")
        return cases

    def _of_unmet_condition(self, schema: dict[str, Any], type_name: str) -> list[Case]:
        met = self.of(schema["if"], type_name)
        unmet = self.of_not(schema["if"], type_name)
        return [
            *self._both(met, self.of_not(schema.get("then", True), type_name), "if"),
            *self._both(unmet, self.of_not(schema.get("else", True), type_name), "if"),
        ]

    def _of_none(self, options: Sequence[Schema], type_name: str) -> list[Case]:
        cases: list[Case] = [()]
        for option in options:
            cases = self._both(cases, self.of_not(option, type_name), "anyOf")
        return cases

    def _of_other_values(self, values: list[Any], type_name: str) -> list[Case]:
        """Return the cases of JSON of one type that is none of these values."""
        if not values:
            return [()]
        if type_name == "null":
            return []
        if type_name in ("boolean", "number", "string"):
            return [({Extra.NOT_VALUES: values},)]
        cases: list[Case] = [()]
        for value in values:
            cases = self._both(cases, self.of_not(schema_of_value(value), type_name), "enum")
        return cases

    def _negated_keywords(self, schema: dict[str, Any], type_name: str) -> list[dict[str, Any]]:
        """Return keywords of one type one of which applies if a keyword of the schema itself does not."""
        match type_name:
            case "number":
                return _negated_number(schema)
            case "string":
                return _negated_string(schema)
            case "array":
                return self._negated_array(schema)
        return self._negated_object(schema)

    def _negated_array(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        negated = _negated_counts(schema, "Items")
        prefix, rest = array_items(schema)
        for index, item in enumerate(prefix):
            other_item = self.negation(item)
            if other_item is not False:
                negated.append({"minItems": index + 1, "prefixItems": [*[True] * index, other_item]})
        other_rest = self.negation(rest)
        if other_rest is not False:
            negated.append({Extra.LATER_ITEM: (len(prefix), other_rest)})
        if "contains" in schema:
            min_count = schema.get("minContains", 1)
            if min_count > 0:
                negated.append({"contains": schema["contains"], "minContains": 0, "maxContains": min_count - 1})
            if "maxContains" in schema:
                negated.append({"contains": schema["contains"], "minContains": schema["maxContains"] + 1})
        if schema.get("uniqueItems"):
            negated.append({Extra.NOT_UNIQUE: True})
        return negated

    def _negated_object(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        negated = _negated_counts(schema, "Properties")
        negated += [{"properties": {name: False}} for name in schema.get("required", ())]
        properties = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        for name, part in properties.items():
            other_value = self.negation(part)
            if other_value is not False:
                negated.append({"required": [name], "properties": {name: other_value}})
        for pattern, part in patterns.items():
            other_value = self.negation(part)
            if other_value is not False:
                negated.append({Extra.SOME_KEY: ({"pattern": pattern}, other_value)})
        other_value = self.negation(schema.get("additionalProperties", True))
        if other_value is not False:
            other_keys = [{"not": {"pattern": pattern}} for pattern in patterns]
            if properties:
                other_keys.append({"not": {"enum": list(properties)}})
            negated.append({Extra.SOME_KEY: ({"allOf": other_keys}, other_value)})
        if "propertyNames" in schema:
            other_key = self.negation(schema["propertyNames"])
            if other_key is not False:
                negated.append({Extra.SOME_KEY: (other_key, True)})
        return negated


def listed_values(schema: dict[str, Any]) -> list[Any] | None:
    """Return the values that the schema itself lists; None if it lists none."""
    if "const" not in schema:
        return schema.get("enum")
    value = schema["const"]
    is_allowed = "enum" not in schema or any(are_equal(value, other) for other in schema["enum"])
    return [value] if is_allowed else []


def schema_of_value(value: Any) -> dict[str, Any]:
    """Return a schema that only an array or an object matches, in which the values of the items are listed."""
    if isinstance(value, list):
        items = [{"const": item} for item in value]
        return {"type": "array", "prefixItems": items, "minItems": len(value), "maxItems": len(value)}
    properties = {key: {"const": item} for key, item in value.items()}
    required = list(value)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _negated_number(schema: dict[str, Any]) -> list[dict[str, Any]]:
    negated: list[dict[str, Any]] = [{_OPPOSITE_LIMITS[keyword]: limit} for keyword, limit in range_limits(schema)]
    if "multipleOf" in schema:
        negated.append({Extra.NOT_MULTIPLE: schema["multipleOf"]})
    return negated


def _negated_string(schema: dict[str, Any]) -> list[dict[str, Any]]:
    negated = _negated_counts(schema, "Length")
    if "pattern" in schema:
        negated.append({Extra.NOT_PATTERN: schema["pattern"]})
    if "format" in schema:
        negated.append({Extra.NOT_FORMAT: schema["format"]})
    return negated


def _negated_counts(schema: dict[str, Any], noun: str) -> list[dict[str, Any]]:
    negated: list[dict[str, Any]] = []
    if schema.get(f"min{noun}", 0) > 0:
        negated.append({f"max{noun}": schema[f"min{noun}"] - 1})
    if f"max{noun}" in schema:
        negated.append({f"min{noun}": schema[f"max{noun}"] + 1})
    return negated


def _have_no_common_value(schemas: Sequence[Schema]) -> bool:
    """Return True if the schemas list values, and no value is in all the lists."""
    lists = [
        values for schema in schemas if isinstance(schema, dict) if (values := listed_values(schema)) is not None
    ]
    if len(lists) < 2:
        return False
    return not any(
        all(any(are_equal(value, other) for other in values) for values in lists[1:]) for value in lists[0]
    )
