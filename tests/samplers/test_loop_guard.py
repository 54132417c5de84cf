"""The loop guard: it fires at the exact token of a repetition, and not in what people write."""

import random
import re

import numpy as np
import pytest
from logitsmith.engine import Model, locate
from logitsmith.samplers.loop_guard import LoopDetector, LoopGuard

from ..human_texts import human_texts

FAST_PERIODS = {1, 2, 3, 7, 8, 9, 11, 31, 32, 33, 100, 511, 512}


def first_loop(guard, tokens):
    """The index of the token that completes a loop, and its period, by the definition; None without a loop."""
    for end in range(1, len(tokens) + 1):
        for period in range(guard.min_period, guard.max_period + 1):
            length = max(guard.repeats * period, guard.min_tokens)
            part = tokens[end - length : end]
            if end >= length and np.array_equal(part[period:], part[:-period]):
                return end - 1, period
    return None


def detected(guard, tokens):
    detector = LoopDetector(guard)
    for index, token in enumerate(tokens):
        period = detector.push(int(token))
        if period is not None:
            return index, period
    return None


@pytest.mark.parametrize(
    "period", [pytest.param(n, marks=() if n in FAST_PERIODS else pytest.mark.slow) for n in range(1, 513)]
)
def test_each_period_fires_at_the_exact_token(period):
    chooser = np.random.default_rng(period)
    beginning = 1000 + np.arange(chooser.integers(1, 40))  # repeats nothing
    block = chooser.permutation(period)
    tokens = np.concatenate([beginning, np.tile(block, 33)])
    guard = LoopGuard()
    last = beginning.size + max(guard.repeats * period, guard.min_tokens) - 1
    assert detected(guard, tokens) == (last, period)
    assert detected(guard, tokens[:last]) is None


@pytest.mark.parametrize("seed", range(60))
def test_random_tokens_fire_as_defined(seed):
    chooser = random.Random(seed)
    low = chooser.randint(1, 3)
    guard = LoopGuard(
        min_period=low,
        max_period=low + chooser.randint(0, 4),
        repeats=chooser.randint(2, 4),
        min_tokens=chooser.randint(2, 12),
    )
    tokens = np.array([chooser.randrange(1 + seed % 3) for _ in range(chooser.randint(1, 60))])
    assert detected(guard, tokens) == first_loop(guard, tokens)


RULER = re.compile(r"(.{1,3})\1{15,}|(\d{8})\2{3,}")
"""Sixteen times the same few characters, as in a line of dashes or in the zeros of an address; or four times the
same eight digits, as in the id of an example."""


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, pytest.param(5000, marks=pytest.mark.slow)])
def test_what_people_write_does_not_repeat_itself(count):
    texts = human_texts(count)
    with Model.load(locate()[0], n_ctx=64, threads=1) as model:
        tokenized = [model.vocabulary.tokenize(text.encode()) for text in texts]
    lengths, fired, ruled = [], [], []
    for text, tokens in zip(texts, tokenized, strict=True):
        lengths.append(len(tokens))
        loop = detected(LoopGuard(), tokens)
        if loop:
            (ruled if RULER.search(text) else fired).append((loop, text[:200]))
    print(f"{count} texts of {sum(lengths):,} tokens, the longest of {max(lengths):,}: {len(fired)} loops")
    print(f"and {len(ruled)} in texts with a ruler or a row of zeros")
    assert fired == []
    assert len(ruled) <= count // 1000
