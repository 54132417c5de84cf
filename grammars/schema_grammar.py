"""From a JSON Schema to a grammar: as it is where llguidance takes it, otherwise translated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, islice
from typing import Any, NamedTuple

from .errors import LENIENT_HINT, GrammarError, first_line
from .gbnf.lark import NO_TEXT
from .json_schema import (
    ONE_LINE_STYLE,
    check_common_multiples,
    json_schema_to_lark,
    parse_json_schema,
    prepare,
    remove_unsupported,
    unsupported_keywords,
)
from .schema_case import Schema, UntranslatableError
from .schema_cases import SchemaCases, listed_values
from .schema_errors import engine_error, find_invalid_part, loosen, schema_engine_error
from .schema_keywords import IDENTIFIERS, shown
from .schema_numbers import inexact_keywords
from .schema_parts import children, walk_from, walk_schema, with_subschemas
from .schema_references import References, SchemaPart, find_target
from .schema_translation import SchemaTranslation
from .schema_values import comparable_text

_START = "start: "
_UNSATISFIABLE = "Unsatisfiable schema"  # the beginning of llguidance's message


class NoJsonError(GrammarError):
    """No JSON matches the schema."""


class SchemaGrammar(NamedTuple):
    """A JSON Schema as a grammar."""

    schema: dict[str, Any]  # without what was ignored
    lark: str  # the JSON on one line
    lenient_lark: str | None  # JSON with any whitespace; None if the schema was translated
    ignored_paths: tuple[str, ...]
    translated_paths: tuple[str, ...]  # the JSON pointers of the keywords that made a translation necessary


def compile_schema(source: str, *, is_lenient: bool, is_refused: bool = False) -> SchemaGrammar:
    """Return a JSON Schema as a grammar. Raises ``GrammarError``."""
    # ``is_refused``: llguidance has refused the grammar, so the parts that it refuses are found and translated.
    schema = parse_json_schema(source)
    options = schema.get("x-guidance", {})
    is_lenient = is_lenient or options.get("lenient") is True
    references = References(schema)
    ignored_paths = prepare(schema, references, is_lenient=is_lenient)
    if options.get("coerce_one_of") is True:
        ignored_paths += _read_as_any_of(schema)
    else:
        replace_exclusive_options(schema, SchemaCases(references.target))
    parts = TranslatedParts(schema)
    if is_refused and not parts.parts:
        parts = TranslatedParts(schema, _refused_parts(schema))
    if parts.parts:
        try:
            lark = translate_schema(schema, parts, references)
        except GrammarError:
            if not is_lenient:
                raise
        else:
            paths = tuple(f"{part.pointer}/{keyword}" for part, keyword in parts.parts)
            return SchemaGrammar(schema, lark, None, tuple(ignored_paths), paths)
    ignored_paths += remove_unsupported(schema)
    if is_lenient:
        ignored_paths += [*_read_as_any_of(schema), *loosen(schema)]
    strict_lark, lenient_lark = (json_schema_to_lark(schema, style) for style in (ONE_LINE_STYLE, {}))
    return SchemaGrammar(schema, strict_lark, lenient_lark, tuple(ignored_paths), ())


def _read_as_any_of(schema: dict[str, Any]) -> list[str]:
    """Write ``anyOf`` for each ``oneOf``, and return the paths."""
    parts = [part for part in walk_schema(schema) if "oneOf" in part.schema]
    for part in parts:
        use_any_of(part.schema)
    return [f"{part.pointer}/oneOf (read as anyOf)" for part in parts]


# Parts of llguidance's messages about schemas that can be translated
_TRANSLATABLE = (
    "circular references with sibling keys",
    "are not disjoint",
    "min/maxProperties only supported",
    _UNSATISFIABLE,
)


def _refused_parts(schema: dict[str, Any]) -> list[SchemaPart]:
    """Return the parts that llguidance refuses because of keywords that apply together."""
    message = schema_engine_error(schema)
    if not any(text in message for text in _TRANSLATABLE):
        return []
    # Its message is about one part. Other references that lead back to themselves may have keywords beside them.
    joined = [part for part in walk_schema(schema) if "$ref" in part.schema and len(part.schema) > 1]
    recursive = [part for part in joined if _leads_back(schema, part)]
    return [find_invalid_part(schema, message)[0], *recursive]


def _leads_back(schema: dict[str, Any], part: SchemaPart) -> bool:
    """Return True if the target of a part's reference contains the target again."""
    target = find_target(schema, part.schema["$ref"])
    if target is None:
        return False
    below = (inner for child in children(schema, target) for inner in walk_from(schema, child))
    return any(inner.schema is target.schema for inner in below)


_MAX_PAIRS = 3_000  # of options of one ``oneOf``


def replace_exclusive_options(schema: dict[str, Any], cases: SchemaCases) -> None:
    """Write ``anyOf`` for each ``oneOf`` of which no two options match the same JSON."""
    for part in [part.schema for part in walk_schema(schema) if part.schema.get("oneOf")]:
        others = {keyword: value for keyword, value in part.items() if keyword != "oneOf"}
        if _are_different_values(part["oneOf"]) or _exclude_each_other(part["oneOf"], others, cases):
            use_any_of(part)


def _are_different_values(options: Sequence[Schema]) -> bool:
    """Return True if all options list values, and no two options list the same one."""
    values: list[str] = []
    for option in options:
        listed = listed_values(option) if isinstance(option, dict) else None
        if listed is None:
            return False
        values += {comparable_text(value) for value in listed}
    return len(set(values)) == len(values)


def _exclude_each_other(options: Sequence[Schema], others: dict[str, Any], cases: SchemaCases) -> bool:
    pairs = list(islice(combinations(options, 2), _MAX_PAIRS + 1))
    return len(pairs) <= _MAX_PAIRS and all(
        cases.exclude_each_other([others, first], second) for first, second in pairs
    )


def use_any_of(schema: dict[str, Any]) -> None:
    """Write the options of ``oneOf`` as ``anyOf``."""
    options = {"anyOf": schema.pop("oneOf")}
    if "anyOf" in schema:
        schema["allOf"] = [*schema.get("allOf", []), options]
    else:
        schema |= options


class TranslatedParts:
    """The parts of a schema that llguidance does not take."""

    def __init__(self, schema: dict[str, Any], others: Sequence[SchemaPart] = ()) -> None:
        self._schema = schema
        self._is_plain_by_id: dict[int, bool] = {}
        self._is_refused_by_id: dict[int, bool] = {}
        self._kept: list[Schema] = []  # schemas whose ids are keys
        self.parts: list[tuple[SchemaPart, str]] = []  # each with a keyword
        for part in walk_schema(schema):
            keyword = refused_keyword(part.schema)
            self._is_refused_by_id[id(part.schema)] = bool(keyword)
            if keyword:
                self.parts.append((part, keyword))
        for part in others:
            keyword = next((name for name in ("$ref", "allOf", "patternProperties") if name in part.schema), "")
            self._is_refused_by_id[id(part.schema)] = True
            self.parts.append((part, keyword))

    def is_plain(self, schema: Schema) -> bool:
        """Return True if llguidance takes a schema and all that it contains or refers to."""
        if not isinstance(schema, dict):
            return True
        if id(schema) not in self._is_plain_by_id:
            self._kept.append(schema)
            parts = walk_from(self._schema, SchemaPart("", schema))
            self._is_plain_by_id[id(schema)] = not any(self._is_refused(part.schema) for part in parts)
        return self._is_plain_by_id[id(schema)]

    def _is_refused(self, schema: dict[str, Any]) -> bool:
        if id(schema) not in self._is_refused_by_id:  # a schema that the translation has made
            self._kept.append(schema)
            self._is_refused_by_id[id(schema)] = bool(refused_keyword(schema))
        return self._is_refused_by_id[id(schema)]


def refused_keyword(schema: dict[str, Any]) -> str:
    """Return a keyword that llguidance does not take in a schema; empty if there is none."""
    keywords = unsupported_keywords(schema) + inexact_keywords(schema)
    if keywords:
        return keywords[0]
    if "oneOf" in schema:
        return "oneOf"
    patterns = schema.get("patternProperties", {})
    if len(patterns) > 1 and _overlap(list(patterns)):
        return "patternProperties"
    for keyword in ("minProperties", "maxProperties"):
        if keyword in schema and _refuses_counts(schema):
            return keyword
    return ""


def _overlap(patterns: Sequence[str]) -> bool:
    return bool(schema_engine_error({"patternProperties": {pattern: {"type": "null"} for pattern in patterns}}))


def _refuses_counts(schema: dict[str, Any]) -> bool:
    counts: dict[str, Any] = {
        keyword: schema[keyword] for keyword in ("minProperties", "maxProperties") if keyword in schema
    }
    names = dict.fromkeys(schema.get("properties", {}), True)
    return bool(
        schema_engine_error(
            {"type": "object", "properties": names, "required": schema.get("required", []), **counts}
        )
    )


def translate_schema(schema: dict[str, Any], parts: TranslatedParts, references: References) -> str:
    """Return a Lark grammar of the JSON on one line that matches a schema. Raises ``GrammarError``."""

    def write(schemas: Sequence[Schema]) -> str | None:
        standalone = Standalone(references.target).schema(schemas)
        try:
            check_common_multiples(standalone)
            lark = json_schema_to_lark(standalone, ONE_LINE_STYLE)
        except GrammarError as error:
            raise UntranslatableError(str(error)) from None
        message = engine_error(lark)
        if message.startswith(_UNSATISFIABLE):
            return NO_TEXT
        if message and len(schemas) > 1:
            return None
        if message:
            raise UntranslatableError(first_line(message))
        return lark.removeprefix(_START).strip()

    translation = SchemaTranslation(references.target, parts.is_plain, write)
    try:
        lark = translation.lark(schema)
    except UntranslatableError as error:
        raise translation_error(schema, parts, error) from None
    except RecursionError:
        raise translation_error(schema, parts, UntranslatableError("it is nested too deeply")) from None
    if lark is None:
        raise NoJsonError("no JSON matches the schema")
    return lark


# what to write instead of a keyword that has no exact form
_ADVICE = {
    "uniqueItems": "list the allowed items in enum, or ",
    "unevaluatedProperties": "name the properties and write additionalProperties, or ",
    "unevaluatedItems": "write items, or ",
    "$dynamicRef": "write $ref, or ",
    "$recursiveRef": "write $ref, or ",
    "multipleOf": "limit the numbers with minimum and maximum to at most 2,000 multiples, or ",
    "minLength": "write a smaller number, or ",
    "minItems": "write a smaller number, or ",
    "pattern": "write the pattern without look-around, back-references and word borders, or ",
}


def translation_error(schema: dict[str, Any], parts: TranslatedParts, error: UntranslatableError) -> GrammarError:
    """Return the error for a part that has no exact translation."""
    place = _place_of(schema, parts, error)
    problem = error.problem if place else f"no exact form is known: {error.problem}"
    part, keyword = place or parts.parts[0]
    value = f" (here {shown(part.schema[keyword])})" if keyword in part.schema else ""
    advice = (_ADVICE.get(keyword, ""), *LENIENT_HINT)
    return GrammarError(f"{part.pointer}/{keyword}: {problem}{value}", advice=tuple(filter(None, advice)))


def _place_of(
    schema: dict[str, Any], parts: TranslatedParts, error: UntranslatableError
) -> tuple[SchemaPart, str] | None:
    """Return the part at fault and its keyword; None if they are not known."""
    keywords = ("pattern", "patternProperties") if error.keyword == "pattern" else (error.keyword,)
    for failed in (*error.schemas, schema):
        part = next((part for part in walk_schema(schema) if part.schema is failed), None)
        if part is None:  # the translation has made this schema
            continue
        inner = list(walk_from(schema, part))
        places = [(each, keyword) for each in inner for keyword in keywords if keyword in each.schema]
        if not error.keyword:  # the keyword that made the translation necessary
            places = [place for place in parts.parts if any(each.schema is place[0].schema for each in inner)]
        if places:
            return places[0]
    return None


_KEYWORDS_OF_A_ROOT = (*IDENTIFIERS, "$defs", "definitions", "x-guidance")


class Standalone:
    """Copies of parts of a schema that have the targets of their references with them."""

    def __init__(self, target: Callable[[dict[str, Any]], Any]) -> None:
        self._target = target
        self._definitions: dict[str, Schema] = {}
        self._names: dict[int, str] = {}

    def schema(self, schemas: Sequence[Schema]) -> dict[str, Any]:
        """Return one schema that means that all these apply."""
        if not schemas:
            return {}
        copies = [self._copy(schema) for schema in schemas]
        whole = copies[0] if len(copies) == 1 and isinstance(copies[0], dict) else {"allOf": copies}
        return {**whole, "$defs": self._definitions} if self._definitions else whole

    def _copy(self, schema: Schema) -> Schema:
        if not isinstance(schema, dict):
            return schema
        keywords = {key: value for key, value in schema.items() if key not in _KEYWORDS_OF_A_ROOT}
        copy = with_subschemas(keywords, self._copy)
        if "$ref" in schema:
            copy["$ref"] = f"#/$defs/{self._name(self._target(schema))}"
        return copy

    def _name(self, target: Schema) -> str:
        if id(target) not in self._names:
            self._names[id(target)] = f"d{len(self._names)}"
            self._definitions[self._names[id(target)]] = self._copy(target)
        return self._names[id(target)]
