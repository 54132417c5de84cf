"""Arrays and objects of a case as walks through states: after each item or key, the state says what may follow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any, NamedTuple, Protocol, TypeVar

from .json_strings import is_terminal_empty, string_terminal
from .rule_writer import Alternative, RuleName, RuleWriter
from .schema_case import Case, Extra, Schema, UntranslatableError, greatest, least, names_of
from .schema_case_check import string_terminal_of_case
from .schema_cases import SchemaCases
from .schema_keywords import JSON_TYPES
from .schema_values import array_items, comparable_text, schemas_of_item

SEPARATOR = '", "'
AFTER_KEY = '": "'
_MAX_STATES = 3_000
_MAX_COUNTED_ITEMS = 300
_MAX_UNIQUE_VALUES = 10
_MAX_KEY_CLASSES = 6  # maximum number of patterns and conditions of the keys of one object

WriteRule = Callable[[Sequence[Schema]], RuleName]  # returns the rule of the JSON that matches all the schemas
WriteValue = Callable[[Any], Alternative]  # returns a value as it is written

_State = TypeVar("_State", bound=Hashable)


class Walk(Protocol[_State]):
    """A walk through the items of an array or the keys of an object."""

    def steps(self, state: _State) -> Iterator[tuple[Alternative, _State]]:
        """Yield what may follow in a state, each with the next state."""
        ...

    def is_final(self, state: _State) -> bool:
        """Return True if the array or the object may end."""
        ...


def walk_rule(walk: Walk[_State], start: _State, closing: str, writer: RuleWriter) -> RuleName:
    """Return the rule of the texts from a state to the closing bracket. Each state has a rule."""
    rules = {start: writer.new_name("s")}
    pending = [start]
    while pending:
        state = pending.pop()
        alternatives: list[Alternative] = [(closing,)] if walk.is_final(state) else []
        repeated: list[Alternative] = []
        for items, next_state in walk.steps(state):
            if next_state == state:
                repeated.append(items)
                continue
            if next_state not in rules:
                rules[next_state] = writer.new_name("s")
                pending.append(next_state)
                if len(rules) > _MAX_STATES:
                    raise UntranslatableError("this part needs too many rules")
            alternatives.append((*items, rules[next_state]))
        writer.add(rules[state], alternatives, repeated)
    return rules[start]


@dataclass(frozen=True)
class ArrayState:
    """What was written of an array."""

    length: int = 0  # number of items, up to the greatest that matters
    matches: tuple[int, ...] = ()  # the number of items that meet each condition
    used: frozenset[str] = frozenset()  # the items as text, if they must be different


class _Contains(NamedTuple):
    """A condition on the number of items that match a schema."""

    schema: Schema
    min_count: int
    max_count: int | None
    first_index: int = 0  # index of the first item that counts


class ArrayWalk:
    """The items of the arrays of a case."""

    def __init__(self, case: Case, cases: SchemaCases, rule: WriteRule, write_value: WriteValue) -> None:
        self._cases = cases
        self._rule = rule
        self._write_value = write_value
        self._case = case
        self._min_length = greatest(case, "minItems")
        self._max_length = least(case, "maxItems")
        self._conditions = list(_contains_conditions(case))
        self._is_unique = any(part.get("uniqueItems") for part in case)
        if any(Extra.NOT_UNIQUE in part for part in case):
            raise UntranslatableError("arrays with equal items have no exact form", "uniqueItems")
        self._counted_length = self._max_length
        if self._counted_length is None:
            prefix_lengths = [len(array_items(part)[0]) for part in case]
            first_indexes = [condition.first_index for condition in self._conditions]
            self._counted_length = max(1, self._min_length, *prefix_lengths, *first_indexes)
        if self._counted_length > _MAX_COUNTED_ITEMS:
            keyword = "minItems" if self._max_length is None else "maxItems"
            raise UntranslatableError(f"{self._counted_length:,} are too many beside other keywords", keyword)

    @property
    def start(self) -> ArrayState:
        return ArrayState(matches=(0,) * len(self._conditions))

    def is_final(self, state: ArrayState) -> bool:
        counts = zip(state.matches, self._conditions, strict=True)
        return state.length >= self._min_length and all(
            count >= condition.min_count for count, condition in counts
        )

    def steps(self, state: ArrayState) -> Iterator[tuple[Alternative, ArrayState]]:
        if self._max_length is not None and state.length >= self._max_length:
            return
        separator = (SEPARATOR,) if state.length else ()
        length = min(state.length + 1, self._counted_length or 1)
        schemas = schemas_of_item(state.length, self._case)
        for added_schemas, matches in self._ways_to_match(state):
            item_schemas = [*schemas, *added_schemas]
            if not self._is_unique:
                yield (*separator, self._rule(item_schemas)), ArrayState(length, matches)
                continue
            for text, value in self._values(item_schemas).items():
                if text not in state.used:
                    next_state = ArrayState(length, matches, state.used | {text})
                    yield (*separator, *self._write_value(value)), next_state

    def _ways_to_match(self, state: ArrayState) -> Iterator[tuple[list[Schema], tuple[int, ...]]]:
        """Yield schemas that the next item may match, and the number of matches of each condition after it."""
        choices = [
            list(self._choices(condition, count, state.length))
            for condition, count in zip(self._conditions, state.matches, strict=True)
        ]
        for combination in product(*choices):
            yield (
                [schema for schemas, _ in combination for schema in schemas],
                tuple(count for _, count in combination),
            )

    def _choices(self, condition: _Contains, count: int, index: int) -> Iterator[tuple[list[Schema], int]]:
        if condition.max_count is not None:
            yield [self._cases.negation(condition.schema)], count
            if count < condition.max_count:
                yield [condition.schema], count + 1
            return
        yield [], count
        if index >= condition.first_index and count < condition.min_count:
            yield [condition.schema], count + 1

    def _values(self, schemas: Sequence[Schema]) -> dict[str, Any]:
        """Return the values that match the schemas, by a text that equal values share."""
        values: dict[str, Any] = {}
        for type_name in JSON_TYPES:
            for case in self._cases.of_all(schemas, type_name):
                case_values = self._cases.check.values(case, type_name)
                if case_values is None:
                    raise UntranslatableError("no exact form is known unless the items are listed", "uniqueItems")
                values |= {comparable_text(value): value for value in case_values}
        if len(values) > _MAX_UNIQUE_VALUES:
            raise UntranslatableError(
                f"more than {_MAX_UNIQUE_VALUES} different items are too many", "uniqueItems"
            )
        return values


def _contains_conditions(case: Case) -> Iterator[_Contains]:
    for part in case:
        if "contains" in part:
            min_count = part.get("minContains", 1)
            max_count = part.get("maxContains")
            if min_count > 0 or max_count is not None:
                yield _Contains(part["contains"], min_count, max_count)
        if Extra.LATER_ITEM in part:
            first_index, schema = part[Extra.LATER_ITEM]
            yield _Contains(schema, min_count=1, max_count=None, first_index=first_index)


@dataclass(frozen=True)
class ObjectState:
    """What was written of an object."""

    named: int = 0  # number of named keys that were written or left out
    keys: int = 0  # number of keys, up to the greatest that matters
    met: frozenset[int] = frozenset()  # the conditions that some key has met


class _KeyClass(NamedTuple):
    """Keys whose values match the same schemas."""

    terminal: str
    schemas: list[Schema]  # the schemas of the values
    conditions: list[int]  # the conditions that these keys may meet


class ObjectWalk:
    """The keys of the objects of a case: first those that the schema names, in its order, then other ones."""

    def __init__(self, case: Case, cases: SchemaCases, rule: WriteRule, writer: RuleWriter) -> None:
        self._case = case
        self._cases = cases
        self._rule = rule
        self._writer = writer
        self._required = set(names_of(case, "required"))
        self._conditions = [part[Extra.SOME_KEY] for part in case if Extra.SOME_KEY in part]
        self._min_keys = greatest(case, "minProperties")
        self._max_keys = least(case, "maxProperties")
        self._counted_keys = max(self._min_keys, 1) if self._max_keys is None else self._max_keys
        self._name_schemas = [part["propertyNames"] for part in case if "propertyNames" in part]
        names = dict.fromkeys((*names_of(case, "properties"), *names_of(case, "required"), *self._listed_names()))
        self._named = [self._class_of_name(name) for name in names]
        self._names = list(names)
        self._others = list(self._classes_of_others())

    @property
    def start(self) -> ObjectState:
        return ObjectState()

    def is_final(self, state: ObjectState) -> bool:
        are_met = len(state.met) == len(self._conditions)
        return state.named == len(self._names) and state.keys >= self._min_keys and are_met

    def steps(self, state: ObjectState) -> Iterator[tuple[Alternative, ObjectState]]:
        is_named = state.named < len(self._names)
        next_state = replace(state, named=state.named + is_named)
        if is_named and self._names[state.named] not in self._required:
            yield (), next_state
        if self._max_keys is not None and state.keys >= self._max_keys:
            return
        separator = (SEPARATOR,) if state.keys else ()
        keys = min(state.keys + 1, self._counted_keys)
        for key_class in [self._named[state.named]] if is_named else self._others:
            unmet = [index for index in key_class.conditions if index not in state.met]
            for chosen in _subsets(unmet):
                value = self._rule([*key_class.schemas, *(self._conditions[index][1] for index in chosen)])
                items = (*separator, key_class.terminal, AFTER_KEY, value)
                yield items, replace(next_state, keys=keys, met=state.met | set(chosen))

    def _listed_names(self) -> list[str]:
        """Return all keys that ``propertyNames`` allows, if it lists them: then no key comes twice."""
        if not self._name_schemas:
            return []
        cases = self._cases.of_all(self._name_schemas, "string")
        names: list[str] = []
        for case in cases:
            listed = self._cases.check.values(case, "string")
            if listed is None:
                return []
            names += listed
        return names

    def _class_of_name(self, name: str) -> _KeyClass:
        check = self._cases.check
        is_allowed = all(check.matches(name, schema) for schema in self._name_schemas)
        schemas = check.schemas_of_name(name, self._case) if is_allowed else [False]
        conditions = [index for index, (key, _) in enumerate(self._conditions) if check.matches(name, key)]
        return _KeyClass(string_terminal(name), schemas, conditions)

    def _classes_of_others(self) -> Iterator[_KeyClass]:
        patterns = names_of(self._case, "patternProperties")
        conditions = [{"pattern": pattern} for pattern in patterns] + [key for key, _ in self._conditions]
        if len(conditions) > _MAX_KEY_CLASSES:
            raise UntranslatableError(
                "too many patterns or conditions apply to the same keys", "patternProperties"
            )
        fixed = [*self._name_schemas, *([{"not": {"enum": self._names}}] if self._names else [])]
        for signs in product((True, False), repeat=len(conditions)):
            key_schemas = [
                schema if sign else self._cases.negation(schema)
                for schema, sign in zip(conditions, signs, strict=True)
            ]
            terminal = self._terminal_of_keys([*fixed, *key_schemas])
            if terminal is None:
                continue
            matched = {pattern for pattern, sign in zip(patterns, signs, strict=False) if sign}
            schemas = [schema for part in self._case for schema in _schemas_of_class(part, matched)]
            if False not in schemas:
                met = [index for index, sign in enumerate(signs[len(patterns) :]) if sign]
                yield _KeyClass(terminal, schemas, met)

    def _terminal_of_keys(self, schemas: list[Schema]) -> str | None:
        """Return the terminal of the keys that match all the schemas; None if there are none."""
        terminals = [string_terminal_of_case(case) for case in self._cases.of_all(schemas, "string")]
        terminals = [terminal for terminal in terminals if not is_terminal_empty(terminal)]
        return self._writer.terminal(" | ".join(f"({terminal})" for terminal in terminals)) if terminals else None


def _schemas_of_class(part: dict[str, Any], matched_patterns: set[str]) -> list[Schema]:
    """Return the schemas that a part of a case has for the values of keys that match these patterns only."""
    own = [schema for pattern, schema in part.get("patternProperties", {}).items() if pattern in matched_patterns]
    return own or [part.get("additionalProperties", True)]


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))
