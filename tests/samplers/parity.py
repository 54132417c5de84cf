"""A whole chain against llama.cpp's, token by token."""

from __future__ import annotations

import numpy as np
from logitsmith.samplers import build

from ..oracle.native import NativeChain
from .rows import row

CHAINS = {
    "dist": [],
    "temperature": [{"temperature": 0.7}],
    "common order": [{"top_k": 40}, {"top_p": 0.95}, {"min_p": 0.05}, {"temperature": 0.8}],
    "penalties first": [
        {"penalties": {"repeat": 1.2, "frequency": 0.3, "presence": 0.1, "last_n": 32}},
        {"top_k": 50},
        {"temperature": 1.3},
    ],
    "bias and a cut": [
        {"logit_bias": {"bias": {3: 4.0, 7: -2.5, 9: False}}},
        {"top_p": 0.9},
        {"min_p": 0.02},
    ],
    "temperature first, the same sampler twice": [
        {"temperature": 1.4},
        {"top_p": 0.98},
        {"top_k": 64},
        {"top_p": 0.8},
    ],
    "penalties after sorting": [
        {"top_k": 200},
        {"penalties": {"repeat": 1.5, "last_n": -1}},
        {"top_p": {"p": 0.9, "min_keep": 5}},
        {"temperature": 0.9},
    ],
    "greedy": [
        {"penalties": {"repeat": 1.1, "frequency": 0.5}},
        {"min_p": {"p": 0.5, "min_keep": 3}},
        "greedy",
    ],
}
"""What is run; no step that llama.cpp and we do differently on purpose."""


def rows_without_ties(size: int, seed: int, count: int) -> list:
    """Random rows in which no two logits are equal, since llama.cpp's sort shuffles equal ones."""
    rng = np.random.default_rng(seed)
    heights = np.linspace(-3, 3, size) ** 3 / 3
    return [row(*rng.permutation(heights)) for _ in range(count)]


def same_tokens(steps: list, seed: int, draws: int, size: int) -> int:
    """Draw and accept on both sides, assert that the tokens are equal; returns how many were drawn."""
    table = rows_without_ties(size, seed % 1000, 16)
    prompt = [3, 5, 3, 8]
    ours = build(steps, seed=seed)
    ours.reset(prompt)
    with NativeChain(ours.config, vocabulary=size, seed=seed) as native:
        native.accept(*prompt)
        for number in range(draws):
            logits = table[number % len(table)]
            token = ours.sample(logits)
            assert token == native.apply(logits).token, f"draw {number}"
            ours.accept(token)
            native.accept(token)
    return draws
