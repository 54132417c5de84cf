"""Beam search against transformers' `generate`, on a model whose logits are a table by the last token."""

import numpy as np
import pytest
from logitsmith.engine.request import BeamSearch

from ..oracle.transformers_oracle import ask
from .test_beam_search import MODES, search

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("ends", [set(), {2}, {2, 5}], ids=["no end", "an end", "two ends"])
def test_texts_and_scores_are_those_of_generate(ends, penalty, mode):
    for seed in range(6):
        chooser = np.random.default_rng(seed)
        size = int(chooser.integers(10, 40))
        rows = chooser.normal(0, 2, (size, size))
        for end in ends:
            rows[:, end] += (0.0, 2.0, 4.0)[seed % 3]
        logprobs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
        beams = (2, 2, 3, 4, 6, 8)[seed]  # with one beam, transformers reports no scores
        best_count = min(beams, 1 + seed)
        found = search(
            lambda tokens, table=logprobs: table[tokens[-1] if tokens else 0],
            BeamSearch(beams, penalty, mode),
            6,
            ends,
        )
        theirs = ask(
            "beam_search",
            rows=rows,
            beams=beams,
            length_penalty=penalty,
            early_stopping=mode,
            n_best=best_count,
            max_new_tokens=6,
            eos=sorted(ends) or None,
            dtype="float64",
        )
        assert [list(text.tokens) for text in found[:best_count]] == theirs["sequences"]
        # transformers keeps the sums in float32.
        assert [text.score for text in found[:best_count]] == pytest.approx(theirs["scores"], rel=1e-5)
