"""Tokens that the vocabulary suppresses: a chain drops them first, and counts them as llama.cpp does."""

import numpy as np
import pytest
from logitsmith.samplers import SamplingError, build
from logitsmith.samplers.recorder import ChainRecorder

from ..oracle.native import NativeChain
from .rows import NEG, FakeVocabulary, make_row, row

STEPS = {
    "a draw": [{"dist": {}}],
    "a count": [{"dynatemp": {"temperature": 0.7, "range": 0.6}}, {"dist": {}}],
    "an order": [{"top_k": {"k": 200}}, {"top_p": {"p": 0.99}}, {"dist": {}}],
    "a deviation": [{"top_n_sigma": {"n": 1.5}}, {"xtc": {"probability": 1.0, "threshold": 0.01}}, {"dist": {}}],
    "the best": [{"greedy": {}}],
}


def suppressing(size, *tokens):
    vocabulary = FakeVocabulary(size)
    vocabulary.suppressed = frozenset(tokens)
    return vocabulary


@pytest.mark.parametrize("size", [256, 3000])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_the_draws_are_those_of_a_chain_that_begins_with_biases_of_minus_infinity(steps, size):
    tokens = (0, 7, 8, 9, size - 1)
    chain = build(steps, seed=5, vocab=suppressing(size, *tokens))
    bias = {"logit_bias": {"bias": dict.fromkeys(tokens, False)}}
    with NativeChain([bias, *steps], vocabulary=size, seed=5) as native:
        for number in range(100):
            logits = make_row("normal", size, number).copy()
            logits[[7, 8]] += 5  # without the suppression, these would be drawn often
            expected = native.apply(logits).token
            assert chain.sample(logits) == expected
            assert expected not in tokens


def test_the_models_row_is_not_written_to():
    logits = make_row("normal", 64, 1)
    before = logits.copy()
    build("dist", vocab=suppressing(64, 3)).sample(logits)
    assert np.array_equal(logits, before)


def test_a_mask_and_the_suppression_apply_together():
    chain = build("greedy", vocab=suppressing(4, 3))
    mask = np.array([False, True, True, True])
    assert chain.sample(row(9, 2, 1, 8), mask) == 1
    record = ChainRecorder(chain).sample(row(9, 2, 1, 8), mask)
    assert [(stage.name, len(stage.candidates)) for stage in record.stages] == [
        ("model", 4),
        ("suppressed", 3),
        ("grammar", 2),
        ("greedy", 1),
    ]


@pytest.mark.parametrize("suppressed", [(), None], ids=["empty", "absent"])
def test_most_vocabularies_suppress_nothing(suppressed):
    vocabulary = FakeVocabulary(4) if suppressed is None else suppressing(4)
    chain = build("greedy", vocab=vocabulary)
    assert chain.allowed_tokens is None
    assert [stage.name for stage in ChainRecorder(chain).sample(row(1, 2, 3, 4)).stages] == ["model", "greedy"]


REFUSALS = {
    "another size": (row(1, 2, 3), None, "logits: expected 4, one per token, got 3"),
    "only this one is finite": (row(NEG, NEG, NEG, 1), None, "every token that it allows has a logit of -inf"),
    "only this one is allowed": (
        row(1, 2, 3, 4),
        [3],
        "only tokens that the model suppresses .* 3$",
    ),
    "the mask's other one is -inf": (
        row(1, NEG, 3, 4),
        [1, 3],
        r"mask: every token it allows has a logit of -inf",
    ),
}


@pytest.mark.parametrize(("logits", "allowed", "message"), REFUSALS.values(), ids=REFUSALS)
def test_where_no_token_is_left_the_message_says_why(logits, allowed, message):
    mask = None if allowed is None else np.isin(np.arange(4), allowed)
    with pytest.raises(SamplingError, match=message):
        build("greedy", vocab=suppressing(4, 3)).sample(logits, mask)
