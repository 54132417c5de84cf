"""The text that the real model writes under `json` and schemas is JSON that fits them, by other people's
libraries."""

import json
from collections import Counter

import pytest
from jsonschema import Draft202012Validator
from logitsmith.engine import Model, generate, locate
from logitsmith.grammars import compile_grammar, find_grammar
from logitsmith.samplers import build

RUNS = 500
TEXT = {"type": "string", "maxLength": 40}
POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["x", "y"],
}

SCHEMAS = {
    "record": {
        "type": "object",
        "properties": {
            "name": TEXT,
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "ok": {"type": "boolean"},
        },
        "required": ["name", "age", "ok"],
        "additionalProperties": False,
    },
    "optional parts": {
        "type": "object",
        "properties": {"a": TEXT, "b": {"type": "integer"}, "c": {"type": "null"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    "numbers": {
        "type": "array",
        "items": {"type": "number", "minimum": -5, "maximum": 5},
        "minItems": 2,
        "maxItems": 6,
    },
    "enum": {"enum": ["red", "green", 7, None, {"deep": [1]}]},
    "const": {
        "type": "object",
        "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
        "required": ["kind", "r"],
    },
    "any of": {"anyOf": [{"type": "integer"}, {"type": "array", "items": TEXT, "maxItems": 3}, POINT]},
    "references": {
        "$defs": {"point": POINT},
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point"}},
        "required": ["from", "to"],
    },
    "recursion": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": TEXT,
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    },
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    "formats": {
        "type": "object",
        "properties": {"day": {"type": "string", "format": "date"}, "id": {"type": "string", "format": "uuid"}},
        "required": ["day", "id"],
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["json", *SCHEMAS])
def test_what_is_written_under_a_grammar_parses(name):
    schema = SCHEMAS.get(name)
    runs = RUNS if schema is None else RUNS // len(SCHEMAS)
    ends = Counter()
    with Model.load(locate()[0], n_ctx=512) as model:
        vocabulary = model.vocabulary
        if schema is None:
            grammar = compile_grammar(find_grammar("json").path.read_text(), vocabulary)
        else:
            grammar = compile_grammar(json.dumps(schema), vocabulary, kind="json_schema")
        for seed in range(runs):
            chain = build("temp1.5", seed=seed, vocab=vocabulary)
            *_, done = generate(model, "JSON:\n", chain, grammar.start(), max_tokens=60, complete_sentence=True)
            assert done.complete, done
            value = json.loads(done.text)
            if schema is not None:
                Draft202012Validator(schema).validate(value)
            ends[done.finish_reason] += 1
    print(f"\n{name}: {runs:,} generations at temperature 1.5, each parsed and valid; ended by {dict(ends)}")
