"""`GenerationRequest.of` and `TextRules.of`: the fields of a request one by one, rules as a preset writes them."""

import pytest
from logitsmith.engine import GenerationRequest, Guidance, LogprobRequest, TextRules, generate
from logitsmith.grammars.bans import parse_bans
from logitsmith.samplers.building import build_phases
from logitsmith.samplers.loop_guard import LoopGuard

PHASES = build_phases([{"until": "a", "chain": ["temperature", "dist"]}, {"max_tokens": 3}, {}])
GUARD = LoopGuard(action="stop", repeats=4)
VALUES = {
    "bans": ("x", {"regex": "y+"}),
    "ban_retries": 3,
    "ban_then": "keep",
    "loop_guard": {"action": "stop", "repeats": 4},
    "phases": [phase.as_setting() for phase in PHASES],
    "heal": True,
    "guidance": {"scale": 2.0, "negative_prompt": "b"},
}
RULES = TextRules(parse_bans(["x", {"regex": "y+"}]), 3, "keep", GUARD, PHASES, True, Guidance(2.0, "b"))


def test_rules_as_tables_are_those_of_their_types():
    found = TextRules.of(VALUES)
    assert found.as_json() == RULES.as_json()
    assert TextRules.of(RULES.as_json()).as_json() == RULES.as_json()
    assert TextRules.of(dict.fromkeys(VALUES)) == TextRules() == TextRules.of({})


def test_fields_one_by_one_are_a_request():
    found = GenerationRequest.of("a", "greedy", max_tokens=3, top_logprobs=2, bans="x", heal=True)
    rules = TextRules(parse_bans("x"), heal=True)
    assert found == GenerationRequest("a", "greedy", max_tokens=3, logprobs=LogprobRequest(2), rules=rules)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        pytest.param({"rules": TextRules(), "heal": True}, "heal is one of the rules", id="rules twice"),
        pytest.param({"logprobs": LogprobRequest(1), "top_logprobs": 2}, "give one of both", id="logprobs twice"),
        pytest.param({"top_q": 2}, "top_q", id="an unknown field"),
    ],
)
def test_what_is_given_twice_is_an_error(fields, part):
    with pytest.raises(TypeError, match=part):
        GenerationRequest.of("a", "greedy", **fields)


@pytest.mark.parametrize("fields", [{"chain": "greedy"}, {"max_tokens": 3}], ids=["a chain", "a field"])
def test_a_request_has_all_its_fields(fields):
    with pytest.raises(TypeError, match="in itself"):
        generate(None, GenerationRequest("a", "greedy"), **fields)
    with pytest.raises(TypeError, match="needs a chain"):
        generate(None, "a")
