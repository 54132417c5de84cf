import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import SamplingError, build

from .rows import LARGE, MAX_FLOAT32, MIN_FLOAT32, NEG, refuses, row, rows, run, table, within

LOGITS = row(4, -4, 0, 8, NEG)

# penalty, logits, prompt, output, logits afterwards
WORKED = {
    "multiplies from zero up": (2.0, LOGITS, [0, 2], [], [8, -4, 0, 8, NEG]),
    "divides below zero": (2.0, LOGITS, [1], [], [4, -2, 0, 8, NEG]),
    "once a token": (2.0, LOGITS, [0, 0, 1, 0], [], [8, -2, 0, 8, NEG]),
    "the output does not count": (2.0, LOGITS, [0], [1, 3], [8, -4, 0, 8, NEG]),
    "no prompt": (2.0, LOGITS, [], [0, 1], [4, -4, 0, 8, NEG]),
    "below one makes them less likely": (0.5, LOGITS, [0, 1], [], [2, -8, 0, 8, NEG]),
    "-inf stays -inf": (2.0, LOGITS, [4], [], [4, -4, 0, 8, NEG]),
    "overflow is held finite": (8.0, row(3e38, -3e38), [0], [], [MAX_FLOAT32, -3e38]),
    "overflow below is held finite": (0.125, row(3e38, -3e38), [1], [], [3e38, MIN_FLOAT32]),
    "the largest penalty": (3e38, row(1, -1, 0), [0, 1, 2], [], [3e38, -1 / 3e38, 0]),
    "a penalty that is zero in float32": (1e-50, row(1, 0, -1, NEG), [0, 1, 2, 3], [], [0, 0, MIN_FLOAT32, NEG]),
    # float32 holds 1e-40, but not 1 / 1e-40.
    "a penalty without a reciprocal": (1e-40, row(1e10, -1e-10), [0, 1], [], [1e-30, -1e30]),
}


@pytest.mark.parametrize(("penalty", "logits", "prompt", "output", "expected"), WORKED.values(), ids=WORKED)
def test_worked_example(penalty, logits, prompt, output, expected):
    left = run({"encoder_repetition_penalty": penalty}, logits, prompt, output)
    assert left.ids.tolist() == list(range(logits.size))
    # float32 holds 1e-40 and 1 / 3e38 to five places.
    np.testing.assert_allclose(left.logits, row(*expected), rtol=1e-5 if abs(math.log(penalty)) > 80 else 0)


def by_hand(logits, prompt, penalty):
    expected = []
    for token, value in enumerate(logits.tolist()):
        if token in prompt and value != NEG:
            raised = value / penalty if value < 0 else value * penalty
            expected.append(min(max(raised, MIN_FLOAT32), MAX_FLOAT32))
        else:
            expected.append(value)
    return expected


PENALTY = st.sampled_from([1.1, 2.0, 0.5, 1e30, 1e-30]) | st.floats(0.125, 5)
TOKENS = st.lists(st.integers(0, 30) | st.integers(0, 4999), max_size=80)


@given(rows(300), PENALTY, TOKENS, TOKENS)
def test_brute_force(logits, penalty, prompt, output):
    prompt, output = within(prompt, logits), within(output, logits)
    left = run({"encoder_repetition_penalty": penalty}, logits, prompt, output)
    np.testing.assert_allclose(left.logits, by_hand(logits, prompt, penalty), rtol=1e-6, atol=1e-44)


@pytest.mark.parametrize("logits", LARGE)
def test_brute_force_on_a_large_vocabulary(logits):
    prompt = [*range(0, 200_000, 400), 7, 199_999]
    left = run({"encoder_repetition_penalty": 1.3}, logits, prompt)
    np.testing.assert_allclose(left.logits, by_hand(logits, set(prompt), 1.3), rtol=1e-6)


@given(rows(300), PENALTY, TOKENS)
def test_undoes_repetition_penalty_of_the_same_prompt(logits, penalty, prompt):
    logits = np.clip(logits, np.float32(-1e5), np.float32(1e5))
    prompt = within(prompt, logits)
    lowered = run({"repetition_penalty": penalty}, logits, prompt).logits
    left = run({"encoder_repetition_penalty": penalty}, lowered, prompt)
    kept = (lowered == 0) == (logits == 0)  # what fell below the smallest float32 is gone
    np.testing.assert_allclose(left.logits[kept], logits[kept], rtol=1e-6, atol=1e-6)


@given(rows(300))
def test_neutral_is_identity(logits):
    chain = build([{"encoder_repetition_penalty": 1.0}])
    assert [step.about.name for step in chain.steps] == ["dist"]
    chain.reset([0])
    assert chain.apply(logits).logits is logits


def test_rows_that_an_earlier_step_reordered():
    chain = build([{"top_k": 2}, {"encoder_repetition_penalty": 2.0}])
    chain.reset([0, 2])
    left = chain.apply(row(1, 4, 3))
    assert table(left) == [(1, 4.0), (2, 6.0)]
    assert not left.is_ordered
    chain.reset([0])
    assert chain.apply(row(1, 4, 3)).is_ordered, "none of its rows is in the prompt"


def test_reset_forgets_the_prompt_and_the_size_of_the_vocabulary():
    chain = build([{"encoder_repetition_penalty": 2.0}])
    for prompt, logits, expected in [
        ([0], row(1, 2), [2, 2]),
        ([1], row(1, 2), [1, 4]),
        ([2], row(1, 2, 3), [1, 2, 6]),
        ([0], row(1, 2), [2, 2]),
    ]:
        chain.reset(prompt)
        for token in (1, 0):
            assert chain.apply(logits).logits.tolist() == expected
            chain.accept(token)


@pytest.mark.parametrize("token", [-1, 3, 50_000])
def test_an_id_outside_the_vocabulary(token):
    chain = build([{"encoder_repetition_penalty": 2.0}])
    chain.reset([token])
    message = rf"^encoder_repetition_penalty: token id {token} in the text is not within 0\.\.2$"
    with pytest.raises(SamplingError, match=message):
        chain.apply(row(1, 3, 2))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.0, "chain[0].encoder_repetition_penalty.penalty: 0.0 is not > 0"),
        (-1, "chain[0].encoder_repetition_penalty.penalty: -1 is not > 0"),
        (math.nan, "chain[0].encoder_repetition_penalty.penalty: nan is not a finite number (> 0)"),
        (1e39, "chain[0].encoder_repetition_penalty.penalty: 1e+39: must be within the range of float32, ±3.4e38"),
        ("1.1", "chain[0].encoder_repetition_penalty.penalty: '1.1' is not a number (> 0)"),
        ({"range": 4}, "chain[0].encoder_repetition_penalty: unknown parameter 'range'; known: penalty"),
    ],
)
def test_refusal(value, message):
    refuses({"encoder_repetition_penalty": value}, message)
