"""Schemas that llguidance refuses are translated: they allow what jsonschema, which shares no code, allows."""

import json
import random
import time
from decimal import Decimal
from fractions import Fraction

import jsonschema
import pytest
from logitsmith.grammars import GrammarError, compile_grammar, random_sentence
from logitsmith.grammars.number_texts import multiples_terminal, range_terminal
from logitsmith.grammars.schema_numbers import Range

from .drawn_schemas import VALUES, SchemaMaker


def compiled(schema):
    return compile_grammar(json.dumps(schema), kind="json_schema")


def spelled(value):
    return json.dumps(value, ensure_ascii=False)


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
# name: (schema, values that it allows, values that it does not)
STEPS = {
    "not a type": ({"not": {"type": "string"}}, [1, None, {}, []], ["a"]),
    "not an integer": ({"type": "number", "not": {"type": "integer"}}, [1.5, -0.25, 100.01], [1, 0, -3, "a"]),
    "not a multiple": ({"type": "integer", "not": {"multipleOf": 6}}, [1, 2, 4, 99, -5, 10**15], [0, 6, -36]),
    "not a range": ({"type": "number", "not": {"minimum": 2, "maximum": 5}}, [1.9, 6], [2, 3, 5, "a"]),
    "not a pattern": ({"type": "string", "not": {"pattern": "^foo"}}, ["bar", "fo", ""], ["foo", "foobar"]),
    "not a list of values": ({"not": {"enum": ["a", 1, [1, 2]]}}, ["b", 2, [1], [2, 1]], ["a", 1, [1, 2]]),
    "not a length": ({"type": "string", "not": {"maxLength": 2}}, ["abc", "é😀x"], ["", "é😀"]),
    "not a key": ({"not": {"required": ["a"]}}, [{}, {"b": 1}], [1, {"a": 1}]),
    "not properties": ({"type": "object", "not": OBJECT}, [{"a": "x"}, {"b": None}], [{}, {"a": 1}, {"c": "x"}]),
    "not other properties": (
        {"type": "object", "not": {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}},
        [{"b": "x"}, {"a": "x", "b": 1, "c": []}],
        [{}, {"a": "x"}, {"b": 1}],
    ),
    "not items": ({"type": "array", "not": {"items": {"type": "integer"}}}, [["a"], [1, "a", 2]], [[], [1]]),
    "not a first item": (
        {"type": "array", "not": {"prefixItems": [{"const": 1}], "items": False}},
        [[2], [1, 1]],
        [[], [1]],
    ),
    "not not": ({"not": {"not": {"type": "integer"}}}, [1], ["a"]),
    "some values that are not others": (
        {"allOf": [{"enum": [1, 2, "a", {"b": [0.5]}]}, {"not": {"type": "string"}}]},
        [1, 2, {"b": [0.5]}],
        ["a", 3],
    ),
    "a dependency": (
        {**OBJECT, "dependentRequired": {"a": ["b"]}},
        [{}, {"b": 1}, {"a": 1, "b": 2}, {"c": 3}],
        [{"a": 1}, {"a": "x", "b": 1}],
    ),
    "a dependency of draft 7": (
        {**OBJECT, "dependencies": {"a": ["b"], "b": {"required": ["c"]}}},
        [{}, {"a": 1, "b": 2, "c": 3}, {"c": 3}],
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 2}],
    ),
    "a condition": (
        {
            "type": "object",
            "properties": {"kind": {"type": "integer"}},
            "if": {"properties": {"kind": {"const": 1}}, "required": ["kind"]},
            "then": {"required": ["x"]},
            "else": {"required": ["y"]},
        },
        [{"kind": 1, "x": 0}, {"kind": 2, "y": 0}, {"y": 1}],
        [{"kind": 1, "y": 0}, {}, {"kind": 2, "x": 1}],
    ),
    "options that overlap": ({"oneOf": [{"minimum": 2}, {"maximum": 5}]}, [1, 6, 1.5], [3, "a", 2, 5]),
    "keys of which one is there": (
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}],
        [{}, {"a": 1, "b": 1}],
    ),
    "two or more that match": (
        {"type": "array", "contains": {"type": "integer"}, "minContains": 2},
        [[1, 2], ["a", 1, 2], [1, 2, "x"]],
        [[1], [], ["a"]],
    ),
    "at most one that matches": (
        {"type": "array", "contains": {"type": "integer"}, "maxContains": 1},
        [[1], ["a", 1]],
        [[1, 2], []],
    ),
    "items that differ": (
        {"type": "array", "items": {"enum": [1, 2, "1"]}, "uniqueItems": True},
        [[], [1], ["1", 1], [1, 2, "1"]],
        [[1, 1], [4]],
    ),
    "patterns that overlap": (
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}}},
        [{"a": 1}, {"ab": 6}, {"b": 7, "x": "y"}, {"b": "s"}],
        [{"a": "s"}, {"ab": 3}, {"b": 3}],
    ),
    "a pattern that some key breaks": (
        {"type": "object", "not": {"patternProperties": {"^a": {"type": "integer"}}}},
        [{"a": "x"}, {"b": 1, "ab": None}],
        [{}, {"a": 1}, {"b": "x"}],
    ),
    "short keys": ({"type": "object", "propertyNames": {"maxLength": 2}}, [{}, {"ab": 1}], [{"abc": 1}]),
    "one of two keys": (
        {"properties": {"a": {}, "b": {}}, "additionalProperties": False, "minProperties": 1, "maxProperties": 1},
        [{"a": 1}, {"b": 1}, 1],
        [{}, {"a": 1, "b": 2}],
    ),
    "a list without threes": (
        {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"v": {"not": {"const": 3}}, "next": {"$ref": "#/$defs/node"}},
                }
            },
            "$ref": "#/$defs/node",
        },
        [{"v": 1, "next": {"v": 2}}],
        [{"v": 3}, {"v": 1, "next": {"v": 3}}],
    ),
    "a tree with keywords beside its references": (
        {
            "$defs": {"tree": {"properties": {"a": {"$ref": "#/$defs/tree", "maxProperties": 1}}}},
            "$ref": "#/$defs/tree",
        },
        [{"a": {"a": {}}}, {"a": {"b": 1}}, {"b": 1, "c": 1}],
        [{"a": {"a": {}, "b": 1}}, {"a": {"a": {"c": 1, "d": 1}}}],
    ),
    "the greatest uint64": ({"type": "integer", "maximum": 2**64 - 1}, [2**64 - 1, -(10**30)], [2**64, 0.5]),
    "a long constant": ({"const": 10**22 + 1}, [10**22 + 1], [10**22, 10**22 + 2]),
    "two of three keys": (
        {"type": "object", "propertyNames": {"enum": ["a", "b", "c"]}, "minProperties": 2},
        [{"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}],
        [{}, {"a": 1}, {"a": 1, "d": 2}],
    ),
    "one and true in turn": ({"not": {"enum": [[0], [False]]}}, [[1], [0, 0]], [[0], [False]]),
    "an option for one and one for true": (
        {"oneOf": [{"items": {"const": 1}}, {"items": {"const": True}}]},
        [[True], [1, 1]],
        [[], ["a"], [1, True]],
    ),
    "an option that is a case of another": (
        {"oneOf": [{"enum": [[True, 1], [1, 2]]}, {}]},
        [[1], 5],
        [[1, 2], [True, 1]],
    ),
    "a condition that contradicts itself": (
        {"if": {"properties": {"a": {"const": 1}}}, "then": {"properties": {"a": {"const": True}}}},
        [{"b": 1}, {"a": 2}],
        [{"a": 1}],
    ),
    "a large multiple": (
        {"type": "integer", "multipleOf": 9_999_999, "minimum": 0, "maximum": 10**9},
        [0, 9_999_999 * 7],
        [9_999_999 * 7 + 1],
    ),
    "int64": ({"type": "integer", "format": "int64"}, [2**63 - 1, -(2**63)], [2**63, -(2**63) - 1]),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "allowed", "others"), STEPS.values(), ids=STEPS)
def test_a_translation_allows_what_the_schema_allows(schema, allowed, others):
    grammar = compiled(schema)
    assert grammar.parsed.translated_schema_paths
    assert [value for value in allowed if not grammar.matches(spelled(value))] == []
    assert [value for value in others if grammar.matches(spelled(value))] == []
    if schema.get("format") == "int64":  # a format that jsonschema does not know
        return
    drafts = jsonschema.Draft7Validator, jsonschema.Draft202012Validator
    validator = drafts["dependencies" not in schema](schema)
    assert [value for value in allowed if not validator.is_valid(value)] == []
    assert [value for value in others if validator.is_valid(value)] == []


def disagreements(seed):
    """The values about which the grammar and jsonschema disagree; None if the schema is refused."""
    schema = SchemaMaker(seed).schema()
    validator = jsonschema.Draft202012Validator(schema)
    valid = [validator.is_valid(value) for value in VALUES]
    try:
        grammar = compiled(schema)
    except GrammarError as error:
        is_empty = "no JSON matches" in str(error) or "Unsatisfiable" in str(error)
        return [value for value, is_valid in zip(VALUES, valid, strict=True) if is_valid] if is_empty else None
    return [
        value for value, is_valid in zip(VALUES, valid, strict=True) if grammar.matches(spelled(value)) != is_valid
    ]


def check_drawn_schemas(seeds):
    found = {seed: disagreements(seed) for seed in seeds}
    assert {seed: values for seed, values in found.items() if values} == {}
    refused = [seed for seed, values in found.items() if values is None]
    assert len(refused) < len(found) / 7


def test_drawn_schemas():
    check_drawn_schemas(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 20_000, 500))
def test_many_drawn_schemas(start):
    check_drawn_schemas(range(start, start + 150))


class UncheckedError(Exception):
    """A sentence about which the oracle says nothing."""


def without_repeated_keys(pairs):
    table = dict(pairs)
    if len(table) < len(pairs):  # a grammar cannot tell keys that it does not name from one another
        raise UncheckedError
    return table


def short_number(text):
    """The number; long ones are no numbers for jsonschema, which divides floats."""
    if len(text) > 12 or "e" in text.lower():
        raise UncheckedError
    return float(text) if "." in text else int(text)


def check_sentences(seeds, count):
    """Check random sentences of drawn schemas, and return their number."""
    checked = 0
    for seed in seeds:
        schema = SchemaMaker(seed).schema()
        validator = jsonschema.Draft202012Validator(schema)
        try:
            compiled(schema)
        except GrammarError:
            continue
        for number in range(count):
            try:
                sentence = random_sentence(json.dumps(schema), number, kind="json_schema")
            except GrammarError:  # the search for the end of a sentence gives up, which takes seconds
                break
            try:
                hooks = {"object_pairs_hook": without_repeated_keys, "parse_float": short_number}
                value = json.loads(sentence, **hooks, parse_int=short_number)
            except UncheckedError:
                continue
            assert validator.is_valid(value), (seed, sentence)
            checked += 1
    return checked


def test_sentences_of_drawn_schemas_are_valid():
    assert check_sentences(range(300, 320), 1) > 5


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 40_000, 2_000))
def test_ten_thousand_sentences_of_drawn_schemas_are_valid(start):
    assert check_sentences(range(start + 100, start + 270), 5) >= 500


NUMBERS = [
    *map(
        Decimal, ("0", "1", "9", "10", "-1", "-10", "99", "100", "12.5", "-12.5", "0.05", "-0.05", "0.999", "3.1")
    ),
    *map(Decimal, ("1.001", "123456789012345678901", "-99999999999999999999.75")),
]


@pytest.mark.parametrize("seed", range(12))
def test_ranges_of_numbers_have_exact_texts(seed):
    draw = random.Random(seed)
    low, high = sorted(draw.sample(NUMBERS, 2))
    limits = Range(draw.choice([None, low]), draw.choice([None, high]), draw.random() < 0.5, draw.random() < 0.5)
    is_integer = draw.random() < 0.4
    grammar = compile_grammar(f"start: T\nT: {range_terminal(limits, is_integer=is_integer)}\n", kind="lark")
    near = [number + step for number in NUMBERS for step in map(Decimal, ("0", "0.01", "-0.01", "1", "-1"))]
    for number in near:
        is_above = limits.low is None or number > limits.low or (number == limits.low and limits.has_low)
        is_below = limits.high is None or number < limits.high or (number == limits.high and limits.has_high)
        text = f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}"
        is_allowed = is_above and is_below and not (is_integer and "." in text)
        assert grammar.matches(text) == is_allowed, (limits, text)


@pytest.mark.parametrize("step", ["1", "2", "3", "4", "6", "7", "8", "10", "21", "25", "1/2", "1/4", "1/100"])
def test_multiples_have_exact_texts(step):
    step = Fraction(step)
    grammar = compile_grammar(f"start: T\nT: {multiples_terminal(step)}\n", kind="lark")
    numbers = [Decimal(number) / divisor for number in (*range(-30, 130), 10**9) for divisor in (1, 4, 100)]
    for number in numbers:
        text = f"{number.normalize():f}"
        assert grammar.matches(text) == ((Fraction(number) / step).denominator == 1), text


EXPLODING = {
    "many options": {
        "oneOf": [{"properties": {f"{name}{index}": {"const": 1} for name in "abcdefgh"}} for index in range(12)]
    },
    "many options beside many": {
        "not": {"const": 1},
        "allOf": [
            {"anyOf": [{"minLength": number, "pattern": f"a{number}"} for number in range(200)]},
            {"anyOf": [{"maxLength": number, "pattern": f"b{number}"} for number in range(200)]},
        ],
    },
    "a pattern that is no regular one": {"oneOf": [{"enum": ["a", 1], "pattern": "a\\b"}, {"type": "string"}]},
    "a definition that contains itself": {
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "integer"}]}},
        "oneOf": [{"enum": [[1], ["a"]], "items": {"$ref": "#/$defs/a"}}, {"type": "array", "minItems": 2}],
    },
    "many patterns": {"patternProperties": {f"{letter}.*b": {"minimum": index}
                                            for index, letter in enumerate("abcdefghij")}},
    "many items": {"type": "array", "contains": {"const": 1}, "minContains": 100_000},
    "a chain of nots": {"$ref": "#/$defs/0", "$defs": {str(number): {"not": {"$ref": f"#/$defs/{number + 1}"}}
                                                       for number in range(300)} | {"300": {}}},
}  # fmt: skip


@pytest.mark.parametrize("schema", EXPLODING.values(), ids=EXPLODING)
def test_a_translation_that_explodes_is_refused(schema):
    start = time.process_time()
    with pytest.raises(GrammarError) as caught:
        compiled(schema)
    assert time.process_time() - start < 60
    assert caught.value.problem.startswith("/")


NOT_3 = {"not": {"const": 3}}
# Each row: a schema that is refused, and the place of the keyword at fault.
REFUSED_PLACES = {
    "the part with too many items": (
        {"properties": {"x": NOT_3, "y": {"contains": {"const": 1}, "minContains": 100_000}}},
        "/properties/y/contains",
    ),
    "the second of two patterns": (
        {"properties": {"x": {"not": {"pattern": "a"}}, "y": {"not": {"pattern": "a\\b"}}}},
        "/properties/y/not/pattern",
    ),
    "the second of two lists": (
        {"properties": {"x": {"items": {"enum": [1]}, "uniqueItems": True}, "y": {"uniqueItems": True}}},
        "/properties/y/uniqueItems",
    ),
    "a format": ({"properties": {"x": NOT_3, "y": {"not": {"format": "uuid"}}}}, "/properties/y/not/format"),
    "a definition": (
        {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"not": {"not": {"$ref": "#/$defs/a"}}}}},
        "/properties/x/$ref",
    ),
    "options that are too large together": (
        {"oneOf": [{"type": "string", "pattern": f"^.*{number}.*$"} for number in range(40)]},
        "/oneOf",
    ),
}


@pytest.mark.parametrize(("schema", "place"), REFUSED_PLACES.values(), ids=REFUSED_PLACES)
def test_a_refusal_names_the_place(schema, place):
    with pytest.raises(GrammarError) as caught:
        compiled(schema)
    assert caught.value.problem.startswith(f"{place}: ")


# Each row: a pattern, and strings, some of which match it.
PATTERNS = {
    "a property": (r"^\p{L}+$", ["é", "Ж1", "", "ab"]),
    "not a property": (r"^\P{L}$", ["1", "a", "é", "\n"]),
    "a property in a class": (r"^[\p{Lu}\d]$", ["É", "é", "3"]),
    "a script": (r"^\p{Greek}$", ["\u03b1", "a"]),
    "any character": (r"[\s\S]", ["", "a", "\n", "\u3000"]),
    "neither of two": (r"^[^\S\n]+$", [" ", "\n", "\t", "x", "\u2003"]),
    "blanks": (r"^\s\S$", [" a", "  ", "\u00a0b"]),
    "a named group": (r"^(?<x>a)[(?<x>]$", ["ab", "a", "a?", "a("]),
    "a code point": (r"^\u{41}\x{42}$", ["AB", "A", "uB"]),
    "an escaped bracket": (r"^\[\p{Lu}[\]\p{Ll}]$", ["[A]", "[Ab", "[A[", "Ab"]),
}


@pytest.mark.parametrize(("pattern", "strings"), PATTERNS.values(), ids=PATTERNS)
def test_a_translated_pattern_is_that_of_llguidance(pattern, strings):
    plain, other = (
        compiled({"type": "string", **keywords})
        for keywords in ({"pattern": pattern}, {"not": {"pattern": pattern}})
    )
    texts = [json.dumps(string, ensure_ascii=False) for string in strings]
    found = [plain.matches(text) for text in texts]
    assert {True, False} == set(found)
    assert [other.matches(text) for text in texts] == [not is_found for is_found in found]


def test_keys_match_in_any_order():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"properties": {"x": {}, "y": {}}}}}
    grammar = compiled(schema)
    assert grammar.matches('{"b": {"y": 1, "x": [1, {"q": 1.5e1}]}, "z": "\\u0041", "a": 1}')
    assert grammar.in_key_order('{"b": 2, "a": 1}') == '{"a": 1, "b": 2}'
    assert not grammar.matches('{"b": 2, "a": "x"}')
    assert not grammar.matches('{"b": 2, "a": 1')
