"""``oneOf``: options that exclude each other are found, also behind references; others are subtracted."""

import json
import time

import jsonschema
import pytest
from logitsmith.grammars import GrammarError, compile_grammar

DEFINITIONS = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "chain": {"$ref": "#/$defs/text"},
    "cat": {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
    "dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "wolf"]}}, "required": ["kind"]},
    "pets": {"type": "array", "items": {"$ref": "#/$defs/cat"}, "minItems": 1},
    "dogs": {"type": "array", "items": {"$ref": "#/$defs/dog"}, "minItems": 1},
    "loop": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/loop"}}, {"type": "string"}]},
}


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


VALUES = [None, True, False, 0, 1, 2, 5, 5.5, 10, -1, "", "a", "ab", "cat", [], [1], ["a"], [{"kind": "cat"}],
          {}, {"kind": "cat"}, {"kind": "dog"}, {"a": 1}, {"b": 1}, {"a": "x"}]  # fmt: skip

# name: (options, other keywords)
EXCLUSIVE = {
    "types behind references": ([ref("text"), ref("number")], {}),
    "a chain of references": ([ref("chain"), ref("number")], {}),
    "constants": ([{"const": 1}, {"const": 2}], {}),
    "constants of two kinds": ([{"const": 1}, {"const": True}, {"const": "1"}], {}),
    "lists of values": ([{"enum": [1, "a"]}, {"enum": [2, "b"]}], {}),
    "ranges": ([{"type": "integer", "maximum": 1}, {"type": "integer", "minimum": 2}], {}),
    "ranges of long decimals": (
        [{"type": "number", "exclusiveMaximum": 0.1}, {"type": "number", "minimum": 0.1}],
        {},
    ),
    "ranges that touch": ([{"type": "number", "exclusiveMaximum": 5}, {"type": "number", "minimum": 5}], {}),
    "draft 4's ranges": (
        [{"type": "number", "maximum": 5, "exclusiveMaximum": True}, {"type": "number", "minimum": 5}],
        {},
    ),
    "a type of several": ([{"type": ["integer", "null"]}, {"type": ["string", "boolean"]}], {}),
    "lengths": ([{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2}], {}),
    "numbers of items": ([{"type": "array", "maxItems": 0}, {"type": "array", "minItems": 1}], {}),
    "a required constant": ([ref("cat"), ref("dog")], {}),
    "items": ([ref("pets"), ref("dogs")], {}),
    "a constant and a length": ([{"const": "cat"}, {"type": "string", "maxLength": 2}], {}),
    "a key that the other forbids": (
        [
            {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
            {"type": "object", "properties": {"b": {}}, "required": ["b"], "additionalProperties": False},
        ],
        {},
    ),
    "a key that is required beside them": (
        [{"properties": {"kind": {"const": "cat"}}}, {"properties": {"kind": {"const": "dog"}}}],
        {"type": "object", "required": ["kind"]},
    ),
    "alternatives": ([ref("either"), {"anyOf": [ref("number"), {"type": "boolean"}]}], {}),
    "all of several": (
        [{"allOf": [ref("text"), {"maxLength": 1}]}, {"allOf": [ref("text"), {"minLength": 2}]}],
        {},
    ),
    "an option that nothing matches": ([False, ref("text")], {}),
}


@pytest.mark.parametrize(("options", "others"), EXCLUSIVE.values(), ids=EXCLUSIVE)
def test_options_that_exclude_each_other_are_taken(options, others):
    schema = {**others, "oneOf": options, "$defs": DEFINITIONS}
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    validator = jsonschema.Draft202012Validator(schema)
    # draft 4's limits are read, too
    if not any(option is not False and option.get("exclusiveMaximum") is True for option in options):
        assert [grammar.matches(json.dumps(value)) for value in VALUES] == [validator.is_valid(v) for v in VALUES]


OVERLAPPING = {
    "an integer is a number": [{"type": "integer"}, {"type": "number"}],
    "1 and 1.0": [{"const": 1}, {"enum": [1.0, 2]}],
    "ranges that share a number": [{"type": "number", "maximum": 5}, {"type": "number", "minimum": 5}],
    "one value twice": [{"enum": [1, 2]}, {"enum": [2, 3]}],
    "keys that need not exist": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}],
    "required keys": [{"required": ["a"]}, {"required": ["b"]}],
    "anything": [True, ref("text")],
    "a type of several": [{"type": ["string", "null"]}, {"type": ["null", "integer"]}],
    "loops": [ref("loop"), {"type": "array"}],
    "an empty list": [{"type": "array", "items": ref("cat")}, {"type": "array", "items": ref("dog")}],
    "the last of three": [ref("number"), ref("text"), {"const": "a"}],
}


@pytest.mark.parametrize("options", OVERLAPPING.values(), ids=OVERLAPPING)
def test_what_matches_two_options_is_not_allowed(options):
    schema = {"oneOf": options, "$defs": DEFINITIONS}
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    validator = jsonschema.Draft202012Validator(schema)
    assert [grammar.matches(json.dumps(value)) for value in VALUES] == [validator.is_valid(v) for v in VALUES]
    assert grammar.parsed.translated_schema_paths == ("/oneOf",)


@pytest.mark.slow
def test_many_options_take_little_time():
    options = [{"properties": {"kind": {"const": f"k{index}"}}, "required": ["kind"]} for index in range(2_000)]
    start = time.process_time()
    compile_grammar(json.dumps({"type": "object", "oneOf": options[:60]}), kind="json_schema")
    compile_grammar(json.dumps({"oneOf": [{"const": index} for index in range(2_000)]}), kind="json_schema")
    with pytest.raises(GrammarError, match="/oneOf: "):
        compile_grammar(json.dumps({"oneOf": [*options, {"type": "object"}]}), kind="json_schema")
    assert time.process_time() - start < 30
