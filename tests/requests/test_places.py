"""A wrong value in the body of a line is reported with the path of its field."""

from __future__ import annotations

from typing import Any

import pytest
from logitsmith.common.errors import LogitsmithError
from logitsmith.presets.overrides import Override
from logitsmith.presets.settings import resolve_settings
from logitsmith.requests.lines import read_request_line
from logitsmith.requests.resolve import RequestDefaults, RequestResolver, grammar_of

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
