"""Proofs that no JSON matches two options of a JSON Schema's ``oneOf``.

Without a common match, ``oneOf`` means the same as ``anyOf``. llguidance has such proofs, too, but it does not
follow references, and does not compare numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

from .schema_keywords import ALL_RESTRICTING, TYPE_NAMES, Resolve
from .schema_numbers import exact_value, is_number
from .schema_parts import walk_schema
from .schema_references import References
from .schema_values import are_equal

_MAX_ALTERNATIVES = 64  # maximum number of alternatives of one option, such as those of a nested ``anyOf``
_MAX_REFERENCES = 20
_MAX_DEPTH = 8  # maximum depth of properties and items that are compared
_MAX_STEPS = 50_000  # maximum number of comparisons for one schema, which take about a second
_MAX_TRIALS = 20  # maximum number of pairs of options of one schema that llguidance is asked about

_JSON_TYPES = frozenset(name for name in TYPE_NAMES if name != "integer")

# Schemas that all apply to the same JSON. None of them has a reference, ``allOf``, ``anyOf`` or ``oneOf``.
_Conjunction = tuple[Any, ...]


class _TooManyError(Exception):
    """There are too many alternatives or comparisons."""


class _SchemaAlternatives(NamedTuple):
    """A schema and its alternatives."""

    schema: Any  # kept so that the id of the schema stays unique
    alternatives: list[_Conjunction]


class OptionComparison:
    """The comparison of options of one JSON Schema, with a limit of the work."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._remaining_steps = _MAX_STEPS
        self._cached_alternatives: dict[int, _SchemaAlternatives] = {}  # by the id of the schema

    def overlapping_pairs(self, schema: dict[str, Any]) -> Iterator[tuple[int, int]]:
        """Yield the indices of the pairs of options for which no proof was found that they exclude each other."""
        # ``schema``: the schema that has ``oneOf``. Its other keywords apply to all options.
        options = schema["oneOf"]
        if self._are_different_values(options):
            return
        other_keywords = {key: value for key, value in schema.items() if key != "oneOf"}
        for first, second in combinations(range(len(options)), 2):
            if not self._are_exclusive([other_keywords, options[first]], [options[second]]):
                yield first, second

    def _are_different_values(self, options: Sequence[Any]) -> bool:
        """Return True if all options list values, and no two options list the same one."""
        listed_values: list[str] = []
        for option in options:
            is_reference = isinstance(option, dict) and option.keys() == {"$ref"}
            target = self._resolve(option) if is_reference else option
            values = _listed_values(target) if isinstance(target, dict) else None
            if values is None or not all(isinstance(value, str | int | None) for value in values):
                return False
            listed_values += {json.dumps(value) for value in values}
        has_repetition = len(set(listed_values)) < len(listed_values)
        return not has_repetition

    def _are_exclusive(self, first: Sequence[Any], second: Sequence[Any], depth: int = 0) -> bool:
        """Return True if surely no JSON matches all schemas of both lists."""
        self._remaining_steps -= 1
        if depth > _MAX_DEPTH or self._remaining_steps < 0:
            return False
        try:
            conjunctions = _combinations(self._alternatives(first), self._alternatives(second))
            all_facts = [_Facts.of(conjunction) for conjunction in conjunctions]
            return all(self._is_unsatisfiable(facts, depth) for facts in all_facts)
        except _TooManyError:
            return False

    def _alternatives(self, schemas: Sequence[Any]) -> list[_Conjunction]:
        """Return conjunctions one of which applies to any JSON that matches all these schemas."""
        alternatives: list[_Conjunction] = [()]
        for schema in schemas:
            if id(schema) not in self._cached_alternatives:
                own_alternatives = self._alternatives_of(schema, reference_count=0)
                self._cached_alternatives[id(schema)] = _SchemaAlternatives(schema, own_alternatives)
            alternatives = _combinations(alternatives, self._cached_alternatives[id(schema)].alternatives)
            if len(alternatives) > _MAX_ALTERNATIVES:
                raise _TooManyError
        return alternatives

    def _alternatives_of(self, schema: Any, reference_count: int) -> list[_Conjunction]:
        """Return conjunctions one of which applies to any JSON that matches the schema."""
        if schema is False:
            return []
        if not isinstance(schema, dict):
            return [()]
        if reference_count > _MAX_REFERENCES:
            raise _TooManyError
        # JSON that matches the schema matches a conjunction of each group.
        groups: list[list[_Conjunction]] = [[(_without_applicators(schema),)]]
        if isinstance(schema.get("$ref"), str):
            groups.append(self._alternatives_of(self._resolve(schema), reference_count + 1))
        for member in schema.get("allOf", ()):
            groups.append(self._alternatives_of(member, reference_count + 1))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                group: list[_Conjunction] = []
                for option in schema[keyword]:
                    group += self._alternatives_of(option, reference_count + 1)
                groups.append(group)
        if math.prod(map(len, groups)) > _MAX_ALTERNATIVES:
            raise _TooManyError
        no_schemas: _Conjunction = ()
        return reduce(_combinations, groups, [no_schemas])

    def _is_unsatisfiable(self, facts: _Facts, depth: int) -> bool:
        """Return True if surely no JSON has all these properties."""
        return all(self._is_type_excluded(name, facts, depth) for name in facts.types)

    def _is_type_excluded(self, type_name: str, facts: _Facts, depth: int) -> bool:
        if facts.values is not None:
            return all(_type_of(value) != type_name or not facts.may_match(value) for value in facts.values)
        match type_name:
            case "number":
                return facts.is_number_range_empty
            case "string":
                return facts.are_counts_contradictory("Length")
            case "array":
                return facts.are_counts_contradictory("Items") or self._is_item_excluded(facts, depth)
            case "object":
                return facts.are_counts_contradictory("Properties") or any(
                    self._is_property_excluded(name, facts, depth) for name in facts.required
                )
            case _:
                return False

    def _is_property_excluded(self, name: str, facts: _Facts, depth: int) -> bool:
        schemas = list(facts.schemas_of_property(name))
        return bool(schemas) and self._are_exclusive(schemas, [True], depth + 1)

    def _is_item_excluded(self, facts: _Facts, depth: int) -> bool:
        min_count = max((schema.get("minItems", 0) for schema in facts.schemas), default=0)
        prefix_lengths = [len(_prefix(schema)) for schema in facts.schemas]
        for index in range(min(min_count, max(prefix_lengths, default=0) + 1)):
            item_schemas: list[Any] = []
            for schema in facts.schemas:
                item_schemas += _schemas_of_item(schema, index)
            if item_schemas and self._are_exclusive(item_schemas, [True], depth + 1):
                return True
        return False


def _combinations(first: Sequence[_Conjunction], second: Sequence[_Conjunction]) -> list[_Conjunction]:
    """Return each conjunction of the first list together with each conjunction of the second list."""
    return [(*left, *right) for left in first for right in second]


def _without_applicators(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _prefix(schema: dict[str, Any]) -> list[Any]:
    items = schema.get("items")
    return schema.get("prefixItems", items if isinstance(items, list) else [])


def _schemas_of_item(schema: dict[str, Any], index: int) -> Iterator[Any]:
    """Yield the schemas that apply to one item of an array."""
    prefix = _prefix(schema)
    if index < len(prefix):
        yield prefix[index]
        return
    rest_keyword = "additionalItems" if isinstance(schema.get("items"), list) else "items"
    if rest_keyword in schema:
        yield schema[rest_keyword]


@dataclass(frozen=True)
class _Facts:
    """The JSON that a conjunction of schemas allows."""

    schemas: Sequence[dict[str, Any]]
    types: frozenset[str]  # the types that JSON may have
    values: Sequence[Any] | None  # the values that JSON may have; None if they are not listed
    required: frozenset[str] = field(default_factory=frozenset)  # the keys that an object must have

    @classmethod
    def of(cls, conjunction: _Conjunction) -> _Facts:
        types = _JSON_TYPES
        values: Sequence[Any] | None = None
        required: set[str] = set()
        for schema in conjunction:
            if "type" in schema:
                names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
                types &= {"number" if name == "integer" else name for name in names}
            listed_values = _listed_values(schema)
            if listed_values is not None and values is None:
                values = listed_values
            elif listed_values is not None and values is not None:
                values = [value for value in values if _contains(listed_values, value)]
            required.update(schema.get("required", ()))
        return cls(conjunction, types, values, frozenset(required))

    def may_match(self, value: Any) -> bool:
        """Return False if a value of a possible type surely does not match one of the schemas."""
        return not any(_surely_rejects(schema, value) for schema in self.schemas)

    @property
    def is_number_range_empty(self) -> bool:
        low = _strictest_low_limit(_low_limit(schema) for schema in self.schemas)
        high = _strictest_high_limit(_high_limit(schema) for schema in self.schemas)
        if low.value == high.value:
            return low.is_excluded or high.is_excluded
        is_integer = any(schema.get("type") == "integer" for schema in self.schemas)
        if is_integer and low.value.is_finite() and high.value.is_finite():
            first = math.floor(low.value) + 1 if low.is_excluded else math.ceil(low.value)
            last = math.ceil(high.value) - 1 if high.is_excluded else math.floor(high.value)
            return first > last
        return low.value > high.value

    def are_counts_contradictory(self, noun: str) -> bool:
        """Return True if no count is allowed. ``noun``: the end of its keywords, such as ``Items``."""
        min_count = max((schema.get(f"min{noun}", 0) for schema in self.schemas), default=0)
        max_count = min((schema.get(f"max{noun}", math.inf) for schema in self.schemas), default=math.inf)
        return bool(min_count > max_count)

    def schemas_of_property(self, name: str) -> Iterator[Any]:
        """Yield the schemas that surely apply to the value of a key."""
        for schema in self.schemas:
            if name in schema.get("properties", {}):
                yield schema["properties"][name]
            elif not schema.get("patternProperties") and "additionalProperties" in schema:
                yield schema["additionalProperties"]


def _listed_values(schema: dict[str, Any]) -> list[Any] | None:
    """Return the values that a schema lists; None if it lists none."""
    if "const" not in schema:
        return schema.get("enum")
    value = schema["const"]
    return [value] if _contains(schema.get("enum", [value]), value) else []


def _contains(values: Iterable[Any], value: Any) -> bool:
    return any(are_equal(value, other) for other in values)


class _Limit(NamedTuple):
    """A limit of numbers."""

    value: Decimal  # infinite if there is no limit
    is_excluded: bool  # whether the limit itself is not allowed


def _strictest_low_limit(limits: Iterable[_Limit]) -> _Limit:
    no_limit = _Limit(Decimal("-inf"), is_excluded=False)
    return max(limits, key=lambda limit: (limit.value, limit.is_excluded), default=no_limit)


def _strictest_high_limit(limits: Iterable[_Limit]) -> _Limit:
    no_limit = _Limit(Decimal("inf"), is_excluded=False)
    return min(limits, key=lambda limit: (limit.value, not limit.is_excluded), default=no_limit)


def _exact_limit(schema: dict[str, Any], keyword: str, default: str) -> Decimal:
    return exact_value(schema[keyword]) if keyword in schema else Decimal(default)


def _low_limit(schema: dict[str, Any]) -> _Limit:
    """Return the lower limit of a schema's numbers."""
    minimum = _exact_limit(schema, "minimum", "-inf")
    if not is_number(schema.get("exclusiveMinimum")):  # a boolean in draft 4
        return _Limit(minimum, schema.get("exclusiveMinimum") is True and "minimum" in schema)
    exclusive_minimum = exact_value(schema["exclusiveMinimum"])
    return _strictest_low_limit([_Limit(exclusive_minimum, True), _Limit(minimum, False)])


def _high_limit(schema: dict[str, Any]) -> _Limit:
    """Return the upper limit of a schema's numbers."""
    maximum = _exact_limit(schema, "maximum", "inf")
    if not is_number(schema.get("exclusiveMaximum")):  # a boolean in draft 4
        return _Limit(maximum, schema.get("exclusiveMaximum") is True and "maximum" in schema)
    exclusive_maximum = exact_value(schema["exclusiveMaximum"])
    return _strictest_high_limit([_Limit(exclusive_maximum, True), _Limit(maximum, False)])


def _surely_rejects(schema: dict[str, Any], value: Any) -> bool:
    """Return True if a value surely does not match a schema. Only keywords of its type are compared."""
    if "type" in schema and not _has_type(schema["type"], value):
        return True
    if is_number(value):
        return not _is_in_number_range(exact_value(value), schema)
    if isinstance(value, dict):
        return _surely_rejects_object(schema, value)
    if isinstance(value, str | list):
        noun = "Length" if isinstance(value, str) else "Items"
        min_count = schema.get(f"min{noun}", 0)
        max_count = schema.get(f"max{noun}", math.inf)
        return not min_count <= len(value) <= max_count
    return False


def _is_in_number_range(number: Decimal, schema: dict[str, Any]) -> bool:
    low = _low_limit(schema)
    high = _high_limit(schema)
    is_too_low = number < low.value or (number == low.value and low.is_excluded)
    is_too_high = number > high.value or (number == high.value and high.is_excluded)
    return not is_too_low and not is_too_high


def _surely_rejects_object(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    if not value.keys() >= set(schema.get("required", ())):
        return True
    for name, property_schema in schema.get("properties", {}).items():
        if name in value and isinstance(property_schema, dict):
            listed_values = _listed_values(property_schema)
            if listed_values is not None and not _contains(listed_values, value[name]):
                return True
            if _surely_rejects(property_schema, value[name]):
                return True
    return False


def _has_type(types: str | list[str], value: Any) -> bool:
    type_name = _type_of(value)
    allowed_names = [types] if isinstance(types, str) else types
    if type_name in allowed_names:
        return True
    return type_name == "number" and "integer" in allowed_names and value % 1 == 0


def replace_exclusive_options(schema: dict[str, Any], engine_error: Callable[[dict[str, Any]], str]) -> None:
    """Write ``anyOf`` for each ``oneOf`` whose options exclude each other."""
    # ``engine_error`` returns llguidance's error message about a schema; it finds proofs about strings.
    comparison = OptionComparison(References(schema).target)
    trial_count = 0
    parts_with_options = [part.schema for part in walk_schema(schema) if part.schema.get("oneOf")]
    for part in parts_with_options:
        for pair in comparison.overlapping_pairs(part):
            trial_count += 1
            if trial_count > _MAX_TRIALS or engine_error(schema_of_pair(schema, part, pair)):
                break  # llguidance decides when it reads the complete schema
        else:
            use_any_of(part)


def schema_of_pair(root: dict[str, Any], part: dict[str, Any], pair: tuple[int, int]) -> dict[str, Any]:
    """Return a part of a schema with only two of its options, to be compiled alone."""
    return {**shared_keywords(root), **part, "oneOf": [part["oneOf"][index] for index in pair]}


def shared_keywords(root: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords that a part of a schema may need when it is compiled alone, such as ``$defs``."""
    return {keyword: value for keyword, value in root.items() if keyword not in ALL_RESTRICTING}


def use_any_of(schema: dict[str, Any]) -> None:
    """Write the options of ``oneOf`` as ``anyOf``."""
    options = {"anyOf": schema.pop("oneOf")}
    if "anyOf" in schema:
        schema["allOf"] = [*schema.get("allOf", []), options]
    else:
        schema |= options
