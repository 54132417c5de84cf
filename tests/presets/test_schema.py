"""The JSON Schema, checked by a small validator of our own: it holds for good files and against bad ones."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from logitsmith.presets import Preset, PresetError, load_preset, preset_json_schema
from logitsmith.presets.search import BUILT_IN
from logitsmith.presets.yaml_reader import parse_yaml_scalar
from logitsmith.samplers import catalogue

SCHEMA = json.loads(json.dumps(preset_json_schema()))
KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
UNDERSTOOD = {
    "$defs", "$ref", "$schema", "additionalProperties", "anyOf", "const", "default", "description", "enum",
    "exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maximum", "minLength", "minimum", "pattern",
    "properties", "required", "title", "type",
}  # fmt: skip


def holds(schema: Any, value: Any) -> bool:
    """Validate the part of JSON Schema that ours uses; an unknown keyword is an error of the test."""
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= UNDERSTOOD
    if "$ref" in schema and not holds(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], value):
        return False
    if "type" in schema:
        right = isinstance(value, KINDS[schema["type"]])
        if not right or (isinstance(value, bool) and schema["type"] != "boolean"):
            return False
    checks = [
        "anyOf" not in schema or any(holds(option, value) for option in schema["anyOf"]),
        "const" not in schema or (value == schema["const"] and type(value) is type(schema["const"])),
        "enum" not in schema or value in schema["enum"],
    ]
    if isinstance(value, (int, float)):
        checks += [
            value >= schema.get("minimum", value),
            value <= schema.get("maximum", value),
            "exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"],
            "exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"],
        ]
    if isinstance(value, str):
        checks.append(len(value) >= schema.get("minLength", 0))
        checks.append(re.search(schema.get("pattern", ""), value) is not None)
    if isinstance(value, list):
        checks.append(len(value) <= schema.get("maxItems", len(value)))
        checks += [holds(schema.get("items", True), item) for item in value]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        checks.append(set(schema.get("required", ())) <= set(value))
        checks += [
            holds(known.get(str(key), schema.get("additionalProperties", True)), item)
            for key, item in value.items()
        ]
    return all(checks)


FILES = sorted(path.name for path in BUILT_IN.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES)
def test_built_in_preset(file: str) -> None:
    assert holds(SCHEMA, parse_yaml_scalar((BUILT_IN / file).read_text(encoding="utf-8")))


GOOD = {
    "name": "chain: [top_k, dist]",
    "alias": "chain: [temp, {nucleus: 0.5}]",
    "dashes": "chain: [{top-k: 3}, {min-p: {p: 0.1}}]",
    "space": "chain: [{top_k: }]",
    "table": "chain: [{top_p: {p: 0.5, boundary: exclude}}]",
    "notation": "chain: top_k40 > temp0.8",
    "bias": "chain: [{logit_bias: {5: 1, a: false, 6: -inf, 7: '-inf'}}]",
    "bias_table": "chain: [{logit_bias: {bias: {5: 1}}}]",
    "one_for_a_list": "chain: [{ban: the}, {ban: 5}, {ban: {tokens: 5, strings: the}}, {dry: {breakers: .}}]",
    "lists_of_texts": "chain: [{ban: [5, the]}, {ban: {strings: [a, b]}}, {dry: {breakers: [., '']}}]",
    "nothing_for_a_list": "chain: [{dry: {breakers: }}, {ban: {tokens: }}]",
    "no_parameters": "chain: [{ignore_eos: }, {greedy: {}}]",
    "settings": "{seed: 0, max_tokens: -1, stop: a, system: b, grammar: {type: object}}",
    "lists": "{stop: [a, b], grammar: 'root ::= x', seed: null}",
}

BAD = {
    "unknown_key": "chian: []",
    "unknown_sampler": "chain: [nope]",
    "unknown_parameter": "chain: [{top_p: {q: 1}}]",
    "empty_string": "chain: [{ban: {strings: ['']}}]",
    "list_of_numbers": "chain: [{dry: {breakers: [1]}}]",
    "true_for_a_list": "chain: [{ban: true}]",
    "two_names": "chain: [{top_k: 1, top_p: 0.5}]",
    "range": "chain: [{top_p: 1.5}]",
    "range_in_table": "chain: [{top_p: {p: -1}}]",
    "kind": "chain: [{top_k: many}]",
    "choice": "chain: [{top_p: {boundary: both}}]",
    "parameter_of_none": "chain: [{dist: 3}]",
    "seed": "seed: -9223372036854775809",
    "seed_too_large": "seed: 9223372036854775808",
    "max_tokens": "max_tokens: 0",
    "stop": "stop: ['']",
    "bias": "chain: [{logit_bias: {bias: {5: true}}}]",
    "chain": "chain: 3",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_schema_and_reader_both_accept(text: str) -> None:
    table = parse_yaml_scalar(text)
    Preset.from_table(table)
    assert holds(SCHEMA, table)


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_schema_and_reader_both_refuse(text: str) -> None:
    table = parse_yaml_scalar(text)
    with pytest.raises(PresetError):
        Preset.from_table(table)
    assert not holds(SCHEMA, table)


def test_what_an_editor_shows() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(SCHEMA["properties"]) == set(Preset.model_fields)
    assert all(field["description"] for field in SCHEMA["properties"].values())
    assert set(SCHEMA["$defs"]) == set(catalogue())
    assert SCHEMA["$defs"]["top_k"]["properties"]["k"] == {
        "type": "integer",
        "minimum": -1,
        "default": 40,
        "description": "number of tokens to keep; 0 or -1 = off",
    }


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_sampler_by_every_name(name: str) -> None:
    for spelling in (name, *catalogue()[name].about.aliases):
        assert holds(SCHEMA, {"chain": [spelling]})
        assert holds(SCHEMA, {"chain": [{spelling: catalogue()[name]().model_dump()}]})


def test_load_agrees_with_the_schema_s_default() -> None:
    assert SCHEMA["properties"]["chain"]["default"] == load_preset("default").chain
