"""Reuse of a context's tokens by a later prompt: logits and tokens are those of an empty context."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from logitsmith.engine import Model, Start, Token, generate
from logitsmith.engine.context import PromptSegments
from logitsmith.samplers import build

from .quantized_models import QUANTIZATIONS, VOCABULARY
from .small_models import write_model

CHAIN = "ignore_eos > temp0.8"
DENSE = ("gemma2", "gemma3", "qwen3", "phi3", "gpt2", "mpt", "bloom", "falcon", "command-r", "olmo2", "deepseek2")
MIXTURES = ("llama4", "qwen2moe", "qwen3moe", "gpt-oss", "lfm2moe")
HYBRID = ("jamba", "plamo2", "granitehybrid", "lfm2", "kimi-linear")


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = write_model(tmp_path_factory.mktemp("exact") / "llama.gguf", "llama")
    with Model.load(path, n_ctx=512, batch=128, threads=1) as loaded:
        yield loaded


def some_tokens(count, seed=1, size=250):
    return random.Random(seed).choices(range(size), k=count)


def cold_logits(model, prompt):
    model.context.truncate(0)
    model.context.read(prompt)
    return model.context.logits().copy()


def check_turns(model, lengths, most=400, size=250):
    """Read prompts that continue one another, with generated tokens between; return what was kept."""
    held, kept = [], []
    prompts = []
    for number, length in enumerate(lengths):
        held = [*held, *some_tokens(length, number, size)][:most]
        prompts.append(held)
    expected = [cold_logits(model, prompt) for prompt in prompts]
    model.context.truncate(0)
    for prompt, logits in zip(prompts, expected, strict=True):
        kept.append(model.context.read(prompt, exact=True))
        assert np.array_equal(model.context.logits(), logits)
        for token in some_tokens(7, 99, size):
            model.context.append(token)
    return kept


TURNS = {
    "short": ((10, 10, 10), (0, 0, 0)),
    "a piece": ((64, 64, 64), (0, 64, 128)),
    "not a whole piece": ((100, 30, 100), (0, 64, 128)),
    "one token more than a batch": ((128, 1, 1, 60), (0, 128, 128, 128)),
    "a rest that is too small": ((70, 50, 90), (0, 0, 64)),
    "long": ((300, 5, 95), (0, 256, 256)),
}


@pytest.mark.parametrize(("lengths", "kept"), TURNS.values(), ids=TURNS)
def test_turns(random_model, lengths, kept):
    assert tuple(check_turns(random_model, lengths)) == kept


def test_random_turns(random_model):
    draw = random.Random(5)
    kept = [check_turns(random_model, [draw.randint(1, 120) for _ in range(4)]) for _ in range(10)]
    assert sum(map(sum, kept)) > 2000


def test_the_same_prompt_is_not_read_again(random_model):
    prompt = some_tokens(100)
    expected = cold_logits(random_model, prompt)
    seen = []
    for _ in range(2):
        random_model.context.truncate(0)
        first = random_model.context.read(prompt, exact=True)
        random_model.context.append(3)
        again = random_model.context.read(prompt, lambda *_: seen.append(1), exact=True)
        assert (first, again) == (0, 100)
        assert np.array_equal(random_model.context.logits(), expected)
    assert seen == []
    assert not random_model.context.logits().flags.writeable


OTHERS = {
    "read in another way": lambda context, prompt: context.read(prompt, small_batches=True),
    "scored": lambda context, prompt: list(context.read_each(prompt)),
    "one by one": lambda context, prompt: [context.read(prompt[:1]), *map(context.append, prompt[1:])],
    "after a truncation": lambda context, prompt: [context.read([*prompt, 5]), context.truncate(66)],
    "after a part": lambda context, prompt: [context.read(prompt[:30]), context.read(prompt)],
    "after a shift": lambda context, prompt: [context.read([9, *prompt]), context.discard(0, 1)],
}


@pytest.mark.parametrize("prepare", OTHERS.values(), ids=OTHERS)
def test_whatever_was_read_before(random_model, prepare):
    prompt = some_tokens(140)
    expected = cold_logits(random_model, prompt)
    random_model.context.truncate(0)
    prepare(random_model.context, prompt[:70])
    random_model.context.read(prompt, exact=True)
    assert np.array_equal(random_model.context.logits(), expected)


def test_an_interrupted_reading(random_model):
    prompt = some_tokens(400)
    expected = cold_logits(random_model, prompt)
    random_model.context.truncate(0)
    done = []
    random_model.context.read(prompt, lambda count, _: done.append(count), lambda: any(done), exact=True)
    assert len(random_model.context.tokens) == 128
    assert random_model.context.read(prompt, exact=True) == 128
    assert np.array_equal(random_model.context.logits(), expected)


def run(model, prompt, **options):
    events = list(generate(model, prompt, build(CHAIN, seed=4, vocab=model.vocabulary), max_tokens=20, **options))
    cached = next(event.cached_tokens for event in events if isinstance(event, Start))
    return [event.id for event in events if isinstance(event, Token)], cached


def test_the_tokens_of_turns_are_those_of_a_first_run(random_model):
    prompts, expected = [some_tokens(90)], []
    for seed in range(3):
        random_model.context.truncate(0)
        tokens, _ = run(random_model, prompts[-1])
        expected.append(tokens)
        prompts.append([*prompts[-1], *tokens, *some_tokens(40, seed)])
    random_model.context.truncate(0)
    results = [run(random_model, prompt, exact_reuse=True) for prompt in prompts[:-1]]
    assert [tokens for tokens, _ in results] == expected
    assert [cached for _, cached in results] == [0, 64, 128]


def test_where_pieces_differ_only_whole_batches_are_kept(tmp_path):
    path = write_model(tmp_path / "moe.gguf", "qwen3moe")
    with Model.load(path, n_ctx=512, batch=128, threads=1) as model:
        assert check_turns(model, (100, 100, 100)) == [0, 0, 128]
    path = write_model(tmp_path / "llama.gguf", "llama")
    with Model.load(path, n_ctx=512, batch=128, threads=1, flash_attention="off", microbatch=32) as model:
        assert check_turns(model, (100, 100, 100)) == [0, 0, 128]


def test_a_recurrent_model_reads_again(tmp_path):
    path = write_model(tmp_path / "mamba.gguf", "mamba")
    with Model.load(path, n_ctx=512, batch=128, threads=1) as model:
        assert check_turns(model, (100, 100, 100)) == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [*DENSE, *MIXTURES, *HYBRID])
def test_architectures(tmp_path, architecture):
    path = write_model(tmp_path / "model.gguf", architecture)
    with Model.load(path, n_ctx=512, batch=128, threads=1) as model:
        check_turns(model, (100, 60, 70, 100))


@pytest.mark.slow
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_quantizations(quantized_models, quantization):
    draw = random.Random(2)
    with Model.load(quantized_models.path(quantization), n_ctx=1024) as model:
        for _ in range(5):
            check_turns(model, [draw.randint(1, 300) for _ in range(4)], most=1000, size=VOCABULARY)


@pytest.mark.parametrize(
    ("common", "length", "kept"), [(0, 9, 0), (511, 512, 448), (512, 513, 512), (700, 1024, 640), (700, 715, 640)]
)
def test_what_can_be_kept(common, length, kept):
    assert PromptSegments(512, 64).reusable_token_count(common, length) == kept
    assert PromptSegments(512, 512).reusable_token_count(common, length) == kept // 512 * 512
