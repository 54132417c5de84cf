"""The translation of JSON Schemas that llguidance refuses, to llguidance's dialect of Lark.

Schemas that apply together are divided into cases (`schema_cases`), and each case is written as rules, arrays and
objects as walks through states (`schema_walks`). What llguidance takes itself stays a JSON Schema inside of the
grammar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .gbnf.lark import NO_TEXT
from .json_strings import is_terminal_empty, string_terminal, terminal_of_text
from .rule_writer import Alternative, RuleName, RuleWriter
from .schema_case import Case, Extra, Schema, UntranslatableError
from .schema_case_check import string_terminal_of_case
from .schema_cases import UNTRANSLATED, SchemaCases
from .schema_keywords import JSON_TYPES, Resolve, irregular_part
from .schema_number_cases import number_alternatives
from .schema_numbers import exact_value, is_number, plain_text
from .schema_walks import AFTER_KEY, SEPARATOR, ArrayWalk, ObjectWalk, walk_rule

# Writes schemas that all apply as an expression of Lark; None if llguidance refuses them
WriteSchemas = Callable[[Sequence[Schema]], str | None]


class SchemaTranslation:
    """The rules of one JSON Schema."""

    # ``is_plain``: whether llguidance takes a schema as it is.

    def __init__(self, target: Resolve, is_plain: Callable[[Schema], bool], write_schemas: WriteSchemas) -> None:
        self._is_plain = is_plain
        self._write_schemas = write_schemas
        self._cases = SchemaCases(target)
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
            try:
                alternatives = list(self._alternatives(distinct))
            except UntranslatableError as error:
                error.schemas += distinct
                raise
            self._writer.add(self._names[key], alternatives)
        return self._names[key]

    def _alternatives(self, schemas: list[Schema]) -> Iterator[Alternative]:
        """Yield the ways to write JSON that matches all the schemas."""
        if False in schemas:
            return
        if all(map(self._is_plain, schemas)):
            text = self._write_schemas(schemas)
            if text is not None:
                if text != NO_TEXT:
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
        untranslated = next((keyword for part in case for keyword in UNTRANSLATED if keyword in part), None)
        if untranslated is not None:
            raise UntranslatableError("no exact form is known", untranslated)
        values = self._cases.check.values(case, type_name)
        if values is not None:
            for value in values:
                yield self._value_items(value)
            return
        match type_name:
            case "number":
                yield from self._of_number(case)
            case "string":
                yield from self._of_string(case)
            case "array":
                array = ArrayWalk(case, self._cases, self._rule, self._value_items)
                yield '"["', walk_rule(array, array.start, '"]"', self._writer)
            case "object":
                walk = ObjectWalk(case, self._cases, self._rule, self._writer)
                yield '"{"', walk_rule(walk, walk.start, '"}"', self._writer)

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
                items.append(SEPARATOR)
            if isinstance(value, dict):
                items += (string_terminal(key), AFTER_KEY)
            items += self._value_items(member)
        return (*items, f'"{closing}"')

    # Numbers and strings

    def _of_number(self, case: Case) -> Iterator[Alternative]:
        for numbers in number_alternatives(case):
            if isinstance(numbers, str):
                if not is_terminal_empty(numbers):
                    yield (self._writer.terminal(numbers),)
            elif (text := self._write(numbers)) != NO_TEXT:
                yield (text,)

    def _of_string(self, case: Case) -> Iterator[Alternative]:
        irregular = next((found for part in case if (found := irregular_part(part.get("pattern", "")))), None)
        if irregular is not None:
            raise UntranslatableError(f"{irregular} is not supported", "pattern")
        has_extra = any(isinstance(key, Extra) for part in case for key in part)
        if not has_extra:
            text = self._write_schemas([{"type": "string", **part} for part in case])
            if text is not None and text != NO_TEXT:
                yield (text,)
            return
        terminal = string_terminal_of_case(case)
        if not is_terminal_empty(terminal):
            yield (self._writer.terminal(terminal),)
