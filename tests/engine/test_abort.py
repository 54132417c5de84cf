"""`Model.abort`: what is being computed ends, and the model works as before."""

import threading

import pytest
from logitsmith.engine import (
    AbortedError,
    GenerationRequest,
    Model,
    Token,
    generate,
    generate_many,
    score,
    score_choices,
)
from logitsmith.samplers import build

from .small_models import write_model

PROMPT = [*range(300, 320)] * 4
"""More than one small batch."""
TOKENS = 8


def run(model, abort_after=None, **options):
    """Generate; ``abort_after``: abort after this many tokens."""
    tokens = []
    for event in generate(model, prompt(model), build("greedy"), max_tokens=TOKENS, **options):
        if isinstance(event, Token):
            tokens.append(event.id)
            if len(tokens) == abort_after:
                model.abort()
        last = event
    return tokens, last.finish_reason


def prompt(model):
    return [token % model.vocabulary.size for token in PROMPT]


def go_on():
    return False


@pytest.fixture(scope="module", params=["llama", "mamba", "jamba"])
def any_model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "m.gguf"
    with Model.load(write_model(path, request.param), n_ctx=192, threads=2) as model:
        yield model


@pytest.mark.parametrize("count", [1, 3, TOKENS - 1])
def test_a_run_keeps_what_it_made(any_model, count):
    tokens, _ = run(any_model)
    assert run(any_model, count, is_interrupted=go_on) == (tokens[:count], "interrupted")
    assert run(any_model) == (tokens, "length")


def test_a_prompt(any_model):
    expected = run(any_model)
    any_model.context.truncate(0)
    any_model.abort()
    assert run(any_model, is_interrupted=go_on) == ([], "interrupted")
    assert run(any_model) == expected


def test_without_is_interrupted_it_raises(any_model):
    expected = run(any_model)
    with pytest.raises(AbortedError, match="the computation was aborted"):
        run(any_model, 2)
    any_model.context.truncate(0)
    any_model.abort()
    with pytest.raises(AbortedError):
        run(any_model)
    assert run(any_model) == expected


def test_a_score(any_model):
    text = prompt(any_model)

    def scored(**options):
        return [token.chosen and token.chosen.logprob for token in score(any_model, text, **options)]

    whole = scored()
    any_model.abort()
    assert scored(is_interrupted=go_on) == [None]
    any_model.abort()
    with pytest.raises(AbortedError):
        scored()
    assert scored() == whole


def test_a_score_in_windows_ends_at_the_first_one(any_model):
    text = prompt(any_model) * 4
    tokens = score(any_model, text, is_interrupted=go_on)
    first = [next(tokens) for _ in range(2)]
    any_model.abort()
    count = len(first) + len(list(tokens))
    assert count < len(text)
    assert len(list(score(any_model, text))) == len(text)


CALLS = {
    "choices": lambda model: score_choices(model, prompt(model), [[1, 2], [3]]),
    "batch": lambda model: list(
        generate_many(model, [GenerationRequest(prompt(model), build("greedy"), max_tokens=3)] * 3, 2)
    ),
    "batch, deterministic": lambda model: list(
        generate_many(
            model, [GenerationRequest(prompt(model), build("greedy"), max_tokens=3)], 1, deterministic=True
        )
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_calls_raise(any_model, call):
    any_model.abort()
    with pytest.raises(AbortedError):
        call(any_model)
    assert call(any_model)


def test_the_probe_of_a_batch_is_not_mistaken_for_a_lack_of_memory(tmp_path):
    with Model.load(write_model(tmp_path / "m.gguf", "llama"), n_ctx=192, threads=1) as model:
        model.abort()
        with pytest.raises(AbortedError):
            model.batch_exactness(5)
        assert str(model.batch_exactness(5)).startswith("exact")


def test_another_thread_ends_a_run(model):
    """The bundled model takes seconds for the whole run."""
    timer = threading.Timer(0.2, model.abort)
    timer.start()
    *_, done = generate(model, "The sea", build("greedy"), max_tokens=900, is_interrupted=go_on)
    timer.join()
    assert done.finish_reason == "interrupted"
    assert done.completion_tokens < 900
