import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import MAX_FLOAT32, MIN_FLOAT32, NEG, NORMAL, row, rows, run, within

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
@example(NORMAL, 1.3, [7, 199_999], [8])
def test_brute_force(logits, penalty, prompt, output):
    prompt, output = within(prompt, logits), within(output, logits)
    left = run({"encoder_repetition_penalty": penalty}, logits, prompt, output)
    np.testing.assert_allclose(left.logits, by_hand(logits, prompt, penalty), rtol=1e-6, atol=1e-44)


@given(rows(300), PENALTY, TOKENS)
def test_undoes_repetition_penalty_of_the_same_prompt(logits, penalty, prompt):
    logits = np.clip(logits, np.float32(-1e5), np.float32(1e5))
    prompt = within(prompt, logits)
    lowered = run({"repetition_penalty": penalty}, logits, prompt).logits
    left = run({"encoder_repetition_penalty": penalty}, lowered, prompt)
    kept = (lowered == 0) == (logits == 0)  # what fell below the smallest float32 is gone
    np.testing.assert_allclose(left.logits[kept], logits[kept], rtol=1e-6, atol=1e-6)


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
