"""A model's suppressed tokens: no run draws them, under no grammar; logprobs and scores keep them.

The model is one of random weights whose tokens are bytes and a few words, with the metadata that llama.cpp reads.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logitsmith.engine import GenerationRequest, Model, ModelError, Token, generate, generate_many, trace_next
from logitsmith.engine.beams import generate_beams
from logitsmith.engine.request import BeamSearch
from logitsmith.engine.scoring import score
from logitsmith.grammars import compile_grammar
from logitsmith.grammars.spec import GrammarSpec
from logitsmith.models.facts import read_facts
from logitsmith.samplers import SamplingError, build, parse_chain
from logitsmith.samplers.chain import Phase, StepSpec

from ..oracle.native import NativeChain
from .small_models import make_metadata, random_tensors, tensor_shapes, write_file

KEY = "tokenizer.ggml.suppress_tokens"
HE, LL, HELLO, IN, _TH, _BOS, EOS = range(256, 263)
"""The ids of the words; the id of a byte is the byte."""
SUPPRESSED = (ord("h"), HE, HELLO, ord("}"), ord("1"), EOS)
PROMPT = "he said "
SHAPES = {"tokens": 24, "seeds": (1, 2, 3)}


def int32s(*values: int) -> list[object]:
    return [np.int32(value) for value in values]


def write(path: Path, changes: dict[str, object]) -> Path:
    metadata = make_metadata("llama")
    write_file(path, metadata | changes, random_tensors(tensor_shapes(path, metadata)))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suppressed")


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[Model]:
    path = write(folder / "some.gguf", {KEY: int32s(*SUPPRESSED)})
    with Model.load(path, n_ctx=256, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def free_model(folder: Path) -> Iterator[Model]:
    """The same weights, and no suppressed token."""
    with Model.load(write(folder / "none.gguf", {}), n_ctx=256, threads=1) as loaded:
        yield loaded


def test_a_beam_search_finds_no_suppressed_token(model, free_model):
    # A sentence after which only a suppressed token could follow is complete.
    spec = GrammarSpec("test", "regex", "(x|he|th)(1?)")
    likely = [{"logit_bias": {"bias": dict.fromkeys(SUPPRESSED, 3.0)}}, "dist"]
    for constraint, chain in ((None, likely), (spec, "dist"), (None, [*likely[:1], {"top_k": 3}])):
        found, free = (
            generate_beams(each, GenerationRequest(PROMPT, chain, constraint, max_tokens=12, beams=BeamSearch(6)))
            for each in (model, free_model)
        )
        tokens = {event.id for events in found for event in events if isinstance(event, Token)}
        assert tokens.isdisjoint(SUPPRESSED)
        assert not {event.id for events in free for event in events[1:-1]}.isdisjoint(SUPPRESSED)
        if constraint is not None:
            assert {events[-1].text for events in found} == {"x", "th"}
            assert {events[-1].finish_reason for events in found} == {"grammar"}


def run(model, constraint=None, chain="temp1", seed=3, prompt=PROMPT, **options):
    """Return the tokens, and the last event."""
    model.context.truncate(0)
    options.setdefault("max_tokens", SHAPES["tokens"])
    built = build(chain, seed=seed, vocab=model.vocabulary)
    events = list(generate(model, prompt, built, constraint, **options))
    return [event for event in events if isinstance(event, Token)], events[-1]


def ids_of(tokens):
    return [token.id for token in tokens]


LISTS = {
    "absent": (None, set()),
    "some": ((5, 7), {5, 7}),
    "twice": ((5, 5), {5}),
    "out of range": ((-1, 5, 263, 70_000), {5}),
    "the first and the last": ((0, 262), {0, 262}),
}


@pytest.mark.parametrize(("ids", "expected"), LISTS.values(), ids=LISTS)
def test_the_list_of_the_file_is_read_as_llama_cpp_reads_it(tmp_path, ids, expected):
    path = write(tmp_path / "m.gguf", {} if ids is None else {KEY: int32s(*ids)})
    with Model.load(path, n_ctx=64) as loaded:
        assert loaded.vocabulary.suppressed == expected


def test_a_list_of_another_type_is_rejected_as_llama_cpp_rejects_it(tmp_path):
    path = write(tmp_path / "m.gguf", {KEY: [5, 7]})  # of the type UINT32
    with pytest.raises(ModelError, match=f"invalid gguf type for {KEY}"):
        Model.load(path, n_ctx=64)


def test_the_facts_of_a_file_name_them(tmp_path):
    facts = read_facts(write(tmp_path / "m.gguf", {KEY: int32s(5, 70_000, 104, 5)}))
    assert [(token.id, token.text) for token in facts.suppressed_tokens] == [(5, "\u0105"), (104, "h")]
    assert facts.as_json()["suppressed_tokens"][1]["purpose"] == "never drawn"
    assert read_facts(write(tmp_path / "none.gguf", {})).suppressed_tokens == ()


CHAINS = {
    "a draw": "temp1 > dist",
    "greedy": "greedy",
    "llama.cpp's usual chain": "penalties(repeat=1.2) > top_k40 > top_p0.95 > min_p0.05 > temp0.8 > dist",
    "steps that count candidates": "dynatemp(temperature=0.8, range=0.5) > dist",
    "more candidates than there are": "top_k262 > top_p0.999 > dist",
    "a threshold in deviations": "top_n_sigma1 > temp1.2 > dist",
    "its own random numbers": "xtc(probability=0.5, threshold=0.004) > dist",
    "mirostat": "temp1 > mirostat(tau=4, overflow=one)",
    "mirostat 2": "temp1 > mirostat_v2(tau=4)",
    "adaptive": "min_p0.01 > adaptive_p(target=0.3)",
}


def tokens_of_llama_cpp(model, steps, seed, count):
    """The tokens of llama.cpp's chain, which begins with biases of -inf, as common_sampler_init makes it."""
    prompt, drawn = model.vocabulary.tokenize_prompt(PROMPT.encode()), []
    suppression = {"logit_bias": {"bias": dict.fromkeys(SUPPRESSED, False)}}
    model.context.truncate(0)
    model.context.read(prompt)
    with NativeChain([suppression, *steps], vocabulary=model.vocabulary.size, seed=seed) as native:
        native.accept(*prompt)
        for _ in range(count):
            drawn.append(native.apply(model.context.logits().copy()).token)
            native.accept(drawn[-1])
            model.context.append_batch(drawn[-1:])
    return drawn


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_the_draws_are_those_of_llama_cpp(model, chain):
    for seed in SHAPES["seeds"]:
        expected = tokens_of_llama_cpp(model, build(chain).config, seed, SHAPES["tokens"])
        assert ids_of(run(model, chain=chain, seed=seed)[0]) == expected
        assert not set(expected) & set(SUPPRESSED)


def test_without_the_metadata_some_of_these_tokens_are_drawn(free_model):
    drawn = {token for seed in range(40) for token in ids_of(run(free_model, seed=seed)[0])}
    assert drawn & set(SUPPRESSED)


GRAMMARS = {
    "another token": 'root ::= ("in" | "1" | "x")+',
    "another sentence": 'root ::= "h" "." | "y" "."',
    "words": 'root ::= [a-z ]+ "."',
    "forced text": 'root ::= "in" [a-gi-z] "llin"',
}


@pytest.mark.parametrize("options", [{}, {"jump": False}, {"trace": 2}, {"lookup": 4}], ids=str)
@pytest.mark.parametrize("source", GRAMMARS.values(), ids=GRAMMARS)
def test_no_run_under_a_grammar_writes_one(model, source, options):
    grammar = compile_grammar(source, model.vocabulary)
    tokens, done = run(model, grammar.start(), **options)
    assert not set(ids_of(tokens)) & set(SUPPRESSED)
    assert done.finish_reason in ("grammar", "length")


def test_a_forced_text_is_spelled_with_other_tokens(model, free_model):
    source = 'root ::= "a}" | "a]" "in"'
    spelled = {}
    for name, each in (("suppressed", model), ("free", free_model)):
        grammar = compile_grammar('root ::= "llin" [xy] "th"', each.vocabulary)
        spelled[name] = ids_of(run(each, grammar.start())[0])
    assert spelled["suppressed"][:2] == spelled["free"][:2] == [LL, IN]
    tokens, done = run(model, compile_grammar(source, model.vocabulary).start())
    assert (done.text, ids_of(tokens)) == ("a]in", [ord("a"), ord("]"), IN])


COMPLETIONS = {
    "another spelling": ('root ::= [xyz] "thin!"', "thin!"),
    "another sentence, GBNF": ('root ::= [xyz] ("}" | "]!")', "]!"),
    "no other way": ('root ::= [xyz] "}"', None),
}


@pytest.mark.parametrize(("source", "completion"), COMPLETIONS.values(), ids=COMPLETIONS)
def test_a_completion_avoids_them(model, source, completion):
    grammar = compile_grammar(source, model.vocabulary)
    tokens, done = run(model, grammar.start(), max_tokens=1, complete_sentence=True, jump=False)
    assert not set(ids_of(tokens)) & set(SUPPRESSED)
    assert done.text[1:] == (completion or "")
    assert done.complete is (completion is not None)


def test_a_schema_is_completed_without_them(folder):
    path = write(folder / "digits.gguf", {KEY: int32s(*map(ord, "0123456789"), IN)})
    with Model.load(path, n_ctx=256) as loaded:
        schema = '{"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}, {"const": "in in in"}]}'
        grammar = compile_grammar(schema, loaded.vocabulary, kind="json_schema")
        tokens, done = run(loaded, grammar.start(), max_tokens=1, complete_sentence=True)
        assert done.complete
        assert not set(ids_of(tokens)) & loaded.vocabulary.suppressed


def test_where_only_such_tokens_are_allowed_the_error_says_so(model):
    grammar = compile_grammar('root ::= "a" "}"', model.vocabulary)
    with pytest.raises(SamplingError, match=rf"allows only tokens that the model suppresses .{KEY}., .* 125"):
        run(model, grammar.start())


def test_a_model_that_suppresses_all_tokens_is_an_error(tmp_path):
    path = write(tmp_path / "m.gguf", {KEY: int32s(*range(263))})
    with Model.load(path, n_ctx=64) as loaded, pytest.raises(SamplingError, match="suppresses all its tokens"):
        run(loaded)


def test_a_sentence_ends_where_only_such_tokens_may_follow(model):
    grammar = compile_grammar('root ::= "a" "}"*', model.vocabulary)
    _, done = run(model, grammar.start())
    assert (done.text, done.finish_reason, done.complete) == ("a", "grammar", True)


def test_the_text_that_ends_a_phase_is_written_anyway(model):
    first = Phase(tuple(StepSpec(sampler) for sampler in parse_chain("temp1")), "\n", 2, "hello\n")
    tokens, _ = run(model, phases=(first,), max_tokens=8)
    assert HELLO in ids_of(tokens)
    assert not set(ids_of(tokens[4:])) & set(SUPPRESSED)


def test_a_trace_has_a_stage_after_the_model(model):
    grammar = compile_grammar("root ::= [a-m]+", model.vocabulary)
    (token, *_), _ = run(model, grammar.start(), trace=300 - 37, max_tokens=1)
    names = [(stage.name, stage.kept) for stage in token.trace.stages]
    assert names[:3] == [("model", 263), ("suppressed", 257), ("grammar", 13)]
    assert token.trace.stages[1].note == "257 of 263 tokens allowed"
    dropped = {candidate.id for candidate in token.trace.candidates if candidate.dropped_by == 1}
    assert dropped == set(SUPPRESSED)
    assert ids_of([token]) == ids_of(run(model, grammar.start(), max_tokens=1)[0])


def test_the_next_token_is_shown_without_them(model):
    chain = build("top_k5", seed=1, vocab=model.vocabulary)
    result = trace_next(model, PROMPT, chain, against=[build("temp2", vocab=model.vocabulary)])
    assert [stage.name for stage in result.trace.stages] == ["model", "suppressed", "top_k", "dist"]
    assert not {c.id for c in result.trace.candidates if c.dropped_by is None} & set(SUPPRESSED)
    assert result.comparisons[0].trace.stages[1].kept == 257
    grammar = compile_grammar('root ::= "}" | "h"', model.vocabulary)
    with pytest.raises(SamplingError, match="only tokens that the model suppresses"):
        trace_next(model, PROMPT, chain, grammar.start())


def test_logprobs_are_the_models_own(model, free_model):
    (token, *_), _ = run(model, top_logprobs=-1, logprobs_from="both")
    (free, *_), _ = run(free_model, top_logprobs=-1, logprobs_from="both")
    rows = [{d.source: np.frombuffer(d.row, "<f4") for d in each.distributions} for each in (token, free)]
    assert np.array_equal(rows[0]["model"], rows[1]["model"])
    chain_row = rows[0]["chain"]
    assert set(np.flatnonzero(~np.isfinite(chain_row)).tolist()) == set(SUPPRESSED)


def test_scores_do_not_change(model, free_model):
    ids = model.vocabulary.tokenize_prompt(b"he said hello}")
    scores = [[token.chosen.logprob for token in list(score(each, ids))[1:]] for each in (model, free_model)]
    assert scores[0] == scores[1]


def test_a_batch_draws_what_single_runs_draw(model):
    request = GenerationRequest(PROMPT, parse_chain("temp1"), max_tokens=SHAPES["tokens"])
    requests = [replace(request, seed=seed) for seed in range(6)]
    for seed, answer in enumerate(generate_many(model, requests, parallel=3, deterministic=True)):
        tokens = [event for event in answer.events if isinstance(event, Token)]
        assert not set(ids_of(tokens)) & set(SUPPRESSED)
        assert ids_of(tokens) == ids_of(run(model, seed=seed)[0])


def test_bans_that_leave_only_such_tokens_end_the_text(model):
    grammar = compile_grammar('root ::= "x" ("}" | "y") "z"', model.vocabulary)
    _, done = run(model, grammar.start(), bans=["y"], jump=False)
    assert (done.finish_reason, done.text) == ("banned", "x")
