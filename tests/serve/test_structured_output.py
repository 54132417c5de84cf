"""Grammars of a request's body: choices, JSON Schemas and formats of the answer, in every client's form."""

import json

import pytest
from logitsmith.common.errors import InvalidFieldError
from logitsmith.grammars import resolve_grammar
from logitsmith.requests.errors import InvalidLineError
from logitsmith.requests.fields import PromptFields, read_body, read_settings
from logitsmith.requests.lines import read_request_line

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CHOICES = ["👍", 'a "quote"', "back\\slash", "line\nbreak", "\x85\u2028\0", ""]


def grammar_of(body):
    fields, ignored = read_body(PromptFields, {"prompt": "x", **body}, is_strict=False)
    assert ignored == []
    (override,) = read_settings(fields, [])
    return resolve_grammar(override.value).compile(None)


def grammar_of_line(body):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", **body}}
    (override,) = read_request_line(line, 1).asked.overrides
    return resolve_grammar(override.value).compile(None)


@pytest.mark.parametrize(
    "body", [{"guided_choice": CHOICES}, {"structured_outputs": {"choice": CHOICES}}], ids=str
)
def test_choices_may_have_any_characters(body):
    grammar = grammar_of(json.loads(json.dumps(body)))
    assert all(map(grammar.matches, CHOICES))
    assert not grammar.matches("\ufffd")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"guided_choice": ["a", "\ud83d"]}, "guided_choice[1]: "),
        ({"structured_outputs": {"choice": ["\udc4d"]}}, "structured_outputs.choice[0]: "),
        ({"guided_json": "{"}, "guided_json: not JSON: line 1, column 2: "),
        ({"json_schema": '{"a": NaN}'}, "json_schema: not JSON: "),
        ({"structured_outputs": {"json": "x"}}, "structured_outputs.json: not JSON: "),
        ({"structured_outputs": {"json": {}, "structural_tag": "{}"}}, "structured_outputs: structural_tag "),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs: structural_tag "),
    ],
)
def test_what_cannot_be_read_is_an_error_with_the_place(body, place):
    with pytest.raises(InvalidFieldError) as caught:
        grammar_of(body)
    assert str(caught.value).startswith(place)
    assert caught.value.field == next(iter(body))


ANY_JSON = [
    *({name: value} for name in ("json_schema", "guided_json") for value in ({}, True, "{}", " true ")),
    *({"structured_outputs": {"json": value}} for value in ({}, True, "{}")),
    *({"response_format": {"type": "json_schema", "schema": value}} for value in ({}, True)),
    *({"response_format": {"type": "json_schema", "json_schema": {"schema": value}}} for value in ({}, True)),
    {"grammar": {"json_schema": {}}},
    {"grammar": "{}"},
]


@pytest.mark.parametrize("body", ANY_JSON, ids=json.dumps)
def test_an_empty_schema_is_any_json(body):
    grammar = grammar_of(body)
    assert all(map(grammar.matches, ["1", "[]", '{"a": null}', '"x"']))
    assert not grammar.matches("free text")


@pytest.mark.parametrize(
    "body", [{"json_schema": ""}, {"json_schema": None}, {"guided_json": "  "}], ids=json.dumps
)
def test_no_schema_is_free_text(body):
    fields, _ = read_body(PromptFields, {"prompt": "x", **body}, is_strict=False)
    assert read_settings(fields, []) == []


FORMATS = {
    "llama-cpp-python": {"type": "json_object", "schema": SCHEMA},
    "llama-server": {"type": "json_schema", "schema": SCHEMA},
    "OpenAI": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}},
    "without a name": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
}


@pytest.mark.parametrize("read", [grammar_of, grammar_of_line], ids=["serve", "batch"])
@pytest.mark.parametrize("answer_format", FORMATS.values(), ids=FORMATS)
def test_a_format_has_its_schema_in_every_clients_form(read, answer_format):
    grammar = read({"response_format": answer_format})
    assert grammar.matches('{"a": 1}')
    assert not grammar.matches('{"a": "b"}')


@pytest.mark.parametrize("schema", [{}, True], ids=json.dumps)
def test_an_object_of_any_schema_is_an_object(schema):
    grammar = grammar_of_line({"response_format": {"type": "json_object", "schema": schema}})
    assert grammar.matches('{"a": 1}')
    assert not grammar.matches("1")


WRONG_FORMATS = {
    "a structural tag": ({"type": "structural_tag", "format": {}}, "'structural_tag'"),
    "text with a schema": ({"type": "text", "schema": SCHEMA}, '"text" has no schema'),
    "no schema": ({"type": "json_schema"}, "needs a schema"),
    "two schemas": (
        {"type": "json_schema", "schema": SCHEMA, "json_schema": {"schema": SCHEMA}},
        "needs a schema",
    ),
    "a frame without a schema": ({"type": "json_schema", "json_schema": {"name": "x"}}, "schema"),
    "a schema in place of the frame": (
        {"type": "json_schema", "json_schema": SCHEMA},
        "json_schema.schema: the field is missing",
    ),
    "an object in OpenAI's frame": (
        {"type": "json_object", "json_schema": {"schema": SCHEMA}},
        "in the field schema",
    ),
    "a number": ({"type": "json_schema", "schema": 5}, "5 is not an object"),
}


@pytest.mark.parametrize(("answer_format", "words"), WRONG_FORMATS.values(), ids=WRONG_FORMATS)
def test_a_wrong_format_is_named(answer_format, words):
    with pytest.raises(InvalidFieldError) as of_request:
        read_body(PromptFields, {"prompt": "x", "response_format": answer_format}, is_strict=False)
    with pytest.raises(InvalidLineError) as of_line:
        grammar_of_line({"response_format": answer_format})
    assert words in str(of_request.value)
    assert words in str(of_line.value)
    assert of_request.value.field == "response_format"
