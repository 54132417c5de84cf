"""A wrong value in the body of a line is reported with the path of its field."""

from __future__ import annotations

from typing import Any

import pytest
from logitsmith.common.errors import InvalidFieldError, LogitsmithError
from logitsmith.presets.overrides import Override
from logitsmith.presets.settings import resolve_settings
from logitsmith.requests.decision_fields import DecisionFields
from logitsmith.requests.fields import ChatFields, PromptFields, read_body
from logitsmith.requests.lines import read_request_line
from logitsmith.requests.resolve import RequestDefaults, RequestResolver, grammar_of
from logitsmith.requests.response_fields import ResponseFields
from logitsmith.serve.grammar_routes import GrammarCheckFields
from logitsmith.serve.next_token import NextTokenOfPrompt
from logitsmith.serve.tokenizer_routes import EncodeFields

OPEN_GROUP = "("
WRONG_SCHEMA = {"type": 5}
# the path that the message begins with, by the body
BODIES: dict[str, dict[str, Any]] = {
    "body.logit_bias:": {"logit_bias": {"x": "y"}},
    "body.banned_regex[0]:": {"banned_regex": [OPEN_GROUP]},
    "body.banned_regex_case_insensitive[1]:": {"banned_regex_case_insensitive": ["a", OPEN_GROUP], "bans": "x"},
    "body.bans[0]:": {"bans": [{"regex": OPEN_GROUP}], "banned_strings": ["x"]},
    "body.bans:": {"bans": {"regex": OPEN_GROUP}},
    "body.banned_strings:": {"banned_strings": "[5"},
    "body.custom_token_bans:": {"custom_token_bans": "a,b"},
    "body.grammar:": {"grammar": "root ::= ("},
    "body.grammar.json_schema:": {"grammar": {"json_schema": 5}},
    "body.json_schema:": {"json_schema": WRONG_SCHEMA},
    "body.guided_json:": {"guided_json": WRONG_SCHEMA},
    "body.guided_regex:": {"guided_regex": OPEN_GROUP},
    "body.ebnf:": {"ebnf": "nothing"},
    "body.response_format:": {"response_format": {"type": "json_object", "schema": WRONG_SCHEMA}},
    "body.structured_outputs:": {"structured_outputs": {"regex": OPEN_GROUP}},
    "body.mirostat:": {"mirostat": 1, "chain": "greedy"},
    "body.mirostat_mode:": {"mirostat_mode": 7},
    "body.rep_pen_slope:": {"rep_pen_slope": "a"},
    "body.sampler_order:": {"sampler_order": [9]},
    "body.set top_p:": {"set": {"top_p": 3}},
    "body.chain:": {"chain": "nothing"},
    "body.preset:": {"preset": "nothing"},
    "body.preset model:": {"preset": "model"},
    "body.speculative.n_max:": {"speculative.n_max": 65},
}


def read_and_compile(record):
    resolver = RequestResolver(RequestDefaults(), {}, print)
    asked = read_request_line(record, 1).asked
    for request in resolver.requests(asked, resolver.settings(asked, []), seed=0):
        request.constraint.compile(None)


@pytest.mark.parametrize(("path", "fields"), BODIES.items(), ids=BODIES)
def test_path(path, fields):
    record = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi", **fields}}
    with pytest.raises(LogitsmithError) as caught:
        read_and_compile(record)
    assert str(caught.value).startswith(path)


WRONG_BODIES = {
    "no field": (ChatFields, {}, "messages: the field is missing"),
    "no items": (ChatFields, {"messages": []}, "messages: there are 0 items; the minimum is 1"),
    "a wrong item": (ChatFields, {"messages": ["a"]}, "messages[0]: 'a' is not an object"),
    "a field of an item": (
        ChatFields,
        {"messages": [{"role": "user", "content": "a"}, {"content": "a"}]},
        "messages[1].role: the field is missing",
    ),
    "a field of a part": (
        ChatFields,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        "messages[0].content[0].text: 5 is not a string",
    ),
    "a wrong number in a list of lists": (
        PromptFields,
        {"prompt": [[1], [2, "a"]]},
        "prompt[1][1]: 'a' is not an integer",
    ),
    "no item of a response": (ResponseFields, {"input": []}, "input: there are 0 items; the minimum is 1"),
    "an item of a response": (
        ResponseFields,
        {"input": [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image"}]}]},
        "input[1].content[0].type: 'image' is not supported; the models read text only",
    ),
    "a text in a table of texts": (
        ResponseFields,
        {"input": "a", "metadata": {"b": 5}},
        "metadata.b: 5 is not a string",
    ),
    "an item of a decision": (
        DecisionFields,
        {"input": [{"role": "me", "content": "a"}], "questions": []},
        "input[0].role: 'me' is not system, developer, user or assistant",
    ),
    "too many items": (
        NextTokenOfPrompt,
        {"prompt": "a", "against": ["greedy"] * 17},
        "against: there are 17 items; the maximum is 16",
    ),
    "a long text": (
        GrammarCheckFields,
        {"grammar": "json", "text": "a" * 100_001},
        "text: there are 100,001 characters; the maximum is 100,000",
    ),
    "a list of a wrong type": (EncodeFields, {"messages": 5}, "messages: 5 is not a list"),
    "a choice that cannot be written": (
        PromptFields,
        {"prompt": "a", "structured_outputs": {"choice": []}},
        "structured_outputs.choice: there are 0 items; the minimum is 1",
    ),
}
"""By kind of problem: every body says it in one style, and in our own words."""


@pytest.mark.parametrize(("fields_type", "body", "message"), WRONG_BODIES.values(), ids=WRONG_BODIES)
def test_what_is_wrong_in_a_body(fields_type, body, message):
    with pytest.raises(InvalidFieldError) as caught:
        read_body(fields_type, body, is_strict=False)
    assert str(caught.value) == message


GRAMMARS = {
    "a text": ("--grammar", {"gbnf": 'root ::= "a"'}, "--grammar"),
    "a field": ("body.json_schema", {"json_schema": {}}, "body.json_schema"),
    "a name": ("--grammar", {"name": "json"}, "--grammar: grammar json"),
    "a preset": ("preset mine", {"regex": "a"}, "preset mine: regex"),
}


@pytest.mark.parametrize(("origin", "value", "label"), GRAMMARS.values(), ids=GRAMMARS)
def test_what_a_grammar_is_called_in_errors(origin, value, label):
    settings = resolve_settings(None, flags=[Override(origin, "grammar", value)])
    assert grammar_of(settings, is_lenient=False).label == label
