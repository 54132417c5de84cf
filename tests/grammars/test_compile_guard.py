"""Grammars that crash llguidance, or need too many states, are errors in each kind of grammar."""

import json
import time

import pytest
from logitsmith.grammars import GrammarError, compile_grammar, shortest_completion
from logitsmith.grammars.compile_guard import CompileGuard, Task, is_plainly_safe
from logitsmith.grammars.tokenizer import BYTE_VOCABULARY


def linked_definitions(count):
    definitions = {f"a{n}": {"properties": {"x": {"$ref": f"#/$defs/a{n + 1}"}}} for n in range(count)}
    return json.dumps({"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{count}": {"type": "integer"}}})


def linked_references(count):
    definitions = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(count)}
    return json.dumps({"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{count}": {"type": "integer"}}})


def linked_rules(count, name):
    rules = "".join(f'{name}{n}: "a" {name}{n + 1}\n' for n in range(count))
    return f'start: {name}0\n{rules}{name}{count}: "b"\n'


CRASHES = {
    "linked definitions": ("json_schema", lambda: linked_definitions(1500)),
    "a chain of references": ("json_schema", lambda: linked_references(6000)),
    "a chain of rules": ("lark", lambda: linked_rules(6000, "r")),
    "a chain of terminals": ("lark", lambda: linked_rules(6000, "T")),
    "the lowest int64 in Lark": ("lark", lambda: 'start: %json {"const": -9223372036854775808}\n'),
}


@pytest.mark.parametrize(("kind", "make"), CRASHES.values(), ids=CRASHES)
def test_a_grammar_that_crashes_llguidance_is_an_error(kind, make):
    with pytest.raises(GrammarError, match=r"too deeply|processor time|memory"):
        compile_grammar(make(), kind=kind)


@pytest.mark.slow
def test_a_guard_counts_the_time_of_forced_text():
    guard = CompileGuard(BYTE_VOCABULARY, 1, 2)
    try:
        guard.check(Task("regex", "a{100000}b"))
        with pytest.raises(GrammarError, match="processor time"):
            guard.check(Task("regex", "((a{1000}){1000}){1000}"))
    finally:
        guard.close()


# Each row: the kind, the source, and whether it needs no other process.
SAFE = {
    "a schema": ("json_schema", '{"properties":{"a":{"type":"string","maxLength":200}},"required":["a"]}', True),
    "a regex": ("regex", "[a-z]{1,200}(,[0-9]+)*", True),
    "GBNF": ("gbnf", 'root ::= "(" root ")" | [a-z]+', True),
    "GBNF beyond ASCII": ("gbnf", 'root ::= "&~" root "ü" | [\u3042-\u4e00]+', True),
    "definitions": ("json_schema", linked_definitions(100), False),
    "a huge count": ("regex", "a{100000}", False),
    "an intersection": ("lark", "start: A\nA: /a.*/ & /.*b/\n", False),
    "deep groups": ("regex", "(" * 200 + "a" + ")" * 200, False),
}


@pytest.mark.parametrize(("kind", "source", "is_safe"), SAFE.values(), ids=SAFE)
def test_only_grammars_that_are_small_in_each_respect_are_compiled_at_once(kind, source, is_safe):
    assert is_plainly_safe(compile_grammar(source, kind=kind).lark) is is_safe


def test_a_pattern_with_too_many_states_is_an_error_with_its_path():
    words = {"type": "string", "pattern": r"^(\S+\s+){0,99}\S+$"}
    with pytest.raises(GrammarError, match="/properties/a/pattern: together with maxLength") as caught:
        compile_grammar(json.dumps({"properties": {"a": {**words, "maxLength": 5000}}}), kind="json_schema")
    assert caught.value.advice
    assert compile_grammar(json.dumps(words), kind="json_schema").matches(json.dumps(" ".join(["word"] * 90)))


def test_an_error_in_one_text_does_not_reach_others():
    grammar = compile_grammar("start: A\nA: /(\\S+\\s+){0,99}\\S+/ & /(?s:.{0,5000})/", kind="lark")
    with pytest.raises(GrammarError, match="too many states"):
        grammar.matches(" ".join(["word"] * 90))
    assert grammar.matches("word")


# Each row: the kind, the source, and the length of the end that is found.
ENDS = {
    "a pattern without anchors": ("json_schema", '{"type":"string","pattern":"ab"}', 4),
    "two patterns": ("json_schema", '{"type":"string","allOf":[{"pattern":"foo"},{"pattern":"bar"}]}', 8),
    "a pattern and a length": ("json_schema", '{"type":"string","pattern":"b$","minLength":30}', 32),
    "a length": ("json_schema", '{"type":"string","minLength":3000}', 3002),
    "items": ("json_schema", '{"type":"array","items":{"minimum":10,"type":"integer"},"minItems":999}', 3996),
    "more items": (
        "json_schema",
        '{"type":"array","items":{"minimum":10,"type":"integer"},"minItems":3000}',
        12000,
    ),
    "nested": ("json_schema", '{"properties":{"n":{"$ref":"#"},"v":{"pattern":"A-"}},"required":["v"]}', None),
    "a regex": ("regex", r".*ab.*\d{3}", 5),
    "a Unicode property": ("json_schema", r'{"type":"string","pattern":"\\p{Lu}x"}', 4),
}


@pytest.mark.parametrize(("kind", "source", "length"), ENDS.values(), ids=ENDS)
def test_the_end_of_a_pattern_is_found_at_once(kind, source, length):
    grammar = compile_grammar(source, kind=kind)
    start = time.process_time()
    end = shortest_completion(grammar, b"")
    assert time.process_time() - start < 3
    assert grammar.matches(end)
    assert length is None or len(end) == length
