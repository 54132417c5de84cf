"""Each class of architecture, with random weights: runs, batches, scores and grammars agree as promised."""

import re

import pytest
from logitsmith.engine import (
    BatchAnswer,
    GenerationRequest,
    LogprobRequest,
    Model,
    ModelError,
    Token,
    generate,
    generate_many,
    score,
)
from logitsmith.grammars import compile_grammar
from logitsmith.samplers import build

from ..oracle.native_context_shift import ShiftedRun, run_with_context_shift
from . import models_page
from .small_models import write_model

TRANSFORMERS = {
    "dense": ("llama", "gpt2"),
    "dense, SentencePiece": ("llama", "llama"),
    "learned positions": ("gpt2", "gpt2"),
    "ALiBi": ("bloom", "gpt2"),
    "mixture of experts": ("qwen3moe", "gpt2"),
    "mixture of experts, sinks": ("gpt-oss", "gpt2"),
    "sliding window": ("gemma3", "llama"),
    "chunked attention": ("llama4", "gpt2"),
    "latent attention": ("deepseek2", "gpt2"),
}
RECURRENT = {
    "Mamba": ("mamba", "gpt2"),
    "Mamba 2": ("mamba2", "gpt2"),
    "RWKV 6": ("rwkv6", "rwkv"),
    "RWKV 7": ("rwkv7", "rwkv"),
    "RWKV 6 in a transformer": ("rwkv6qwen2", "gpt2"),
    "RWKV 7 in a transformer": ("arwkv7", "gpt2"),
    "hybrid, Mamba": ("jamba", "gpt2"),
    "hybrid, Mamba 2": ("granitehybrid", "gpt2"),
    "hybrid, attention or neither": ("nemotron_h", "gpt2"),
    "hybrid, both in a layer": ("falcon-h1", "gpt2"),
    "hybrid, convolution": ("lfm2", "gpt2"),
    "hybrid, gated delta net": ("qwen3next", "gpt2"),
    "hybrid, one sequence at a time": ("plamo2", "plamo2"),
}
ARCHITECTURES = TRANSFORMERS | RECURRENT
PROMPTS = [
    "hello in the house",
    "a",
    "hello in other words, said he, there is a long way to go before we are home again",
    "hello in the hill",
]
TOKENS = 16
"""With the longest prompt, more than the sliding window of 16 tokens."""
LOGIT_TOLERANCE = 0.01
"""Keys and values are kept in F16: a rounding error of a logit may become a thousandth of a logit."""


@pytest.fixture(scope="module", params=ARCHITECTURES.items(), ids=ARCHITECTURES)
def case(request, tmp_path_factory):
    """A model with the name of its class."""
    name, (architecture, tokenizer) = request.param
    path = tmp_path_factory.mktemp("models") / f"{architecture}.gguf"
    with Model.load(write_model(path, architecture, tokenizer), n_ctx=192, threads=1) as model:
        path.unlink()
        yield name, model


@pytest.fixture
def model(case):
    return case[1]


def make_chain(seed):
    return build("top-k40 > temp1", seed=seed)


def run(model, number, constraint=None, max_tokens=TOKENS, **options):
    events = list(
        generate(
            model,
            PROMPTS[number],
            make_chain(number),
            constraint,
            max_tokens=max_tokens,
            top_logprobs=0,
            **options,
        )
    )
    return events[0], [event for event in events if isinstance(event, Token)], events[-1]


def run_many(model, numbers, parallel, deterministic=False):
    """The ids and logprobs of each request's tokens, and what is promised for them."""
    requests = [
        GenerationRequest(
            PROMPTS[number], make_chain(number), max_tokens=TOKENS, id=number, logprobs=LogprobRequest(0)
        )
        for number in numbers
    ]
    answers = list(generate_many(model, requests, parallel, deterministic=deterministic))
    assert all(isinstance(answer, BatchAnswer) for answer in answers), answers
    promised = {str(answer.start.batch_exactness).split(" (")[0] for answer in answers}
    assert len(promised) == 1
    return {answer.id: exact(answer.tokens) for answer in answers}, promised.pop()


def exact(tokens):
    return [(token.id, token.chosen.logprob) for token in tokens]


def test_the_manual_names_these_architectures():
    assert set(models_page.ARCHITECTURES) == {architecture for architecture, _ in ARCHITECTURES.values()}


def test_the_manual_says_what_it_does(case):
    name, model = case
    assert model.can_truncate == (name in TRANSFORMERS)
    row = models_page.ARCHITECTURES[model.metadata["general.architecture"]]
    assert row.runs == "works"
    assert row.lookup == ("works" if model.can_truncate else "not supported")
    assert row.common_beginning == ("continues there" if model.can_truncate else "is read again")
    promised = str(model.batch_exactness(3)).split(" (")[0]
    assert row.batch == ("measured" if model.can_truncate else promised)
    assert str(model.batch_exactness(3, deterministic=True)) == "exact"


def test_a_kept_beginning_changes_nothing(model):
    texts = [model.vocabulary.tokenize_prompt(PROMPTS[number].encode()) for number in (2, 3, 0)]
    context = model.context
    context.truncate(0)
    rows, kept = [], []
    for text in texts:
        run(model, 2)  # goes on beyond the beginning, and beyond a sliding window
        kept.append(context.read(text))
        rows.append(context.logits().copy())
    assert all(kept) == model.can_truncate
    for text, row in zip(texts, rows, strict=True):
        context.truncate(0)
        context.read(text)
        assert context.logits() == pytest.approx(row, abs=LOGIT_TOLERANCE)


def test_a_batch_keeps_its_promise(model):
    numbers = range(len(PROMPTS))
    alone = {}
    for number in numbers:
        model.context.truncate(0)
        alone[number] = exact(run(model, number)[1])
    assert run_many(model, numbers, 1) == (alone, "exact")
    assert run_many(model, numbers, 3, deterministic=True) == (alone, "exact")
    three, promised = run_many(model, numbers, 3)
    if not model.can_truncate:
        assert promised == ("exact" if model.metadata["general.architecture"] == "plamo2" else "to rounding")
    if promised == "to rounding":
        return
    assert run_many(model, reversed(numbers), 4) == (three, promised)
    assert run_many(model, [2], 2) == ({2: three[2]}, promised)
    if promised == "exact":
        assert three == alone


def test_a_score_is_that_of_the_run(model):
    start, tokens, _ = run(model, 0)
    text = [*start.prompt_ids, *(token.id for token in tokens)]
    scored = list(score(model, text))[len(start.prompt_ids) :]
    drawn = [token.chosen.logprob for token in tokens]
    assert [token.chosen.logprob for token in scored] == pytest.approx(drawn, abs=LOGIT_TOLERANCE)


@pytest.mark.parametrize("jump", [True, False], ids=["jump", "no jump"])
def test_a_grammar_is_kept(model, jump):
    grammar = compile_grammar('root ::= "hello " [a-z][0-9] " in the " ("house" | "hill") "."', model.vocabulary)
    _, tokens, done = run(model, 1, grammar.start(), max_tokens=64, jump=jump)
    assert re.fullmatch(r"hello [a-z][0-9] in the (house|hill)\.", done.text)
    assert (done.finish_reason, done.complete) == ("grammar", True)
    assert (done.forced_tokens > 0) == jump
    assert len(tokens) == done.completion_tokens


def test_lookup_is_refused_where_guesses_cannot_be_removed(model):
    if model.can_truncate:
        run(model, 0, lookup=4)
    else:
        with pytest.raises(ModelError, match="lookup"):
            run(model, 0, lookup=4)


@pytest.mark.parametrize("keep", [3, *(pytest.param(keep, marks=pytest.mark.slow) for keep in (0, -1))])
def test_a_full_context_shifts_as_llama_cpp_does(model, keep):
    """`test_context_shift.py` has the other numbers of kept tokens."""
    if not model.can_truncate:
        with pytest.raises(ModelError, match="cannot discard the oldest tokens of a text: it is recurrent"):
            run(model, 0, keep_on_shift=keep)
        return
    model.context.truncate(0)  # llama.cpp reads the whole prompt too
    start, tokens, done = run(model, 0, max_tokens=400, keep_on_shift=keep)
    ids = [token.id for token in tokens]
    request = ShiftedRun(start.prompt_ids, len(ids), model.context.length, keep, seed=0, follow=ids)
    native = run_with_context_shift(model._native.handle, request)
    assert [token.chosen.logprob for token in tokens] == pytest.approx(native.logprobs, abs=1e-5)
    assert done.context_shifts == native.shifts


def test_a_run_after_a_shift_is_that_of_a_new_context(model):
    if not model.can_truncate:
        return
    model.context.truncate(0)
    expected = exact(run(model, 0)[1])
    *_, done = run(model, 0, max_tokens=400, keep_on_shift=-1)
    start, tokens, _ = run(model, 0)
    if done.context_shifts:  # some end their text before
        assert (start.cached_tokens, exact(tokens)) == (0, expected)
