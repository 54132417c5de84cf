"""The trace of each token: it changes nothing, and it is what a whole row shows."""

import dataclasses
import json
import math

import numpy as np
import pytest
from logitsmith.engine import (
    BatchAnswer,
    GenerationRequest,
    LogprobRequest,
    Token,
    generate,
    generate_many,
)
from logitsmith.grammars import compile_grammar, resolve_grammar
from logitsmith.samplers import build

PROMPT = "The sea was"
CHAINS = {
    "default": "penalties > top-k40 > top-p0.95 > min-p0.05 > temp0.8",
    "temperature alone": "temp0.9",
    "greedy": "greedy",
    "mirostat": "temp1.5 > mirostat",
    "mirostat_v2": "temp1.5 > mirostat-v2",
    "adaptive_p": "min-p0.05 > adaptive-p0.4",
    "xtc": "xtc(probability=0.5, threshold=0.05) > temp1",
    "stateful": "penalties(repeat=1.3) > dry0.8 > no-repeat-ngram3 > min-tokens5 > typical0.9 > temp1",
    "unordered": "top-n-sigma2 > quadratic0.3 > skew0.4 > dynatemp0.5",
    "infill": "top-k40 > infill",
}


def run(model, prompt=PROMPT, chain=CHAINS["default"], seed=5, constraint=None, **options):
    options.setdefault("max_tokens", 16)
    built = build(chain, seed=seed, vocab=model.vocabulary)
    events = list(generate(model, prompt, built, constraint, **options))
    return events[0], [event for event in events if isinstance(event, Token)], events[-1]


def without_trace(tokens):
    return [dataclasses.replace(token, trace=None) for token in tokens]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_tokens_and_logprobs_are_the_same(model, chain):
    read = {"top_logprobs": 3, "logprobs_from": "both"}
    _, plain, done = run(model, chain=chain, **read)
    _, traced, end = run(model, chain=chain, trace=4, **read)
    assert without_trace(traced) == plain
    assert all(token.trace is None for token in plain)
    assert all(token.trace is not None for token in traced)
    assert end.text == done.text


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_trace_is_what_the_whole_rows_show(model, chain):
    """The model's row and the row that was drawn from are read apart from the trace."""
    _, tokens, _ = run(model, chain=chain, trace=5, top_logprobs=-1, logprobs_from="both", max_tokens=8)
    for token in tokens:
        trace = token.trace
        rows = [np.frombuffer(each.row, "<f4").astype(np.float64) for each in token.distributions]
        for stage, row in zip((trace.stages[0], trace.stages[-1]), rows, strict=True):
            probs = np.exp(row)
            assert stage.kept == np.count_nonzero(np.isfinite(row))
            terms = np.where(probs > 0, probs * np.where(np.isfinite(row), row, 0), 0)
            assert stage.entropy == pytest.approx(-terms.sum(), abs=2e-4)
        likeliest = {
            index for row in rows for index in np.argsort(-row, kind="stable")[:5] if np.isfinite(row[index])
        }
        assert likeliest | {token.id} <= {candidate.id for candidate in trace.candidates}
        for candidate in trace.candidates:
            assert candidate.probs[0] == pytest.approx(math.exp(rows[0][candidate.id]), rel=1e-5)
            if candidate.dropped_by is None:
                assert candidate.probs[-1] == pytest.approx(math.exp(rows[1][candidate.id]), rel=1e-5)
            else:
                assert np.isneginf(rows[1][candidate.id])
                assert candidate.probs[candidate.dropped_by] is None
                assert candidate.probs[candidate.dropped_by - 1] is not None
                assert set(candidate.probs[candidate.dropped_by :]) == {None}
            assert [logit is None for logit in candidate.logits] == [prob is None for prob in candidate.probs]
        assert [candidate.logits[0] for candidate in trace.candidates] == sorted(
            (candidate.logits[0] for candidate in trace.candidates), reverse=True
        )


def test_stages_name_the_steps_of_the_start_event(model):
    start, tokens, _ = run(model, trace=1, max_tokens=1)
    assert start.trace == 1
    (token,) = tokens
    steps = [(stage.name, stage.step) for stage in token.trace.stages]
    assert steps == [("model", None), *((next(iter(step)), number) for number, step in enumerate(start.chain))]
    assert token.id in [candidate.id for candidate in token.trace.candidates]


@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_most_likely_of_every_stage_are_there(model, count):
    _, tokens, _ = run(model, trace=count, chain="xtc(probability=1, threshold=0.05) > temp1")
    for token in tokens:
        for number, stage in enumerate(token.trace.stages):
            held = sum(candidate.probs[number] is not None for candidate in token.trace.candidates)
            assert held >= min(count, stage.kept)


def test_u_lies_in_the_interval_of_the_token(model):
    _, tokens, _ = run(model, chain="temp1.2", trace=1, max_tokens=20)
    for token in tokens:
        draw = token.trace.draw
        chosen = next(each for each in token.trace.candidates if each.id == token.id)
        assert draw.low <= draw.u <= draw.high
        assert draw.high - draw.low == pytest.approx(chosen.probs[-1], rel=1e-4)


def test_greedy_draws_nothing(model):
    _, tokens, _ = run(model, chain="greedy", trace=2)
    assert [token.trace.draw for token in tokens] == [None] * 16


SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize("options", [{}, {"jump": False}, {"max_tokens": 3, "complete_sentence": True}])
def test_under_a_grammar(model, options):
    grammar = compile_grammar(SCHEMA, model.vocabulary, kind="json_schema")
    options = {"max_tokens": 40, "top_logprobs": 2, "logprobs_from": "both", **options}
    _, plain, done = run(model, "A record: ", constraint=grammar.start(), **options)
    _, traced, _ = run(model, "A record: ", constraint=grammar.start(), trace=5, **options)
    assert without_trace(traced) == plain
    assert sum(token.trace.forced for token in traced) == done.forced_tokens
    assert (done.forced_tokens > 0) is options.get("jump", True)
    for token in traced:
        trace = token.trace
        assert [stage.name for stage in trace.stages[:2]] == ["model", "grammar"]
        chosen = next(each for each in trace.candidates if each.id == token.id)
        assert chosen.probs[1] is not None
        if trace.forced:
            assert trace.draw is None
        dropped = [each for each in trace.candidates if each.dropped_by == 1]
        assert all(each.logits[1:] == (None,) * (len(trace.stages) - 1) for each in dropped)


@pytest.mark.parametrize("deterministic", [False, True])
def test_in_a_batch(model, deterministic):
    prompts = ["The sea was", "Once upon a time", "In the garden"]
    names = ["default", "mirostat_v2", "xtc"]

    def requests(trace):
        for number, (prompt, name) in enumerate(zip(prompts, names, strict=True)):
            constraint = resolve_grammar("json", ()).start(model.vocabulary) if number == 2 else None
            yield GenerationRequest(
                prompt,
                build(CHAINS[name], seed=number, vocab=model.vocabulary),
                constraint,
                max_tokens=10,
                logprobs=LogprobRequest(2, "both"),
                trace=trace,
                id=number,
            )

    def answers(trace):
        found = list(generate_many(model, requests(trace), 3, deterministic=deterministic))
        assert all(isinstance(answer, BatchAnswer) for answer in found), found
        return {answer.id: answer for answer in found}

    plain, traced = answers(None), answers(4)
    for key, answer in traced.items():
        assert without_trace(answer.tokens) == list(plain[key].tokens)
        assert answer.start.trace == 4
        assert all(token.trace.stages[-1].kept >= 1 for token in answer.tokens)
