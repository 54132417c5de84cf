import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from .rows import MIN_FLOAT32, NEG, NORMAL, row, rows, run, softmax, table

# Probabilities 1/2, 1/4, 1/8 and 1/8: an entropy of 1.75 bits, 1.75 ln 2 nats.
HALVES = row(-math.log(4), -math.log(2), 0, -math.log(4))
NATS = 1.75 * math.log(2)

# (temperature, theta, base), logits, what they are divided by, ids left
WORKED = {
    "no idea": ((1.0, 1.0, 0.8), row(3, 3, 3, 3), 0.8 ** (1 / math.log(4)), [0, 1, 2, 3]),
    "in between": ((1.0, 0.5, 0.8), HALVES, 0.8 ** (0.5 / NATS), [0, 1, 2, 3]),
    "another temperature": ((0.7, 0.5, 0.8), HALVES, 0.7 * 0.8 ** (0.5 / NATS), [0, 1, 2, 3]),
    "another base": ((1.0, 0.5, 0.5), HALVES, 0.5 ** (0.5 / NATS), [0, 1, 2, 3]),
    "an entropy in bits is theta times ln 2": ((1.0, math.log(2), 0.8), HALVES, 0.8 ** (1 / 1.75), [0, 1, 2, 3]),
    "base 1 is temperature": ((0.5, 3.0, 1.0), HALVES, 0.5, [0, 1, 2, 3]),
    "theta 0 is temperature": ((0.5, 0.0, 0.8), HALVES, 0.5, [0, 1, 2, 3]),
    "integers": ((2, 1, 1), HALVES, 2, [0, 1, 2, 3]),
    "temperature 0 keeps the best": ((0.0, 0.5, 0.8), HALVES, 1, [2]),
    "temperature 0, theta 0 keeps the best": ((0.0, 0.0, 0.8), HALVES, 1, [2]),
    "entropy 0 keeps the best": ((1.0, 0.5, 0.8), row(0, 200, -50), 1, [1]),
    "entropy 0, base 1": ((0.5, 0.5, 1.0), row(0, 200, -50), 0.5, [0, 1, 2]),
    "entropy 0, theta 0": ((0.5, 0.0, 0.8), row(0, 200, -50), 0.5, [0, 1, 2]),
    "hardly any entropy": ((1.0, 0.5, 0.8), row(0, 50, -50), 1, [1]),
    "one candidate stays as it is": ((0.5, 0.25, 0.8), row(3), 1, [0]),
    "one finite candidate": ((0.5, 0.25, 0.8), row(NEG, 3), 1, [1]),
    "one candidate, theta 0": ((0.5, 0.0, 0.8), row(3), 0.5, [0]),
    "-inf stays, and has no entropy": ((1.0, 1.0, 0.8), row(NEG, 2, 2), 0.8 ** (1 / math.log(2)), [0, 1, 2]),
    "a quotient that overflows keeps the best": ((1e-40, 0.5, 0.8), row(2, 3), 1, [1]),
    "a great theta keeps the best": ((1.0, 1e30, 0.8), row(2, 3), 1, [1]),
}


@pytest.mark.parametrize(("params", "logits", "t", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(params, logits, t, ids):
    temperature, theta, base = params
    left = run({"edt": {"temperature": temperature, "theta": theta, "base": base}}, logits)
    assert left.ids.tolist() == ids
    assert left.logits.tolist() == pytest.approx([float(logits[i]) / t for i in ids], rel=1e-6)


SETTINGS = st.fixed_dictionaries(
    {"temperature": st.floats(0.01, 3), "theta": st.floats(1e-3, 5), "base": st.floats(0.1, 1)}
)


def check(logits, params):
    probs = softmax(logits)
    entropy = -math.fsum(p * math.log(p) for p in probs if p > 0)
    if 0 < entropy < 0.01:  # here the rounding of float32 is most of the entropy
        return
    t = params["temperature"] * params["base"] ** (params["theta"] / entropy if entropy else math.inf)
    highest = float(logits.max())
    left = run({"edt": params}, logits)
    if t > 1e-40 and abs(highest) / t < 3e38:
        assert left.ids.tolist() == list(range(logits.size))
        expected = logits.astype(np.float64) / t
        expected[expected < MIN_FLOAT32] = NEG  # as with a temperature
        np.testing.assert_allclose(
            left.logits, expected, rtol=1e-3, atol=float(np.finfo(np.float32).smallest_subnormal)
        )
    elif not t:
        assert table(left) == [(int(logits.argmax()), highest)]


@given(rows(300), SETTINGS)
@example(NORMAL, {"temperature": 0.9, "theta": 0.4, "base": 0.8})
def test_brute_force(logits, params):
    check(logits, params)


@given(rows(300), st.floats(0.01, 3))
def test_theta_0_is_temperature(logits, t):
    ours, other = run({"edt": {"temperature": t}}, logits), run({"temperature": t}, logits)
    np.testing.assert_array_equal(ours.ids, other.ids)
    np.testing.assert_array_equal(ours.logits, other.logits)
