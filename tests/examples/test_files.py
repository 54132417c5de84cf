"""The presets, grammars and requests of examples/ are right."""

import json

import pytest
from logitsmith.grammars import BYTE_VOCABULARY, compile_grammar
from logitsmith.grammars.spec import KIND_OF_SUFFIX
from logitsmith.presets import PresetError, load_preset

from .conftest import EXAMPLES

TEXTS = {
    "dice.gbnf": ("3d6 + d20-2", "3d7"),
    "haiku.gbnf": ("Rain on the roof,\nsoft as a breath\nof sleeping cats.\n", "Rain.\n"),
    "person.json": ('{"name": "Ada", "age": 34, "city": "Lyon"}', '{"name": "Ada"}'),
}


def test_each_grammar_is_tried():
    assert {path.name for path in (EXAMPLES / "grammars").iterdir()} == set(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_grammar(name):
    right, wrong = TEXTS[name]
    path = EXAMPLES / "grammars" / name
    grammar = compile_grammar(path.read_text(encoding="utf-8"), BYTE_VOCABULARY, KIND_OF_SUFFIX[path.suffix])
    assert grammar.matches(right)
    assert not grammar.matches(wrong)


@pytest.mark.parametrize("path", sorted((EXAMPLES / "presets").iterdir()), ids=lambda path: path.stem)
def test_preset_is_read(path):
    if path.stem == "lipogram":  # its sampler is a plug-in, which is not installed here
        with pytest.raises(PresetError, match="unknown sampler 'lipogram'"):
            load_preset(str(path))
    else:
        assert load_preset(str(path)).description


def test_requests_are_answered(gen):
    printed = gen("batch", str(EXAMPLES / "data" / "requests.jsonl"), "--format", "jsonl", "-c", "256")
    results = {result["id"]: result for result in map(json.loads, printed.splitlines())}
    assert set(results) == {"capital", "sea", "dice"}
    assert results["capital"]["text"] == " Paris."
    assert results["dice"]["complete"]
