"""The same seed gives llama.cpp's own tokens, on the real model, token for token."""

from collections.abc import Iterator

import pytest
from logitsmith.engine import Model, locate
from logitsmith.presets import load
from logitsmith.samplers import build

from .native import NativeChain

PROMPT = "The lighthouse keeper opened the door and"

CHAINS = {
    "default": None,
    "deterministic": None,
    "creative": None,
    "precise": None,
    "dist alone": "dist",
    "hot and wide": "temp1.4 > top-p0.98",
    "every step": (
        "logit_bias > penalties(repeat=1.2, frequency=0.1, presence=0.2, last_n=16) > top-k60"
        " > top-p0.97 > min-p0.02 > temp1.1"
    ),
    "temperature first": "temp0.7 > min-p0.1 > top-k20",
    "twice": "top-p0.99 > temp0.9 > top-p0.9",
    "min_keep": "top_p(p=0.1, min_keep=5) > min_p(p=0.9, min_keep=3)",
}


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model.load(locate()[0], n_ctx=1024) as loaded:
        yield loaded


def both(model, steps, seed, count):
    """The tokens of our chain, and those of llama.cpp's on the same logits, until they differ."""
    vocabulary = model.vocabulary
    ours = build(steps, seed=seed, vocab=vocabulary)
    prompt = vocabulary.tokenize(PROMPT.encode())
    model.context.read(prompt)
    ours.reset(prompt)
    mine, theirs = [], []
    with NativeChain(ours.config, vocabulary=vocabulary.size, seed=seed) as native:
        native.accept(*prompt)
        while len(mine) < count and mine == theirs:
            row = model.context.logits()
            mine.append(ours.sample(row))
            theirs.append(native.apply(row).token)
            ours.accept(mine[-1])
            native.accept(mine[-1])
            model.context.push(mine[-1])
    return mine, theirs


def steps_of(name):
    return CHAINS[name] or load(name).chain


@pytest.mark.parametrize("seed", [0, 7, 4294967294])
@pytest.mark.parametrize("name", CHAINS)
def test_hundred_tokens(model, name, seed):
    mine, theirs = both(model, steps_of(name), seed, 100)
    assert len(mine) == 100
    assert mine == theirs


@pytest.mark.slow
def test_many_seeds(model, capsys):
    """Print how many tokens were compared; no difference is allowed."""
    runs = [(name, seed) for name in CHAINS for seed in range(1, 6)]
    tokens = 0
    for name, seed in runs:
        mine, theirs = both(model, steps_of(name), seed, 300)
        assert mine == theirs, f"{name}, seed {seed}, token {len(mine)}"
        tokens += len(mine)
    with capsys.disabled():
        print(f"\nparity: {len(CHAINS)} chains, 5 seeds, {tokens:,} tokens, 0 differences")
