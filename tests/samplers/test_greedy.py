import pytest
from hypothesis import given
from logitsmith.samplers import build

from ..oracle.native import NativeSampler
from .rows import LARGEST, NEG, row, rows

WORKED = {
    "the highest": (row(1, 3, 2), 1),
    "the first of equal ones": (row(1, 3, 3), 1),
    "minus zero equals zero": (row(-0.0, 0.0), 0),
    "beside -inf": (row(NEG, NEG, -5), 2),
    "one candidate": (row(-5), 0),
}


@pytest.mark.parametrize(("logits", "token"), WORKED.values(), ids=WORKED)
def test_worked_example(logits, token):
    assert build(["greedy"]).sample(logits) == token


@given(rows(300))
def test_brute_force(logits):
    best = 0
    for i, value in enumerate(logits.tolist()):
        if value > logits[best]:
            best = i
    assert build(["greedy"]).sample(logits) == best


def token_of_llama_cpp(logits):
    with NativeSampler("greedy", vocabulary=logits.size) as native:
        return native.apply(logits).token


@given(rows(LARGEST))
def test_equals_llama_cpp(logits):
    assert build(["greedy"]).sample(logits) == token_of_llama_cpp(logits)
