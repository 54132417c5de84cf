"""The presets, grammars and requests of examples/ are right."""

import json

import pytest

from .conftest import EXAMPLES

TEXTS = {
    "dice.gbnf": ("3d6 + d20-2", "3d7"),
    "haiku.gbnf": ("Rain on the roof,\nsoft as a breath\nof sleeping cats.\n", "Rain.\n"),
    "person.json": ('{"name": "Ada", "age": 34, "city": "Lyon"}', '{"name": "Ada"}'),
}


def test_each_grammar_is_tried():
    assert {path.name for path in (EXAMPLES / "grammars").iterdir()} == set(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_grammar(gen, name):
    right, wrong = TEXTS[name]
    path = str(EXAMPLES / "grammars" / name)
    assert "matches" in gen("grammars", "check", path, "--text", right)
    with pytest.raises(AssertionError, match="line 1"):
        gen("grammars", "check", path, "--text", wrong)


def test_a_preset_makes_json(gen):
    printed = gen("Ada Moreau, a baker of 34, lives in Lyon.", "-P", str(EXAMPLES / "presets" / "extract.yaml"))
    assert set(json.loads(printed)) == {"name", "age", "city"}


def test_a_preset_is_read(gen):
    printed = gen("x", "-P", str(EXAMPLES / "presets" / "storyteller.yaml"), "--show-config")
    assert "dry.multiplier" in printed
    assert "preset storyteller" in printed


def test_requests_are_answered(gen):
    printed = gen("batch", str(EXAMPLES / "data" / "requests.jsonl"), "--format", "jsonl", "-c", "256")
    results = {result["id"]: result for result in map(json.loads, printed.splitlines())}
    assert set(results) == {"capital", "sea", "dice"}
    assert results["capital"]["text"] == " Paris."
    assert results["dice"]["complete"]
