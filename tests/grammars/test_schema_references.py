"""References of JSON Schemas: pointers, anchors, identifiers, and how they may be written."""

import json
from urllib.parse import quote

import pytest
from logitsmith.grammars import GrammarError, compile_grammar

NAMES = [
    *("ö", "a b", "a<b", "a/b", "a~b", "~1", "a%b", "%25", "a%20b", "a#b", "a?b", 'a"b', "a\\b", "👍", ""),
    *("{x}", "[0]", "a\0b"),
]


def escape(name):
    return name.replace("~", "~0").replace("/", "~1")


@pytest.mark.parametrize("encode", [escape, lambda name: quote(escape(name), safe="")], ids=["plain", "encoded"])
@pytest.mark.parametrize("name", NAMES)
def test_a_key_of_any_characters_is_found(name, encode):
    schema = {"$ref": f"#/$defs/{encode(name)}", "$defs": {name: {"type": "integer"}}}
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    assert (grammar.matches("1"), grammar.matches('"a"')) == (True, False)


INTEGER = {"type": "integer"}
FOUND = {
    "a list's item": {"$ref": "#/x/0", "x": [INTEGER]},
    "a property": {"anyOf": [{"$ref": "#/anyOf/1"}, INTEGER]},
    "an anchor": {"$ref": "#a", "$defs": {"b": {"$anchor": "a", **INTEGER}}},
    "a dynamic anchor": {"$ref": "#a", "$defs": {"b": {"$dynamicAnchor": "a", **INTEGER}}},
    "a dynamic reference with one target": {
        "$dynamicRef": "#a",
        "$defs": {"b": {"$dynamicAnchor": "a", **INTEGER}},
    },
    "draft 7's anchor": {"$ref": "#a", "definitions": {"b": {"$id": "#a", **INTEGER}}},
    "draft 4's anchor": {"$ref": "#a", "definitions": {"b": {"id": "#a", **INTEGER}}},
    "an identifier": {"$id": "https://x/y/z", "$ref": "item", "$defs": {"b": {"$id": "item", **INTEGER}}},
    "its own identifier": {"$id": "https://x/y/z", "$ref": "https://x/y/z#/$defs/a", "$defs": {"a": INTEGER}},
    "draft 4's identifier": {
        "id": "http://x/y#",
        "$ref": "http://x/y#/definitions/a",
        "definitions": {"a": INTEGER},
    },
    "a URN": {"$id": "urn:a:b", "$ref": "urn:a:b#/$defs/a", "$defs": {"a": INTEGER}},
    "within an inner identifier": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$id": "http://x/a", "$defs": {"b": INTEGER}, "$ref": "#/$defs/b"}},
    },
    "out of an inner identifier": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$id": "http://x/a", "$ref": "#/$defs/c"}, "c": INTEGER},
    },
    "true": {"allOf": [INTEGER, {"$ref": "#/$defs/a"}], "$defs": {"a": True}},
}


@pytest.mark.parametrize("schema", FOUND.values(), ids=FOUND)
def test_a_reference_is_resolved(schema):
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    assert (grammar.matches("1"), grammar.matches('"a"')) == (True, False)


def test_a_schema_refers_to_itself():
    schema = json.dumps({"type": "array", "items": {"$recursiveRef": "#"}, "$recursiveAnchor": True})
    grammar = compile_grammar(schema, kind="json_schema")
    assert (grammar.matches("[[[]]]"), grammar.matches("[1]")) == (True, False)


MISSING = {
    "a typo": ({"$ref": "#/$defs/persn", "$defs": {"person": {}}}, "did you mean #/$defs/person?"),
    "an index with a zero": ({"$ref": "#/x/00", "x": [{}]}, "the schema has no '#/x/00'"),
    "another document": ({"$ref": "http://a/b.json#/c"}, "'http://a/b.json#/c' is another document"),
    "a file": ({"$ref": "common.json"}, "'common.json' is another document"),
    "no schema": ({"$ref": "#/x", "x": 5}, "is not a schema"),
    "itself": ({"$ref": "#/items", "items": {"$ref": "#"}}, "leads back to itself"),
    "into a ring": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "leads back to itself"),
    "an anchor": ({"$ref": "#a"}, "the schema has no anchor 'a'"),
}


@pytest.mark.parametrize(("schema", "message"), MISSING.values(), ids=MISSING)
def test_a_reference_without_a_target_has_its_path(schema, message):
    with pytest.raises(GrammarError) as caught:
        compile_grammar(json.dumps(schema), kind="json_schema")
    assert str(caught.value).startswith("/$ref: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("keyword", ["$dynamicRef", "$recursiveRef"])
@pytest.mark.parametrize("reference", ["#a", "#/$defs/a", "other.json"])
def test_a_dynamic_reference_without_a_target_has_its_path(keyword, reference):
    schema = {"properties": {"x": {keyword: reference}}}
    with pytest.raises(GrammarError, match=rf"^/properties/x/\{keyword}: "):
        compile_grammar(json.dumps(schema), kind="json_schema")
