"""Draws of selecting samplers: by hand, from the random numbers of a seed, and beside llama.cpp's."""

import math
from itertools import accumulate

import numpy as np
from hypothesis import assume, strategies as st
from logitsmith.samplers import build

from ..oracle.native import NativeSampler
from .rows import agree
from .test_mersenne_twister import mt19937

SEEDS = st.integers(0, 2**32 - 2)


def uniforms(seed):
    """The numbers in [0, 1) that a `discrete_distribution` draws, each made of two words of 32 bits."""
    words = mt19937(seed)
    while True:
        low = next(words)
        yield (low + 2**32 * next(words)) / 2**64


def sorted_probabilities(logits):
    """Ids and probabilities from high to low, in float64."""
    values = logits.tolist()
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    weights = [math.exp(values[i] - values[order[0]]) for i in order]
    return order, [weight / math.fsum(weights) for weight in weights]


def place_of(shares, numbers):
    """The place that is drawn with these shares; one alone takes no number."""
    if len(shares) == 1:
        return 0
    u = next(numbers)
    ends = list(accumulate(shares))
    assume(all(abs(end - u) > 1e-5 for end in ends))  # there float32 decides
    return next(place for place, end in enumerate(ends) if end >= u or place == len(ends) - 1)


def bits_of(probability):
    return -math.log2(probability) if probability else math.inf


def on_a_boundary(probs, u):
    """Does the last bit of a probability decide which token is drawn?"""
    ends = np.cumsum(probs, dtype=np.float64) / probs.sum(dtype=np.float64)
    # The longer the row, the smaller are its probabilities, and their last bits.
    return bool((np.abs(ends - u) < (1e-7 if probs.size < 10_000 else 1e-8)).any())


def follow(name, params, logits, seed, doubtful, draws=5):
    """Compare several draws in a row with llama.cpp's: what was drawn from, and the token. Returns how many.

    Ends before the first draw where the last bit of an expf, logf or powf decides, which llama.cpp's may round
    otherwise: upon a boundary between tokens, or where ``doubtful(step)`` says that it changes what is kept.
    """
    ours, numbers = build([{name: params}], seed=seed), uniforms(seed)
    with NativeSampler(name, vocabulary=logits.size, seed=seed, **params) as native:
        for draw in range(draws):
            if doubtful(ours.steps[-1]):
                return draw
            left = ours.apply(logits)
            token, theirs = ours.draw(left), native.apply(logits)
            agree(left, theirs, cut=True)
            np.testing.assert_allclose(left.llama_cpp_probs(), theirs.p, atol=1e-5, rtol=0)
            if len(left) > 1 and on_a_boundary(theirs.p, next(numbers)):
                return draw
            # Among equal logits llama.cpp has another token at the same place.
            assert left.ids.tolist().index(token) == theirs.ids.tolist().index(theirs.token)
            ours.accept(token)
            native.accept(theirs.token)
    return draws
