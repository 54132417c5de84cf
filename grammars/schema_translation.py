"""The translation of JSON Schemas that llguidance refuses, to llguidance's dialect of Lark.

Schemas that apply together are divided into cases (`schema_cases`), and each case is written as rules: an object or
an array as a walk through states, which know how many keys or items there were and which conditions are met. What
llguidance takes itself stays a JSON Schema inside of the grammar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain, combinations, product
from typing import Any, NamedTuple

from .json_strings import (
    NO_STRING,
    is_terminal_empty,
    string_terminal,
    terminal_of_text,
)
from .rule_writer import Alternative, RuleName, RuleWriter
from .schema_case import JSON_TYPES, Case, Extra, Schema, UntranslatableError
from .schema_case_check import CaseCheck, matches_format, string_terminal_of_case
from .schema_cases import SchemaCases
from .schema_number_cases import number_alternatives
from .schema_numbers import exact_value, is_number, plain_text
from .schema_values import Target, array_items, comparable_text

_SEPARATOR = '", "'
_MAX_KEY_CLASSES = 6  # maximum number of patterns and conditions of the keys of one object
_MAX_STATES = 3_000
_MAX_UNIQUE_VALUES = 10
_MAX_COUNTED_ITEMS = 300

# Writes schemas that all apply as an expression of Lark; None if llguidance refuses them
WriteSchemas = Callable[[Sequence[Schema]], str | None]


class _Contains(NamedTuple):
    """A condition on the number of items that match a schema."""

    schema: Schema
    min_count: int
    max_count: int | None
    start: int = 0  # index of the first item that counts


class SchemaTranslation:
    """The rules of one JSON Schema."""

    # ``is_plain``: whether llguidance takes a schema as it is.

    def __init__(
        self, target: Target, is_plain: Callable[[Schema], bool], write_schemas: WriteSchemas
    ) -> None:
        self._is_plain = is_plain
        self._write_schemas = write_schemas
        self._check = CaseCheck(target, matches_format)
        self._cases = SchemaCases(target, self._check)
        self._writer = RuleWriter()
        self._names: dict[tuple[int, ...], RuleName] = {}
        self._kept: list[Schema] = []  # schemas whose ids are keys

    def lark(self, schema: Schema) -> str | None:
        """Return a grammar of the JSON that matches the schema; None if there is none."""
        return self._writer.lark(self._rule([schema]))

    def _rule(self, schemas: Sequence[Schema]) -> RuleName:
        """Return the rule of the JSON that matches all the schemas."""
        distinct = list({id(schema): schema for schema in schemas if schema is not True and schema != {}}.values())
        if any(schema is False for schema in distinct):
            distinct = [False]
        key = tuple(map(id, distinct))
        if key not in self._names:
            self._kept += distinct
            self._names[key] = self._writer.new_name("v")
            self._writer.set(self._names[key], list(self._alternatives(distinct)))
        return self._names[key]

    def _alternatives(self, schemas: list[Schema]) -> Iterator[Alternative]:
        """Yield the ways to write JSON that matches all the schemas."""
        if False in schemas:
            return
        if all(map(self._is_plain, schemas)):
            text = self._write_schemas(schemas)
            if text is not None:
                if text != NO_STRING:
                    yield (text,)
                return
        free_types = []
        for type_name in JSON_TYPES:
            cases = self._cases.of_all(schemas, type_name)
            if () in cases:
                free_types.append(type_name)
                continue
            for case in cases:
                yield from self._of_case(case, type_name)
        if free_types:
            yield (self._write({"type": free_types}),)

    def _of_case(self, case: Case, type_name: str) -> Iterator[Alternative]:
        for part in case:
            for keyword in ("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"):
                if keyword in part:
                    raise UntranslatableError(f"{keyword}: no exact form is known")
        values = self._check.values(case, type_name)
        if values is not None:
            for value in values:
                yield self._value_items(value)
            return
        match type_name:
            case "number":
                for numbers in number_alternatives(case):
                    yield (self._write(numbers) if isinstance(numbers, dict) else self._writer.terminal(numbers),)
            case "string":
                yield from self._of_string(case)
            case "array":
                yield (self._array_rule(case),)
            case "object":
                yield from self._of_object(case)

    def _write(self, schema: Schema) -> str:
        text = self._write_schemas([schema])
        if text is None:
            raise UntranslatableError("a part of the translation is refused")
        return text

    # Values

    def _value_items(self, value: Any) -> Alternative:
        """Return a value as it is written."""
        if isinstance(value, str):
            return (string_terminal(value),)
        if not isinstance(value, list | dict):
            text = plain_text(exact_value(value)) if is_number(value) else json.dumps(value)
            return (terminal_of_text(text),)
        opening, closing = "[]" if isinstance(value, list) else "{}"
        items: list[str] = [f'"{opening}"']
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for index, (key, member) in enumerate(members):
            if index:
                items.append(_SEPARATOR)
            if isinstance(value, dict):
                items.append(_key_terminal(key))
            items += self._value_items(member)
        return (*items, f'"{closing}"')

    # Strings

    def _of_string(self, case: Case) -> Iterator[Alternative]:
        has_extra = any(isinstance(key, Extra) for part in case for key in part)
        if not has_extra:
            text = self._write_schemas([{"type": "string", **part} for part in case])
            if text is not None and text != NO_STRING:
                yield (text,)
            return
        terminal = string_terminal_of_case(case)
        if not is_terminal_empty(terminal):
            yield (self._writer.terminal(terminal),)

    # Arrays

    def _array_rule(self, case: Case) -> RuleName:
        parts = [array_items(part) for part in case]
        prefix_length = max((len(prefix) for prefix, _ in parts), default=0)
        min_count = max((part.get("minItems", 0) for part in case), default=0)
        max_counts = [part["maxItems"] for part in case if "maxItems" in part]
        max_count = min(max_counts) if max_counts else None
        conditions = list(_contains_conditions(case))
        if any(Extra.NOT_UNIQUE in part for part in case):
            raise UntranslatableError("uniqueItems: arrays with equal items have no exact form")
        last_start = max((condition.start for condition in conditions), default=0)
        counted = max(prefix_length, min_count, last_start) if max_count is None else max_count
        counted = max(counted, 1)
        if counted > _MAX_COUNTED_ITEMS:
            keyword = "minItems" if max_count is None else "maxItems"
            raise UntranslatableError(f"{keyword}: {counted:,} items are too many beside other keywords")
        is_unique = any(part.get("uniqueItems") for part in case)
        closing = '"]"'

        def schemas_at(index: int) -> list[Schema]:
            return [prefix[index] if index < len(prefix) else rest for prefix, rest in parts]

        def steps(state: _ArrayState) -> Iterator[tuple[Alternative, _ArrayState]]:
            if max_count is not None and state.count >= max_count:
                return
            separator = (_SEPARATOR,) if state.count else ()
            next_count = min(state.count + 1, counted)
            schemas = schemas_at(state.count)
            for extra_schemas, counts in self._contains_steps(conditions, state):
                if not is_unique:
                    item = self._rule([*schemas, *extra_schemas])
                    yield (*separator, item), _ArrayState(next_count, counts)
                    continue
                for text, value in self._unused_values([*schemas, *extra_schemas], state.used):
                    used = state.used | {text}
                    yield (*separator, *self._value_items(value)), _ArrayState(next_count, counts, used)

        def is_final(state: _ArrayState) -> bool:
            reached = all(
                count >= condition.min_count for count, condition in zip(state.counts, conditions, strict=True)
            )
            return state.count >= min_count and reached

        start = _ArrayState(0, (0,) * len(conditions))
        name = self._writer.new_name("a")
        self._writer.set(name, [('"["', self._walk("i", start, steps, is_final, closing))])
        return name

    def _contains_steps(
        self, conditions: list[_Contains], state: _ArrayState
    ) -> Iterator[tuple[list[Schema], tuple[int, ...]]]:
        """Yield the ways in which the next item counts: schemas that it matches, and the counts after it."""
        choices: list[list[tuple[list[Schema], int]]] = []
        for condition, count in zip(conditions, state.counts, strict=True):
            if state.count < condition.start:
                choices.append([([], count)])
            elif condition.max_count is not None:
                options: list[tuple[list[Schema], int]] = [([self._cases.negation(condition.schema)], count)]
                if count < condition.max_count:
                    options.append(([condition.schema], count + 1))
                choices.append(options)
            elif count < condition.min_count:
                choices.append([([], count), ([condition.schema], count + 1)])
            else:
                choices.append([([], count)])
        for combination in product(*choices):
            schemas = [schema for added, _ in combination for schema in added]
            yield schemas, tuple(count for _, count in combination)

    def _unused_values(self, schemas: Sequence[Schema], used: frozenset[str]) -> list[tuple[str, Any]]:
        """Return the values that match the schemas and were not used, each with a text that equal values share."""
        values: dict[str, Any] = {}
        for type_name in JSON_TYPES:
            for case in self._cases.of_all(schemas, type_name):
                case_values = self._check.values(case, type_name)
                if case_values is None:
                    raise UntranslatableError("uniqueItems: no exact form is known unless the items are listed")
                values |= {comparable_text(value): value for value in case_values}
        if len(values) > _MAX_UNIQUE_VALUES:
            raise UntranslatableError(f"uniqueItems: more than {_MAX_UNIQUE_VALUES} different items are too many")
        return [(text, value) for text, value in values.items() if text not in used]

    # Objects

    def _of_object(self, case: Case) -> Iterator[Alternative]:
        names = list(dict.fromkeys(name for part in case for name in part.get("properties", ())))
        required = list(dict.fromkeys(name for part in case for name in part.get("required", ())))
        names += [name for name in required if name not in names]
        keys = [part[Extra.SOME_KEY] for part in case if Extra.SOME_KEY in part]
        min_count = max((part.get("minProperties", 0) for part in case), default=0)
        max_counts = [part["maxProperties"] for part in case if "maxProperties" in part]
        max_count = min(max_counts) if max_counts else None
        counted = max(min_count, 1) if max_count is None else max_count
        name_schemas = [part["propertyNames"] for part in case if "propertyNames" in part]
        values = {}
        for name in names:
            is_allowed = all(self._check.matches(name, schema) for schema in name_schemas)
            values[name] = self._check.schemas_of_name(name, case) if is_allowed else [False]
        witnesses = {
            name: [index for index, (key_schema, _) in enumerate(keys) if self._check.matches(name, key_schema)]
            for name in names
        }
        classes = list(self._key_classes(case, names, name_schemas, [key for key, _ in keys]))

        def meets(schemas: list[Schema], possible: Sequence[int], met: frozenset[int]) -> Iterator[Any]:
            """Yield rules of a value, and the conditions that are met after it."""
            open_conditions = [index for index in possible if index not in met]
            for chosen in _subsets(open_conditions):
                added = [keys[index][1] for index in chosen]
                yield self._rule([*schemas, *added]), met | frozenset(chosen)

        def steps(state: _ObjectState) -> Iterator[tuple[Alternative, _ObjectState]]:
            is_full = max_count is not None and state.count >= max_count
            separator = (_SEPARATOR,) if state.count else ()
            next_count = min(state.count + 1, counted)
            if state.index < len(names):
                name = names[state.index]
                if name not in required:
                    yield (), state._replace(index=state.index + 1)
                if not is_full:
                    key = _key_terminal(name)
                    for value, met in meets(values[name], witnesses[name], state.met):
                        yield (*separator, key, value), _ObjectState(state.index + 1, next_count, met)
                return
            if is_full:
                return
            for key_class in classes:
                key = key_class.terminal
                for value, met in meets(key_class.schemas, key_class.conditions, state.met):
                    yield (*separator, key, value), _ObjectState(state.index, next_count, met)

        def is_final(state: _ObjectState) -> bool:
            return state.index == len(names) and state.count >= min_count and len(state.met) == len(keys)

        yield '"{"', self._walk("k", _ObjectState(0, 0, frozenset()), steps, is_final, '"}"')

    def _key_classes(
        self, case: Case, names: list[str], name_schemas: list[Schema], conditions: list[Schema]
    ) -> Iterator[_KeyClass]:
        """Yield the classes of the keys that are not named: keys of one class have values of the same schemas."""
        patterns = list(dict.fromkeys(pattern for part in case for pattern in part.get("patternProperties", ())))
        if len(patterns) + len(conditions) > _MAX_KEY_CLASSES:
            raise UntranslatableError("patternProperties: too many patterns or conditions apply to the same keys")
        other_keys: list[Schema] = [{"not": {"enum": names}}] if names else []
        pattern_schemas = [{"pattern": pattern} for pattern in patterns]
        for signs in product((True, False), repeat=len(patterns) + len(conditions)):
            key_schemas = [*name_schemas, *other_keys]
            for schema, sign in zip((*pattern_schemas, *conditions), signs, strict=True):
                key_schemas.append(schema if sign else self._cases.negation(schema))
            self._kept += key_schemas
            terminals = [string_terminal_of_case(key) for key in self._cases.of_all(key_schemas, "string")]
            terminals = [terminal for terminal in terminals if not is_terminal_empty(terminal)]
            if not terminals:
                continue
            matched = {pattern for pattern, sign in zip(patterns, signs, strict=False) if sign}
            schemas: list[Schema] = []
            for part in case:
                own = [schema for name, schema in part.get("patternProperties", {}).items() if name in matched]
                schemas += own or [part.get("additionalProperties", True)]
            if any(schema is False for schema in schemas):
                continue
            met = [index for index, sign in enumerate(signs[len(patterns) :]) if sign]
            terminal = " | ".join(f"({terminal})" for terminal in terminals)
            yield _KeyClass(f'{self._writer.terminal(terminal)} ": "', schemas, met)

    def _walk(
        self,
        prefix: str,
        start: Any,
        steps: Callable[[Any], Iterator[tuple[Alternative, Any]]],
        is_final: Callable[[Any], bool],
        closing: str,
    ) -> RuleName:
        """Return the rule of the texts from a state to the closing bracket. Each state has a rule."""
        rules: dict[Hashable, RuleName] = {start: self._writer.new_name(prefix)}
        pending = [start]
        while pending:
            state = pending.pop()
            alternatives: list[Alternative] = [(closing,)] if is_final(state) else []
            repeated: list[Alternative] = []
            for items, next_state in steps(state):
                if next_state == state:
                    repeated.append(items)
                    continue
                if next_state not in rules:
                    rules[next_state] = self._writer.new_name(prefix)
                    pending.append(next_state)
                    if len(rules) > _MAX_STATES:
                        raise UntranslatableError("this part needs too many rules")
                alternatives.append((*items, rules[next_state]))
            self._writer.set(rules[state], alternatives, repeated)
        return rules[start]


class _ArrayState(NamedTuple):
    count: int  # number of items, up to the greatest that matters
    counts: tuple[int, ...]  # the number of items that meet each condition
    used: frozenset[str] = frozenset()  # the items as text, if they must be different


class _ObjectState(NamedTuple):
    index: int  # number of named keys that were written or left out
    count: int  # number of keys, up to the greatest that matters
    met: frozenset[int]  # the conditions on keys that are met


class _KeyClass(NamedTuple):
    terminal: str  # the keys, each with its colon
    schemas: list[Schema]  # the schemas of the values
    conditions: list[int]  # the conditions on keys that these keys may meet


def _contains_conditions(case: Case) -> Iterator[_Contains]:
    for part in case:
        if "contains" in part:
            min_count = part.get("minContains", 1)
            max_count = part.get("maxContains")
            if min_count > 0 or max_count is not None:
                yield _Contains(part["contains"], min_count, max_count)
        if Extra.LATER_ITEM in part:
            start, schema = part[Extra.LATER_ITEM]
            yield _Contains(schema, 1, None, start)


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))


def _key_terminal(name: str) -> str:
    return f'{string_terminal(name)} ": "'
