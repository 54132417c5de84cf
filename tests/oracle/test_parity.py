"""The same seed gives llama.cpp's own tokens, on the real model, token for token; see `compare` for ties."""

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


def compare(model, steps, seed, count):
    """Draw ``count`` tokens with our chain and with llama.cpp's, on the same logits and history.

    Returns at how many places the two drew different tokens of exactly the same logit: llama.cpp sorts long rows
    by an unstable sort, so that equal logits change places there, and keep their order here. Any other difference
    fails.
    """
    vocabulary = model.vocabulary
    ours = build(steps, seed=seed, vocab=vocabulary)
    prompt = vocabulary.tokenize(PROMPT.encode())
    model.context.read(prompt)
    ours.reset(prompt)
    ties = 0
    with NativeChain(ours.config, vocabulary=vocabulary.size, seed=seed) as native:
        native.accept(*prompt)
        for step in range(count):
            row = model.context.logits()
            mine, theirs = ours.sample(row), native.apply(row).token
            assert row[mine] == row[theirs], f"token {step}: {mine}, and llama.cpp has {theirs}"
            ties += mine != theirs
            ours.accept(theirs)
            native.accept(theirs)
            model.context.push(theirs)
    return ties


def steps_of(name):
    return CHAINS[name] or load(name).chain


# Where a chain sorts the whole vocabulary after a high temperature, ties are drawn now and then.
SORTS_THE_TAIL = {"hot and wide", "twice"}


@pytest.mark.parametrize("seed", [0, 7, 4294967294])
@pytest.mark.parametrize("name", CHAINS)
def test_hundred_tokens(model, name, seed):
    ties = compare(model, steps_of(name), seed, 100)
    assert ties == 0 or name in SORTS_THE_TAIL


@pytest.mark.slow
def test_many_seeds(model, capsys):
    """Print how many tokens were compared, and how many of them were ties."""
    runs = [(name, seed) for name in CHAINS for seed in range(1, 6)]
    ties = {run: compare(model, steps_of(run[0]), run[1], 300) for run in runs}
    assert {name for (name, _), count in ties.items() if count} <= SORTS_THE_TAIL
    with capsys.disabled():
        print(
            f"\nparity: {len(CHAINS)} chains, 5 seeds, {300 * len(runs):,} tokens: "
            f"{sum(ties.values())} ties of equal logits drawn in another order, 0 other differences"
        )
