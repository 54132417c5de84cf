"""`generate` under a grammar: ends, forced tokens, completed sentences."""

import json

import numpy as np
import pytest
from logitsmith.engine import Token, generate
from logitsmith.grammars import GrammarError, compile_grammar
from logitsmith.grammars.constraint import BackgroundConstraint
from logitsmith.grammars.spec import TriggeredConstraint
from logitsmith.samplers import build

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "city": {"type": "string", "maxLength": 20},
        },
        "required": ["name", "age", "city"],
        "additionalProperties": False,
    }
)
PROMPT = "A user record in JSON: "


def run(model, constraint, prompt=PROMPT, chain="top-k40 > temp0.8", seed=3, **options):
    options.setdefault("max_tokens", 120)
    events = list(generate(model, prompt, build(chain, seed=seed, vocab=model.vocabulary), constraint, **options))
    return events[0], [event for event in events if isinstance(event, Token)], events[-1]


@pytest.fixture(scope="session")
def records(model):
    return compile_grammar(SCHEMA, model.vocabulary, kind="json_schema")


def test_a_run_ends_with_its_sentence(model, records):
    start, tokens, done = run(model, records.start())
    assert done.finish_reason == "grammar"
    assert done.complete is True
    assert set(json.loads(done.text)) == {"name", "age", "city"}
    assert records.matches(done.text)
    assert start.grammar["kind"] == "json_schema"
    assert not any(model.vocabulary.is_eog(token.chosen.id) for token in tokens)


def test_without_a_grammar_its_fields_are_empty(model):
    start, _, done = run(model, None, max_tokens=3)
    assert (start.grammar, done.complete, done.forced_tokens) == (None, None, 0)


def test_the_model_may_end_where_the_sentence_may(model):
    grammar = compile_grammar('root ::= "a" [a-z]*', model.vocabulary)
    chain = [{"logit_bias": {model.vocabulary.end: 100}}, "greedy"]
    _, _, done = run(model, grammar.start(), chain=chain)
    assert (done.finish_reason, done.complete, done.completion_tokens) == ("stop", True, 2)
    assert grammar.matches(done.text)


def test_max_tokens_may_cut_the_sentence_off(model, records):
    _, tokens, done = run(model, records.start(), max_tokens=4)
    assert (done.finish_reason, done.complete, len(tokens)) == ("length", False, 4)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13])
def test_complete_sentence_completes_it(model, records, limit):
    _, tokens, done = run(model, records.start(), max_tokens=limit, complete_sentence=True)
    assert (done.finish_reason, done.complete) == ("length", True)
    assert records.matches(done.text)
    assert len(tokens) > limit
    begun = run(model, records.start(), max_tokens=limit)[2].text
    assert done.text.startswith(begun)


def test_the_last_token_may_complete_the_sentence(model):
    grammar = compile_grammar('root ::= "a" | "b"', model.vocabulary)
    _, _, done = run(model, grammar.start(), max_tokens=1)
    assert (done.finish_reason, done.complete) == ("grammar", True)


class Canonical:
    """The grammar, but if tokens are forced, its mask allows only the first of them."""

    def __init__(self, state):
        self.state = state

    def mask(self):
        forced = self.state.forced_tokens()
        mask = self.state.mask()
        return mask & (np.arange(mask.size) == forced[0]) if forced else mask

    def __getattr__(self, name):
        return getattr(self.state, name)

    def forced_tokens(self):
        return self.state.forced_tokens()

    def accept(self, token):
        self.state.accept(token)

    @property
    def is_complete(self):
        return self.state.is_complete


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
@pytest.mark.parametrize("chain", ["top-k40 > temp0.8", "temp0.9 > mirostat_v2(tau=4)", "xtc(probability=0.5)"])
def test_jumping_changes_nothing_where_the_tokens_are_the_same(model, records, chain, seed):
    runs = [
        run(model, Canonical(records.start()), chain=chain, seed=seed, jump=jump, top_logprobs=2)
        for jump in (True, False)
    ]
    jumped, walked = runs
    assert jumped[2].forced_tokens > 5
    assert walked[2].forced_tokens == 0
    assert jumped[2].text == walked[2].text
    assert jumped[2].finish_reason == walked[2].finish_reason
    assert [token.chosen.id for token in jumped[1]] == [token.chosen.id for token in walked[1]]
    for one, other in zip(jumped[1], walked[1], strict=True):
        assert one.chosen.logprob == pytest.approx(other.chosen.logprob, abs=1e-6)
        assert [top.id for top in one.top] == [top.id for top in other.top]


def test_forced_tokens_go_no_further_than_the_limit_or_a_stop(model, records):
    _, tokens, done = run(model, records.start(), max_tokens=2)
    assert (len(tokens), done.forced_tokens, done.finish_reason) == (2, 2, "length")
    _, _, done = run(model, records.start(), stop=["name"])
    assert (done.finish_reason, done.text, done.complete) == ("stop", '{"', False)


def test_forced_tokens_go_no_further_than_the_context(small_context):
    model = small_context
    records = compile_grammar(SCHEMA, model.vocabulary, kind="json_schema")
    room = model.context.length - len(model.vocabulary.tokenize(PROMPT.encode()))
    prompt = model.vocabulary.tokenize(PROMPT.encode()) + [28] * (room - 2)
    _, tokens, done = run(model, records.start(), prompt=prompt)
    assert (len(tokens), done.finish_reason) == (3, "context")


def test_a_triggered_constraint_leaves_the_model_free_first(bundled):
    model, records = bundled, compile_grammar(SCHEMA, bundled.vocabulary, kind="json_schema")
    prompt = "Think, write END, then the record. I think that it is fine. END"
    _, _, done = run(model, TriggeredConstraint(records, "fox"), prompt="The quick brown", chain="greedy")
    assert "fox" in done.text
    record = done.text.split("fox", 1)[1]
    assert records.matches(record)
    assert done.complete is True
    _, _, done = run(model, TriggeredConstraint(records, "no such text"), prompt=prompt, max_tokens=10)
    assert (done.finish_reason, done.complete) == ("length", False)


def test_a_grammar_compiled_in_the_background_is_the_same(model, records):
    made = BackgroundConstraint(records.start, records.start().description)
    assert run(model, made)[2].text == run(model, records.start())[2].text

    def fail():
        raise GrammarError("it is wrong")

    with pytest.raises(GrammarError, match="it is wrong"):
        run(model, BackgroundConstraint(fail, {}))
