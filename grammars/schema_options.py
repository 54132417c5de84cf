"""Proofs that no JSON matches two options of a JSON Schema's ``oneOf``.

Without a common match, ``oneOf`` means the same as ``anyOf``. llguidance has such proofs, too, but does not look
behind references, and does not compare numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from itertools import combinations
from typing import Any

from .schema_keywords import ALL_RESTRICTING, TYPE_NAMES, Resolve
from .schema_numbers import exact_value, is_number
from .schema_parts import walk_schema
from .schema_references import References

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


class OptionComparison:
    """The comparison of options of one JSON Schema, with a limit of the work."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._remaining_steps = _MAX_STEPS
        self._alternatives_by_id: dict[int, tuple[Any, list[_Conjunction]]] = {}  # with the schema of each id

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
            target = self._resolve(option) if isinstance(option, dict) and option.keys() == {"$ref"} else option
            values = _listed_values(target) if isinstance(target, dict) else None
            if values is None or not all(isinstance(value, str | int | None) for value in values):
                return False
            listed_values += {json.dumps(value) for value in values}
        return len(set(listed_values)) == len(listed_values)

    def _are_exclusive(self, first: Sequence[Any], second: Sequence[Any], depth: int = 0) -> bool:
        """Return True if surely no JSON matches all schemas of both lists."""
        self._remaining_steps -= 1
        if depth > _MAX_DEPTH or self._remaining_steps < 0:
            return False
        try:
            pairs = [
                _Facts.of((*one, *other))
                for one in self._alternatives(first)
                for other in self._alternatives(second)
            ]
            return all(self._is_unsatisfiable(facts, depth) for facts in pairs)
        except _TooManyError:
            return False

    def _alternatives(self, schemas: Sequence[Any]) -> list[_Conjunction]:
        """Return conjunctions one of which applies to any JSON that matches all these schemas."""
        alternatives: list[_Conjunction] = [()]
        for schema in schemas:
            if id(schema) not in self._alternatives_by_id:
                self._alternatives_by_id[id(schema)] = schema, list(self._alternatives_of(schema, 0))
            _, own_alternatives = self._alternatives_by_id[id(schema)]
            alternatives = [(*one, *other) for one in alternatives for other in own_alternatives]
            if len(alternatives) > _MAX_ALTERNATIVES:
                raise _TooManyError
        return alternatives

    def _alternatives_of(self, schema: Any, reference_count: int) -> Iterator[_Conjunction]:
        if not isinstance(schema, dict):
            yield from () if schema is False else ((),)
            return
        if reference_count > _MAX_REFERENCES:
            raise _TooManyError
        groups: list[list[_Conjunction]] = [[(_without_applicators(schema),)]]
        if isinstance(schema.get("$ref"), str):
            groups.append(list(self._alternatives_of(self._resolve(schema), reference_count + 1)))
        groups += (list(self._alternatives_of(each, reference_count + 1)) for each in schema.get("allOf", ()))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                groups.append(
                    [each for one in schema[keyword] for each in self._alternatives_of(one, reference_count + 1)]
                )
        for alternatives in groups:
            if math.prod(map(len, groups)) > _MAX_ALTERNATIVES:
                raise _TooManyError
            if not alternatives:
                return
        no_schemas: _Conjunction = ()
        yield from reduce(
            lambda first, second: [(*one, *other) for one in first for other in second], groups, [no_schemas]
        )

    def _is_unsatisfiable(self, facts: _Facts, depth: int) -> bool:
        """Return True if surely no JSON has all these properties."""
        return all(self._is_type_excluded(name, facts, depth) for name in facts.types)

    def _is_type_excluded(self, type_name: str, facts: _Facts, depth: int) -> bool:
        if facts.values is not None:
            return all(_type_of(value) != type_name or not facts.may_match(value) for value in facts.values)
        match type_name:
            case "number":
                return facts.number_range_is_empty
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
            schemas = [each for schema in facts.schemas for each in _schemas_of_item(schema, index)]
            if schemas and self._are_exclusive(schemas, [True], depth + 1):
                return True
        return False


def _without_applicators(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    by_class = ((int | float, "number"), (str, "string"), (list, "array"), (dict, "object"))
    return next(name for classes, name in by_class if isinstance(value, classes))


def are_equal(first: Any, second: Any) -> bool:
    """Return True if two values are the same JSON; 1 and 1.0 are, 1 and true are not."""
    if _type_of(first) != _type_of(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(are_equal, first, second))
    if is_number(first):
        return exact_value(first) == exact_value(second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(are_equal(first[key], second[key]) for key in first)
    return bool(first == second)


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
    """What a conjunction of schemas says about JSON."""

    schemas: Sequence[dict[str, Any]]
    types: frozenset[str]  # the types that JSON may have
    values: Sequence[Any] | None  # the values that JSON may have; None if they are not listed
    required: frozenset[str] = field(default_factory=frozenset)  # the keys that an object must have

    @classmethod
    def of(cls, conjunction: _Conjunction) -> _Facts:
        types, values = _JSON_TYPES, None
        for schema in conjunction:
            if "type" in schema:
                names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
                types &= {"number" if name == "integer" else name for name in names}
            listed = _listed_values(schema)
            if listed is not None:
                values = listed if values is None else [each for each in values if _contains(listed, each)]
        required = frozenset(name for schema in conjunction for name in schema.get("required", ()))
        return cls(conjunction, types, values, required)

    def may_match(self, value: Any) -> bool:
        """Return False if a value of a possible type surely does not match one of the schemas."""
        return not any(_surely_rejects(schema, value) for schema in self.schemas)

    @property
    def number_range_is_empty(self) -> bool:
        low, is_low_open = max((_low_limit(schema) for schema in self.schemas), default=(Decimal("-inf"), False))
        high, is_high_open = min((_high_limit(schema) for schema in self.schemas), default=(Decimal("inf"), False))
        is_high_open = any(_high_limit(schema) == (high, True) for schema in self.schemas)
        if low == high:
            return is_low_open or is_high_open
        is_integer = any(schema.get("type") == "integer" for schema in self.schemas)
        if is_integer and low.is_finite() and high.is_finite():
            first = math.floor(low) + 1 if is_low_open else math.ceil(low)
            last = math.ceil(high) - 1 if is_high_open else math.floor(high)
            return first > last
        return low > high

    def are_counts_contradictory(self, noun: str) -> bool:
        """Return True if the minimum of a length or number is above the maximum. ``noun``: such as ``Items``."""
        return max((s.get(f"min{noun}", 0) for s in self.schemas), default=0) > min(
            (s.get(f"max{noun}", math.inf) for s in self.schemas), default=math.inf
        )

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


_Limit = tuple[Decimal, bool]  # a limit, and True if the limit itself is excluded


def _exact_limit(schema: dict[str, Any], keyword: str, default: str) -> Decimal:
    return exact_value(schema[keyword]) if keyword in schema else Decimal(default)


def _low_limit(schema: dict[str, Any]) -> _Limit:
    """Return the lower limit of a schema's numbers."""
    minimum = _exact_limit(schema, "minimum", "-inf")
    if not is_number(schema.get("exclusiveMinimum")):  # a boolean in draft 4
        return minimum, schema.get("exclusiveMinimum") is True and "minimum" in schema
    return max((exact_value(schema["exclusiveMinimum"]), True), (minimum, False))


def _high_limit(schema: dict[str, Any]) -> _Limit:
    maximum = _exact_limit(schema, "maximum", "inf")
    if not is_number(schema.get("exclusiveMaximum")):
        return maximum, schema.get("exclusiveMaximum") is True and "maximum" in schema
    exclusive = exact_value(schema["exclusiveMaximum"])
    return (exclusive, True) if exclusive <= maximum else (maximum, False)


def _surely_rejects(schema: dict[str, Any], value: Any) -> bool:
    """Return True if a value surely does not match a schema, whose applicators are not looked at."""
    if "type" in schema and not _has_type(schema["type"], value):
        return True
    if is_number(value):
        number, (low, is_low_open), (high, is_high_open) = (
            exact_value(value),
            _low_limit(schema),
            _high_limit(schema),
        )
        return (number <= low if is_low_open else number < low) or (
            number >= high if is_high_open else number > high
        )
    if isinstance(value, dict):
        return any(name not in value for name in schema.get("required", ())) or any(
            isinstance(rule, dict) and _surely_rejects_value(rule, value[name])
            for name, rule in schema.get("properties", {}).items()
            if name in value
        )
    if isinstance(value, str | list):
        noun = "Length" if isinstance(value, str) else "Items"
        return not schema.get(f"min{noun}", 0) <= len(value) <= schema.get(f"max{noun}", math.inf)
    return False


def _surely_rejects_value(schema: dict[str, Any], value: Any) -> bool:
    """Return True if a value surely does not match a schema, whose values are looked at, too."""
    listed = _listed_values(schema)
    return (listed is not None and not _contains(listed, value)) or _surely_rejects(schema, value)


def _has_type(types: str | list[str], value: Any) -> bool:
    name = _type_of(value)
    names = [types] if isinstance(types, str) else types
    return name in names or (name == "number" and "integer" in names and value % 1 == 0)


def replace_exclusive_options(schema: dict[str, Any], engine_error: Callable[[dict[str, Any]], str]) -> None:
    """Write ``anyOf`` for each ``oneOf`` whose options exclude each other."""
    # ``engine_error`` returns llguidance's error message about a schema; it finds proofs about strings.
    comparison = OptionComparison(References(schema).target)
    trial_count = 0
    for part in [part.schema for part in walk_schema(schema) if part.schema.get("oneOf")]:
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
    """Return what a part of a schema may need when it is compiled alone: all that restricts nothing itself."""
    return {keyword: value for keyword, value in root.items() if keyword not in ALL_RESTRICTING}


def use_any_of(schema: dict[str, Any]) -> None:
    options = {"anyOf": schema.pop("oneOf")}
    if "anyOf" in schema:
        schema["allOf"] = [*schema.get("allOf", []), options]
    else:
        schema |= options
