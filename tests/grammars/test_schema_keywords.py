"""Values of keywords, keywords that restrict nothing, unknown keywords, and formats."""

import json

import pytest
from logitsmith.grammars import GrammarError, compile_grammar, resolve_grammar

# name: (schema, JSON that matches, JSON that does not)
TAKEN = {
    "zod's names of properties": ({"type": "object", "propertyNames": {"type": "string"}}, ['{"a": 1}'], ["1"]),
    "names of any kind": ({"propertyNames": {}}, ['{"a": 1}'], ["{1}"]),
    "names that are referred to": (
        {"propertyNames": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": ["string", "null"], "maximum": 1}}},
        ['{"a": 1}'],
        [],
    ),
    "a length of 2.0": ({"type": "string", "maxLength": 2.0, "minLength": 1.0}, ['"ab"'], ['"abc"', '""']),
    "numbers of 1.0": ({"type": "array", "minItems": 1.0, "maxItems": 2e0}, ["[1]"], ["[]", "[1, 2, 3]"]),
    "a length beyond all texts": ({"type": "string", "maxLength": 10**15}, ['"a"'], ["1"]),
    "no least number": ({"minProperties": 0, "required": []}, ["{}"], []),
    "as many properties as are required": (
        {"type": "object", "required": ["a"], "minProperties": 1, "properties": {"a": {}, "b": {}}},
        ['{"a": 1, "b": 2}', '{"a": 1}'],
        ["{}"],
    ),
    "as many properties as there are": (
        {"properties": {"a": {}, "b": {}}, "maxProperties": 2, "additionalProperties": False},
        ['{"a": 1, "b": 2}'],
        ['{"c": 1}'],
    ),
    "a contradiction of a property": ({"type": "object", "properties": {"a": {"not": {}}}}, ["{}"], ['{"a": 1}']),
    "not nothing": ({"not": False, "type": "integer"}, ["1"], ['"a"']),
    "an if that is true": ({"if": True, "then": {"type": "integer"}, "else": False}, ["1"], ['"a"']),
    "an if that is false": ({"if": False, "then": False, "else": {"type": "integer"}}, ["1"], ['"a"']),
    "branches without effect": ({"if": {"const": 1}, "then": {}, "else": True}, ["1", "2"], []),
    "contains anything": ({"type": "array", "contains": {}, "maxContains": 2}, ["[1]"], ["[]", "[1, 2, 3]"]),
    "contains nothing much": ({"contains": {"const": 1}, "minContains": 0}, ["[]", "[2]"], []),
    "one item is unique": ({"type": "array", "maxItems": 1, "uniqueItems": True}, ["[1]"], ["[1, 2]"]),
    "dependencies that hold": (
        {"type": "object", "required": ["b"], "dependentRequired": {"a": ["b"], "c": []}},
        ['{"b": 1}'],
        ["{}"],
    ),
    "dependencies without effect": (
        {"dependencies": {"a": [], "b": {}}, "dependentSchemas": {"c": True}},
        ["{}"],
        [],
    ),
    "no unevaluated properties": (
        {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
        ['{"a": 1}'],
        ['{"b": 1}'],
    ),
    "all properties are evaluated": (
        {"additionalProperties": {"type": "integer"}, "unevaluatedProperties": False},
        ['{"a": 1}'],
        ['{"a": "b"}'],
    ),
    "no unevaluated items": (
        {"type": "array", "prefixItems": [{}], "unevaluatedItems": False},
        ["[1]"],
        ["[1, 2]"],
    ),
    "an unknown draft": ({"$schema": "https://json-schema.org/draft-07/schema", "type": "null"}, ["null"], ["1"]),
    "draft 4 with const": ({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1}, ["1"], ["2"]),
    "annotations": (
        {
            "$id": "a b",
            "$comment": 5,
            "title": "t",
            "description": "d",
            "default": {"not": 5},
            "examples": [1],
            "example": 1,
            "deprecated": True,
            "readOnly": True,
            "contentEncoding": "base64",
            "discriminator": {"propertyName": "a"},
            "x-order": 5,
            "$vocabulary": {},
            "type": "integer",
        },
        ["1"],
        ['"a"'],
    ),
    "a reference to itself with a title": (
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a", "x-b": 1}}}},
        },
        ['{"a": {"a": {}}}'],
        ["1"],
    ),
    "a reference to itself with its type": (
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a", "type": "object"}}}},
        },
        ['{"a": {"a": {}}}'],
        ["1"],
    ),
    "a format of URIs": ({"format": "uri-template"}, ['"http://a/{id}{?q,r*}"'], ['"{"', '"{a|b}"', '"a b"']),
    "a relative format": ({"format": "uri-reference"}, ['"a/b?c#d"', '"mailto:a"'], ['"1:a"', '"%zz"', '"a b"']),
    "a format of regexes": (
        {"format": "regex"},
        ['"^[a-z]{3,16}$"', '"a(b|c)*"'],
        ['"*"', '"\\\\"', '"a("', '"[z-a]"'],
    ),
    "a format of pointers": ({"format": "json-pointer"}, ['"/a~0/b~1"', '""'], ['"a"', '"/~2"']),
    "a format of days": ({"format": "date"}, ['"2024-02-29"', '"2000-02-29"'], ['"2021-02-29"', '"1900-02-29"']),
    "a format of seconds": (
        {"format": "time"},
        ['"23:59:60Z"', '"08:30:06.283185-08:00"'],
        ['"22:59:60Z"', '"23:59:60+01:00"', '"24:00:00Z"', '"12:00:00"'],
    ),
    "a format of both": (
        {"format": "date-time"},
        ['"1998-12-31t23:59:60.1z"'],
        ['"1998-12-31T22:59:60Z"', '"2021-02-29T00:00:00Z"'],
    ),
    "a format of names": ({"format": "idn-hostname"}, ['"a.l-b"', '"a-b--c.d"'], ['"xn--X"', '"XN--aa"', '"a-"']),
    "a format with a pattern": ({"format": "iri", "pattern": "^http:"}, ['"http://ö"'], ['"ftp://ö"', '"ö"']),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "matching", "others"), TAKEN.values(), ids=TAKEN)
def test_what_restricts_nothing_is_taken_without_a_word(schema, matching, others):
    grammar = compile_grammar(json.dumps(schema), kind="json_schema")
    assert grammar.parsed.ignored_schema_paths == ()
    assert [text for text in matching if not grammar.matches(text)] == []
    assert [text for text in others if grammar.matches(text)] == []


NAMED = {
    **{name: ({"properties": {"a": {"type": "string", "format": name}}}, ["/properties/a/format"])
       for name in ("url", "int32", "phone", "unknown", "")},
    "an unknown keyword": ({"type": "string", "nullable": True}, ["/nullable"]),
    "a keyword with a slash": ({"items": {"a/b": {"not": 5}}}, ["/items/a~1b"]),
    "a keyword that is turned off": ({"_format": "date", "_uniqueItems": True}, ["/_format", "/_uniqueItems"]),
    "a property without properties": ({"name": {"type": "string"}}, ["/name"]),
    "several": ({"items": {"format": "x"}, "anyOf": [{"foo": 1}, {}]}, ["/anyOf/0/foo", "/items/format"]),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "paths"), NAMED.values(), ids=NAMED)
def test_what_is_not_known_is_an_annotation_that_is_named(schema, paths):
    spec = resolve_grammar({"json_schema": schema})
    spec.check()
    assert sorted(spec.ignored_schema_paths) == paths
    assert spec.description["left_out"] == ", ".join(spec.ignored_schema_paths)


# keywords: values that they cannot have
WRONG_VALUES = {
    "minLength maxLength minItems maxItems": ["a", -1, 1.5, True, None, [], {}],
    "minProperties maxProperties minContains maxContains": ["2", -1, 1.5, False, [1]],
    "minimum maximum": ["1", True, None, [], {}],
    "exclusiveMinimum exclusiveMaximum": ["1", None, []],
    "multipleOf": [0, -1, "2", True, None],
    "pattern format $ref $dynamicRef $recursiveRef": [5, None, True, [], {}],
    "allOf anyOf oneOf prefixItems enum required": ["a", 5, None, True, {}],
    "properties patternProperties $defs definitions": ["a", 5, None, True, []],
    "dependencies dependentRequired dependentSchemas": ["a", 5, None, True, []],
    "type": [5, None, True, {}, "any", "String"],
    "uniqueItems": ["yes", 1, None, []],
    "not if then else contains propertyNames": ["a", 5, None, []],
    "items additionalProperties additionalItems": ["a", 5, None],
    "unevaluatedItems unevaluatedProperties": ["a", 5, None, []],
    "extends disallow divisibleBy": [5, {}],
    "minlength Required additional_properties any-of": [5, []],
}


@pytest.mark.parametrize(
    ("keyword", "value"),
    [(name, value) for names, values in WRONG_VALUES.items() for name in names.split() for value in values],
)
def test_a_wrong_value_has_path_and_value(keyword, value):
    with pytest.raises(GrammarError) as caught:
        compile_grammar(json.dumps({"properties": {"ä/b": {keyword: value}}}), kind="json_schema")
    assert str(caught.value).startswith(f"/properties/ä~1b/{keyword}: ")
    shown = repr(value) if keyword == "type" and isinstance(value, str) else json.dumps(value)
    assert shown in str(caught.value)
    assert "llguidance" not in str(caught.value)


REFUSED = {
    **{f"{keyword} of some kind": ({"items": {keyword: value}}, f"/items/{keyword}: ", value)
       for keyword, value in (
           ("uniqueItems", True),
           ("multipleOf", 9_999_999),
           ("pattern", "a(?=b)"),
           ("pattern", "(?<!a)b"),
           ("pattern", r"\bfoo"),
           ("pattern", r"(a)\1"),
           ("minLength", 10**12),
           ("minItems", 2**31),
       )},
    "items that an if evaluates": (
        {"if": {"items": True}, "unevaluatedItems": False},
        "/unevaluatedItems: ",
        False,
    ),
    "items that contains evaluates": ({"contains": {}, "unevaluatedItems": False}, "/unevaluatedItems: ", False),
    "a dynamic reference": (
        {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}, "b": {"$dynamicAnchor": "a"}}},
        "/$dynamicRef: ",
        "#a",
    ),
    "a key's look-around": (
        {"items": {"patternProperties": {"^(?!a)": {}}}},
        "/items/patternProperties/^(?!a): ",
        None,
    ),
    "a negative that no schema matches": ({"not": {}}, "/not: no JSON matches", None),
    "half a pair": ({"properties": {"a": {"const": "x\ud83d"}}}, "/properties/a/const: ", None),
    "half a pair in a key": ({"properties": {"\ude00": {}}}, "/properties/\\ude00: ", None),
    "half a pair in an annotation": ({"items": {"title": "\ud83d"}}, "/items/title: ", None),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "start", "value"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_has_path_and_value(schema, start, value):
    with pytest.raises(GrammarError) as caught:
        compile_grammar(json.dumps(schema), kind="json_schema")
    message = str(caught.value)
    assert message.startswith(start)
    assert value is None or json.dumps(value) in message
    message.encode()


def test_a_whole_pair_is_a_character():
    assert compile_grammar(r'{"const": "\ud83d\udc4d"}', kind="json_schema").matches('"👍"')


def test_a_limit_that_is_not_exact_is_left_out_if_lenient():
    limits = {"type": "integer", "minimum": -(2**63), "maximum": 9}
    schema = json.dumps({"items": limits, "uniqueItems": True})
    with pytest.raises(GrammarError, match="/uniqueItems: "):
        compile_grammar(schema, kind="json_schema")
    grammar = compile_grammar(schema, kind="json_schema", schema_lenient=True)
    assert grammar.parsed.ignored_schema_paths == ("/uniqueItems", "/items/minimum")
    assert (grammar.matches("[9]"), grammar.matches("[10]")) == (True, False)
