"""A context that is full discards older tokens: the same text as llama.cpp's completion program writes.

The model is one of random weights, since a context is filled several times; the bundled one is a long proof.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from logitsmith.engine import Done, Model, ModelError, Token, generate, locate
from logitsmith.grammars import compile_grammar
from logitsmith.samplers import build

from ..oracle.native_context_shift import ShiftedRun, run_with_context_shift
from .small_models import write_model

PROMPT = "The sea was calm, and nobody on the pier had expected"
CHAIN = "ignore_eos > temp0.8 > top-k40"
LENGTH = 256


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A llama whose tokens are bytes, with a context that is quickly full."""
    path: Path = write_model(tmp_path_factory.mktemp("shift") / "llama.gguf", "llama")
    with Model.load(path, n_ctx=LENGTH, threads=1) as loaded:
        yield loaded


def run(model, prompt=PROMPT, chain=CHAIN, seed=3, **options):
    options.setdefault("max_tokens", 400)
    events = list(generate(model, prompt, build(chain, seed=seed, vocab=model.vocabulary), **options))
    assert isinstance(events[-1], Done)
    return [event.id for event in events if isinstance(event, Token)], events[-1]


CASES = {
    "nothing is kept": (0, 1.0, False),
    "some tokens": (5, 1.0, False),
    "the prompt": (-1, 1.1, False),
    "more than the prompt": (1000, 1.0, True),
}


def check_tokens(model, keep, penalty, is_greedy):
    prompt = model.vocabulary.tokenize_prompt(PROMPT.encode())
    eog = tuple(model.vocabulary.eog)
    native = run_with_context_shift(
        model._native.handle, ShiftedRun(prompt, 400, LENGTH, keep, 3, eog, penalty, 0.0 if is_greedy else 0.8)
    )
    end = "greedy" if is_greedy else "top-k40 > temp0.8"
    model.context.truncate(0)  # a prompt of which a part is there already is computed with other rounding
    tokens, done = run(model, chain=f"ignore_eos > penalties(repeat={penalty}) > {end}", keep_on_shift=keep)
    assert tokens == native.tokens
    assert (done.finish_reason, done.context_shifts) == ("length", native.shifts)
    assert native.shifts >= 2


@pytest.mark.parametrize(("keep", "penalty", "is_greedy"), CASES.values(), ids=CASES)
def test_the_tokens_are_those_of_llama_cpp(random_model, keep, penalty, is_greedy):
    check_tokens(random_model, keep, penalty, is_greedy)


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "penalty", "is_greedy"), CASES.values(), ids=CASES)
def test_the_tokens_of_the_bundled_model(keep, penalty, is_greedy):
    with Model.load(locate()[0], n_ctx=LENGTH) as model:
        check_tokens(model, keep, penalty, is_greedy)


def test_without_it_the_text_ends(random_model):
    tokens, done = run(random_model)
    assert (done.finish_reason, done.context_shifts) == ("context", None)
    shifted, _ = run(random_model, keep_on_shift=0)
    assert shifted[: len(tokens) - 1] == tokens[:-1]


def test_another_prompt_does_not_reuse_what_was_shifted(random_model):
    model = random_model
    run(model, keep_on_shift=4)
    held = list(model.context.tokens)
    after_shift, _ = run(model, held[:120], max_tokens=10)
    assert model.context.tokens[:120] == held[:120]
    model.context.truncate(0)
    assert run(model, held[:120], max_tokens=10)[0] == after_shift


@pytest.mark.parametrize("prompt_tokens", [LENGTH - 3, LENGTH - 2, LENGTH - 1, LENGTH])
@pytest.mark.parametrize("keep", [0, -1])
def test_a_prompt_that_nearly_fills_the_context(random_model, prompt_tokens, keep):
    tokens, done = run(random_model, [5] * prompt_tokens, keep_on_shift=keep, max_tokens=6)
    if keep == -1 and done.finish_reason == "context":
        assert prompt_tokens >= LENGTH - 2  # there is nothing that could be discarded
    else:
        assert (done.finish_reason, len(tokens)) == ("length", 6)


@pytest.mark.parametrize("jump", [True, False], ids=["jump", "no jump"])
def test_under_a_grammar(random_model, jump):
    model = random_model
    grammar = compile_grammar('root ::= (" apple, green pear" [a-z]){40}', model.vocabulary)
    prompt = (model.vocabulary.tokenize_prompt(PROMPT.encode()) * 15)[:195]
    _, done = run(model, prompt, constraint=grammar.start(), jump=jump, keep_on_shift=2, max_tokens=None)
    assert (done.finish_reason, done.complete) == ("grammar", True)
    assert done.context_shifts > 0


def test_a_sentence_is_completed_beyond_a_full_context(random_model):
    model = random_model
    grammar = compile_grammar('root ::= (" a green pear" [a-z]){40}', model.vocabulary)
    prompt = (model.vocabulary.tokenize_prompt(PROMPT.encode()) * 19)[: LENGTH - 9]
    _, done = run(model, prompt, constraint=grammar.start(), keep_on_shift=2, max_tokens=5, complete_sentence=True)
    assert (done.finish_reason, done.complete) == ("length", True)
    assert done.context_shifts > 0


def test_positions_of_several_parts_cannot_shift(tmp_path):
    path = write_model(tmp_path / "qwen2vl.gguf", "qwen2vl")
    with Model.load(path, n_ctx=64, threads=1) as model:
        assert model.can_truncate
        with pytest.raises(
            ModelError,
            match=r"oldest tokens of a text: llama.cpp cannot .* \(M-RoPE",
        ):
            run(model, chain="greedy", keep_on_shift=0)
