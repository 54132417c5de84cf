"""JSON Schemas of real life: what is not supported is refused with its path, or left out and listed."""

import copy
import json

import jsonschema
import pytest
from logitsmith.grammars import GrammarError, compile_grammar, random_sentence, resolve_grammar
from logitsmith.presets import preset_json_schema

REFUSED = {
    "items that differ": (
        {"allOf": [{"uniqueItems": True}]},
        "/allOf/0/uniqueItems: no exact form is known unless the items are listed (here true)",
    ),
    "a key with a slash": ({"properties": {"a/b~": {"uniqueItems": True}}}, "/properties/a~1b~0/uniqueItems: "),
    "behind a reference": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"uniqueItems": True}}},
        "/$defs/a/uniqueItems: ",
    ),
    "an empty enum": (
        {"type": "array", "items": {"enum": []}, "minItems": 1},
        "/items: Unsatisfiable schema: enum is empty",
    ),
    "an empty anyOf": ({"anyOf": []}, "Unsatisfiable schema: anyOf is empty"),
    "a type": ({"items": {"type": "strin"}}, "/items/type: unknown type 'strin'; did you mean string?"),
    "a type of several": ({"type": ["x", "null"]}, "/type: unknown type 'x'; known: object, array, string"),
    "a pattern": ({"items": {"type": "string", "pattern": "a("}}, "/items/pattern: 'a(': unclosed group"),
    "a multiple beyond 32 bits": ({"multipleOf": 900_000_001}, "/multipleOf: no exact form is known for"),
    "a multiple of 400 digits": ({"multipleOf": 10**400 + 1}, "/multipleOf: 1000"),
    "multiples of a schema and of what it refers to": (
        {"$ref": "#/$defs/a", "multipleOf": 991, "$defs": {"a": {"multipleOf": 0.997}}},
        "/$ref: the least common multiple of the values of multipleOf below is too large",
    ),
    "multiples of one property": (
        {"allOf": [{"properties": {"a": {"multipleOf": 997}}}, {"properties": {"a": {"multipleOf": 991}}}]},
        "/allOf: the least common multiple of the values of multipleOf below is too large",
    ),
    "a range": (
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 5, "maximum": 1}},
        "/items: Unsatisfiable schema: minimum (5) is greater than maximum (1)",
    ),
    "a number in place of a schema": ({"properties": {"a": 5}}, "/properties/a: 5 is not a schema; must be"),
    "a key that is not a string": ({"items": {"required": [5]}}, "/items/required/0: 5 is not a string"),
    "no type": ({"items": {"type": []}, "minItems": 1, "type": "array"}, "/items: Unsatisfiable schema: "),
    "a key that is forbidden": (
        {"type": "object", "required": ["x"], "additionalProperties": False},
        "Unsatisfiable schema: required property 'x'",
    ),
    "a property that is forbidden": (
        {"type": "object", "required": ["x"], "properties": {"x": False}},
        "Unsatisfiable schema: required property 'x'",
    ),
    "an item that is forbidden": ({"type": "array", "items": False, "minItems": 1}, "Unsatisfiable schema: "),
    "two types": ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "Unsatisfiable schema: "),
    "between two numbers": ({"type": "integer", "minimum": 1.2, "maximum": 1.5}, "Unsatisfiable schema: "),
    "two constants": ({"const": 1, "enum": [2]}, "Unsatisfiable schema: its parts allow different"),
    "a pattern and a length": (
        {"type": "string", "pattern": "^a+$", "maxLength": 0},
        "Unsatisfiable schema: Regex is empty",
    ),
    "a pattern of keys": ({"type": "object", "patternProperties": {"(": {}}}, "/patternProperties: '(': unclosed"),
    "an option of llguidance": ({"x-guidance": {"foo": True}}, "/x-guidance: unknown field `foo`, "),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "message"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_has_its_path(schema, message):
    with pytest.raises(GrammarError) as caught:
        compile_grammar(json.dumps(schema), kind="json_schema")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


WITHOUT_EFFECT = {
    "items that may repeat": {"uniqueItems": False},
    "an if alone": {"if": {"const": 1}},
    "a then alone": {"then": {"const": 1}},
    "a least number alone": {"minContains": 2},
    "all that is not evaluated": {"unevaluatedProperties": True},
    "no dependencies": {"dependencies": {}},
    "a format of numbers": {"type": "integer", "format": "int64"},
    "what nothing refers to": {"$defs": {"a": {"not": {}, "type": "strin"}, "b": {"minimum": 1e20}}},
    "a constant": {"const": {"not": {}, "type": "strin"}},
    "an annotation": {"default": {"not": {}}, "examples": [{"type": "strin"}], "x-mine": {"not": {}}},
}


@pytest.mark.parametrize("schema", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_what_constrains_nothing_is_accepted(schema):
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    assert grammar.parsed.ignored_schema_paths == ()
    assert grammar.matches("1") == ("const" not in schema)


@pytest.mark.parametrize("divisor", [7, 8_191, 100_000_000])
def test_multiples_are_followed(divisor):
    schema = {"type": "integer", "allOf": [{"multipleOf": divisor}, {"multipleOf": 1}]}
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    for factor in (0, 1, 2, 3, 10, 97):
        assert grammar.matches(str(factor * divisor)), factor
        assert not grammar.matches(str(factor * divisor + 1)), factor


def test_multiples_of_fractions_are_followed():
    schema = {"type": "number", "allOf": [{"multipleOf": 0.25}, {"multipleOf": 0.1}]}
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    assert [grammar.matches(text) for text in ("0.5", "1.5", "0.25", "0.1")] == [True, True, False, False]


def test_multiples_of_different_values_may_have_any_common_multiple():
    schema = {"anyOf": [{"type": "integer", "multipleOf": 997}, {"type": "integer", "multipleOf": 991}]}
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    assert [grammar.matches(text) for text in ("997", "991", "998")] == [True, True, False]


def test_a_multiple_that_cannot_be_followed_is_left_out_if_lenient():
    schema = json.dumps({"type": "integer", "multipleOf": 9_999_999})
    grammar = compile_grammar(schema, kind="json_schema", schema_lenient=True)
    assert grammar.parsed.ignored_schema_paths == ("/multipleOf",)
    assert grammar.matches("5")


PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "email": {"type": "string", "format": "email"},
        "phone": {"type": "string", "format": "phone"},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "maxItems": 3},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "parent": {"$ref": "#"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "if": {"properties": {"age": {"minimum": 18}}},
    "then": {"required": ["email"]},
}
ORDER = {
    "$defs": {
        "money": {
            "type": "object",
            "properties": {"amount": {"type": "number", "exclusiveMinimum": 0}, "unit": {"enum": ["EUR", "USD"]}},
            "required": ["amount", "unit"],
            "additionalProperties": False,
        },
        "unused": {"not": {}},
    },
    "type": "object",
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "contains": {"properties": {"count": {"minimum": 2}}},
            "items": {
                "allOf": [
                    {"properties": {"price": {"$ref": "#/$defs/money"}}, "required": ["price"]},
                    {"properties": {"count": {"type": "integer", "minimum": 1, "maximum": 9}}},
                ]
            },
        },
        "state": {"oneOf": [{"const": "open"}, {"type": "string", "maxLength": 3}]},
        "note": {"type": "string", "not": {"const": ""}, "maxLength": 5},
    },
    "required": ["id", "lines", "state"],
    "dependentRequired": {"note": ["lines"]},
    "additionalProperties": False,
}
TOOL = {
    "type": "object",
    "properties": {
        "tool": {"const": "search"},
        "arguments": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "pattern": "^(?!admin)[a-z]+$"},
                "limit": {"type": ["integer", "null"], "minimum": 1},
                "site": {"type": "string", "format": "hostname"},
            },
            "required": ["query"],
            "minProperties": 2,
        },
    },
    "required": ["tool", "arguments"],
    "additionalProperties": False,
}
POINT = {
    "oneOf": [
        {
            "type": "object",
            "properties": {
                "type": {"const": "Point"},
                "coordinates": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 3},
            },
            "required": ["type", "coordinates"],
        },
        {
            "type": "object",
            "properties": {"type": {"const": "None"}, "when": {"type": "string", "format": "date-time"}},
            "required": ["type"],
        },
    ]
}
REAL_LIFE = {
    "a person": (PERSON, ["/properties/phone/format"]),
    "an order": (ORDER, []),
    "a tool": (TOOL, ["/properties/arguments/minProperties", "/properties/arguments/properties/query/pattern"]),
    "GeoJSON": (POINT, []),
    "draft 4": (
        jsonschema.Draft4Validator.META_SCHEMA,
        [
            "/definitions/stringArray/uniqueItems",
            "/dependencies",
            "/properties/enum/uniqueItems",
            "/properties/type/anyOf/1/uniqueItems",
        ],
    ),
    "draft 7": (
        jsonschema.Draft7Validator.META_SCHEMA,
        [
            "/definitions/stringArray/uniqueItems",
            "/properties/patternProperties/propertyNames",
            "/properties/type/anyOf/1/uniqueItems",
        ],
    ),
    "a preset": (preset_json_schema(), []),
}


def without(schema, left_out):
    """The schema without what these pointers name; the oracle's own way to leave something out."""
    schema = copy.deepcopy(schema)
    for pointer in left_out:
        *path, key = pointer.split(" ")[0].split("/")[1:]
        node = schema
        for token in path:
            node = node[int(token)] if isinstance(node, list) else node[token]
        options = node.pop(key)
        if key == "oneOf":
            node["anyOf"] = options
    return schema


@pytest.mark.parametrize(("schema", "left_out"), REAL_LIFE.values(), ids=REAL_LIFE)
def test_a_lenient_schema_is_the_one_without_what_it_lists(schema, left_out):
    source = json.dumps(schema)
    parsed = compile_grammar(source, kind="json_schema", schema_lenient=True).parsed
    assert sorted(parsed.ignored_schema_paths) == sorted(left_out)
    loose = without(schema, parsed.ignored_schema_paths)
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(loose)
    texts = [random_sentence(source, seed, kind="json_schema", schema_lenient=True) for seed in range(10)]
    for text in texts:
        validator.validate(json.loads(text))
    assert len(set(texts)) > 2


@pytest.mark.parametrize(("schema", "left_out"), REAL_LIFE.values(), ids=REAL_LIFE)
def test_it_is_refused_unless_it_is_lenient(schema, left_out):
    if not any("Items" in pointer or "pattern" in pointer for pointer in left_out):
        compile_grammar(json.dumps(schema), kind="json_schema")
        return
    with pytest.raises(GrammarError, match="schema_lenient=True"):
        compile_grammar(json.dumps(schema), kind="json_schema")


def test_the_option_of_llguidance_is_the_same():
    schema = {"uniqueItems": True, "x-guidance": {"lenient": True}}
    assert compile_grammar(json.dumps(schema), kind="json_schema").parsed.ignored_schema_paths == ("/uniqueItems",)


def test_a_table_is_lenient():
    spec = resolve_grammar({"json_schema": {"uniqueItems": True}, "schema_lenient": True})
    assert spec.ignored_schema_paths == ("/uniqueItems",)
    assert spec.description["left_out"] == "/uniqueItems"
    with pytest.raises(GrammarError, match="schema_lenient is allowed only with a JSON Schema, not with regex"):
        resolve_grammar({"regex": "a", "schema_lenient": True})
    with pytest.raises(GrammarError, match="schema_lenient: 'yes' is not true or false"):
        resolve_grammar({"json_schema": {}, "schema_lenient": "yes"})


def test_an_inner_id_leaves_references_to_llguidance():
    schema = {
        "$defs": {"a": {"$id": "http://x/a", "$defs": {"b": {"const": 1}}, "$ref": "#/$defs/b"}},
        "$ref": "#/$defs/a",
    }
    assert compile_grammar(json.dumps(schema), kind="json_schema").matches("1")
