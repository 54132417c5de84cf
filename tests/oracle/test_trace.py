"""A trace has the logits and the probabilities of every stage of a chain."""

import math

import pytest
from logitsmith.engine.token_records import TraceReader
from logitsmith.samplers import build

from ..samplers.rows import FakeVocabulary, make_row, softmax
from .test_parity import ALONE


class PieceVocabulary(FakeVocabulary):
    """With the pieces that a trace has."""

    def piece(self, token):
        return self.pieces[token]


@pytest.mark.parametrize("chain", [*ALONE.values(), "top_k20 > xtc(probability=1, threshold=0.01) > skew0.3"])
def test_a_trace_has_the_logits_and_probabilities_of_every_stage(chain):
    vocabulary = PieceVocabulary(200)
    chain = build(chain.replace("198=-4, 28=2.5, 253=-1", "19=-4, 28=2.5"), seed=2, vocab=vocabulary)
    chain.reset([5, 9, 5, 7, 9, 5])
    reader = TraceReader(vocabulary, chain, 200)
    logits = make_row("normal", 200, 4)
    token = reader.sample(logits, None)
    trace = reader.read(token)
    stages = [stage.candidates for stage in reader._chain_record.stages]
    assert len(trace.candidates) == 200
    for number, stage in enumerate(stages):
        row = dict(zip(stage.ids.tolist(), stage.logits.tolist(), strict=True))
        probs = dict(zip(stage.ids.tolist(), softmax(stage.logits), strict=True))
        assert {
            each.id: each.logits[number] for each in trace.candidates if each.logits[number] is not None
        } == row
        found = {each.id: each.probs[number] for each in trace.candidates if each.probs[number] is not None}
        assert found == pytest.approx(probs, rel=1e-5, abs=1e-12)
        assert trace.stages[number].kept == len(row)
        assert trace.stages[number].entropy == pytest.approx(
            -math.fsum(p * math.log(p) for p in probs.values() if p > 0), abs=1e-5
        )
