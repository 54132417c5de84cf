import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from .rows import (
    LARGEST,
    MAX_FLOAT32,
    MIN_FLOAT32,
    NEG,
    NORMAL,
    agree,
    native,
    row,
    rows,
    run,
    within,
)

# Tokens 0..5, of which 5 is in none of the stories below.
LOGITS = row(4, -4, 0, 8, NEG, 4)
# parameters, logits, story, logits afterwards
WORKED = {
    # The wiki's three rules, and that it is once a token.
    "not in the story": ({"penalty": 2.0}, LOGITS, [], [4, -4, 0, 8, NEG, 4]),
    "divides above zero": ({"penalty": 2.0}, LOGITS, [0, 3], [2, -4, 0, 4, NEG, 4]),
    "multiplies up to zero": ({"penalty": 2.0}, LOGITS, [1, 2, 4], [4, -8, 0, 8, NEG, 4]),
    "more than once counts once": ({"penalty": 2.0}, LOGITS, [0, 0, 1, 0], [2, -8, 0, 8, NEG, 4]),
    "below one rewards": ({"penalty": 0.5}, LOGITS, [0, 1], [8, -2, 0, 8, NEG, 4]),
    "the range ends": ({"penalty": 2.0, "range": 2}, LOGITS, [0, 1, 3], [4, -8, 0, 4, NEG, 4]),
    "the range is longer than the story": ({"penalty": 2.0, "range": 9}, LOGITS, [0], [2, -4, 0, 8, NEG, 4]),
    "range 0 is all of it": ({"penalty": 2.0, "range": 0}, LOGITS, [0] + [2] * 500, [2, -4, 0, 8, NEG, 4]),
    "in range by its last occurrence": ({"penalty": 2.0, "range": 2}, LOGITS, [0, 1, 0], [2, -8, 0, 8, NEG, 4]),
    "overflow is held finite": ({"penalty": 0.125}, row(3e38, -3e38, 1), [0, 2], [MAX_FLOAT32, -3e38, 8]),
    "overflow below is held finite": ({"penalty": 8.0}, row(3e38, -3e38, 1), [1], [3e38, MIN_FLOAT32, 1]),
    "zero in float32": ({"penalty": 1e-50}, row(1, 0, -1, NEG), [0, 1, 2, 3], [MAX_FLOAT32, 0, 0, NEG]),
}

SPLITS = pytest.mark.parametrize("split", [0, 1, 99], ids=["output", "both", "prompt"])


@SPLITS
@pytest.mark.parametrize(("params", "logits", "story", "expected"), WORKED.values(), ids=WORKED)
def test_worked_example(params, logits, story, expected, split):
    left = run({"repetition_penalty": params}, logits, story[:split], story[split:])
    assert left.ids.tolist() == list(range(logits.size))
    np.testing.assert_array_equal(left.logits, row(*expected))


# From the last token backwards x is 1, 1/2, 0, -1/2, -1 over a range of 5, and 1, 0, -1 over one of 3. Slope 1
# leaves it so, slope 3 makes 3/4 of 1/2, slope 1/2 makes 1/3 of it.
# penalty, range, slope, story, penalties of tokens 0..5
SLOPED = {
    "slope 1": (2.0, 5, 1.0, [4, 3, 2, 1, 0], [2, 1.75, 1.5, 1.25, 1, 1]),
    "slope 3": (2.0, 5, 3.0, [4, 3, 2, 1, 0], [2, 1.875, 1.5, 1.125, 1, 1]),
    "slope 1/2": (2.0, 5, 0.5, [4, 3, 2, 1, 0], [2, 5 / 3, 1.5, 4 / 3, 1, 1]),
    "slope 0 is flat": (2.0, 5, 0, [4, 3, 2, 1, 0], [2, 2, 2, 2, 2, 1]),
    "no range is flat": (2.0, 0, 3.0, [4, 3, 2, 1, 0], [2, 2, 2, 2, 2, 1]),
    "one token is the near end": (2.0, 1, 3.0, [1, 0], [2, 1, 1, 1, 1, 1]),
    "two tokens are the two ends": (2.0, 2, 3.0, [1, 0], [2, 1, 1, 1, 1, 1]),
    "beyond the range": (2.0, 3, 1.0, [3, 2, 1, 0], [2, 1.5, 1, 1, 1, 1]),
    "a story shorter than the range": (2.0, 5, 3.0, [1, 0], [2, 1.875, 1, 1, 1, 1]),
    "the last occurrence counts": (2.0, 5, 3.0, [1, 1, 0, 1, 0], [2, 1.875, 1, 1, 1, 1]),
    "a penalty below one": (0.5, 5, 1.0, [4, 3, 2, 1, 0], [0.5, 0.625, 0.75, 0.875, 1, 1]),
    "a slope without end": (2.0, 5, 1e38, [4, 3, 2, 1, 0], [2, 2, 1.5, 1, 1, 1]),
    # Where |x| is 1, so is |y|, at any slope.
    "a slope of next to nothing": (2.0, 3, 1e-20, [2, 1, 0], [2, 1.5, 1, 1, 1, 1]),
}


@SPLITS
@pytest.mark.parametrize(("penalty", "window", "slope", "story", "penalties"), SLOPED.values(), ids=SLOPED)
def test_worked_example_with_a_slope(penalty, window, slope, story, penalties, split):
    params = {"penalty": penalty, "range": window, "slope": slope}
    left = run({"repetition_penalty": params}, row(*[8] * 6), story[:split], story[split:])
    np.testing.assert_allclose(left.logits, [8 / r for r in penalties], rtol=1e-6)


def by_hand(logits, story, penalty, window, slope):
    expected = []
    for token, value in enumerate(logits.tolist()):
        distances = [len(story) - 1 - place for place, seen in enumerate(story) if seen == token]
        d = min(distances, default=None)
        if d is None or (window and d >= window) or value == NEG:
            expected.append(value)
            continue
        r = penalty
        if window > 1 and slope > 0:
            x = 2 * (window - 1 - d) / (window - 1) - 1
            y = slope * x / (1 - abs(x) + abs(x) * slope)  # so written, a slope of 1e-20 is not lost beside 1
            r = 1 + (y + 1) / 2 * (penalty - 1)
        expected.append(min(max(value * r if value <= 0 else value / r, MIN_FLOAT32), MAX_FLOAT32))
    return expected


PENALTY = st.sampled_from([1.1, 2.0, 0.5]) | st.floats(0.125, 5)
RANGE = st.sampled_from([0, 1, 2]) | st.integers(0, 60)
SLOPE = st.sampled_from([0.0, 0.7, 1.0]) | st.floats(0, 10)
STORY = st.lists(st.integers(0, 30) | st.integers(0, 4999), max_size=80)


@given(rows(300), PENALTY, RANGE, SLOPE, STORY, STORY)
@example(NORMAL, 1.3, 5, 2.5, [7, 199_999, 8], [9, 7])
def test_brute_force(logits, penalty, window, slope, prompt, output):
    prompt, output = within(prompt, logits), within(output, logits)
    params = {"penalty": penalty, "range": window, "slope": slope}
    left = run({"repetition_penalty": params}, logits, prompt, output)
    expected = by_hand(logits, prompt + output, penalty, window, slope)
    np.testing.assert_allclose(left.logits, expected, rtol=1e-6, atol=1e-44)


# Over a range of 4 the last two tokens are near; over one of 5 the last three.
# penalty, range, slope, story, penalties of tokens 0..5
HALVES = {
    "even": (2.0, 4, 0.5, [3, 2, 1, 0], [2, 2, 1.5, 1.5, 1, 1]),
    "odd: the middle is near": (2.0, 5, 0.5, [4, 3, 2, 1, 0], [2, 2, 2, 1.5, 1.5, 1]),
    "the halves are those of the range, not of the story": (2.0, 6, 0.5, [1, 0], [2, 2, 1, 1, 1, 1]),
    "the last occurrence counts": (2.0, 4, 0.5, [0, 3, 1, 0], [2, 2, 1, 1.5, 1, 1]),
    "beyond the range": (2.0, 4, 0.5, [5, 3, 2, 1, 0], [2, 2, 1.5, 1.5, 1, 1]),
    "slope 1 is flat": (2.0, 4, 1.0, [3, 2, 1, 0], [2, 2, 2, 2, 1, 1]),
    "above 1 it is flat": (2.0, 4, 6.8, [3, 2, 1, 0], [2, 2, 2, 2, 1, 1]),
    "slope 0 is flat": (2.0, 4, 0.0, [3, 2, 1, 0], [2, 2, 2, 2, 1, 1]),
    "a slope of 0 in float32 is flat": (2.0, 4, 1e-60, [3, 2, 1, 0], [2, 2, 2, 2, 1, 1]),
    "range 0 is flat": (2.0, 0, 0.5, [3, 2, 1, 0], [2, 2, 2, 2, 1, 1]),
    "one token is the near half": (2.0, 1, 0.5, [1, 0], [2, 1, 1, 1, 1, 1]),
    "a penalty below one is flat": (0.5, 4, 0.5, [3, 2, 1, 0], [0.5, 0.5, 0.5, 0.5, 1, 1]),
}


@SPLITS
@pytest.mark.parametrize(("penalty", "window", "slope", "story", "penalties"), HALVES.values(), ids=HALVES)
def test_worked_example_with_halves(penalty, window, slope, story, penalties, split):
    params = {"penalty": penalty, "range": window, "slope": slope, "shape": "halves"}
    left = run({"repetition_penalty": params}, row(*[8] * 6), story[:split], story[split:])
    np.testing.assert_array_equal(left.logits, [np.float32(8) / np.float32(r) for r in penalties])


def as_koboldcpp_does(logits, story, penalty, window, slope):
    """KoboldCpp's loop over a window that is filled up in front, in its arithmetic of 32 bits."""
    penalty, slope = np.float32(penalty), np.float32(slope)
    if slope > 1 or slope <= 0:
        slope = np.float32(1)
    last_tokens = [-1] * max(window - len(story), 0) + story[max(len(story) - window, 0) :]
    marks = {}
    for place, token in enumerate(last_tokens):
        marks[token] = "far" if place < window // 2 else "near"
    reduced = np.float32(1) + (penalty - np.float32(1)) * slope if penalty > 1 else penalty
    expected = logits.copy()
    for token, mark in marks.items():
        if token >= 0:
            r = penalty if mark == "near" else reduced
            with np.errstate(over="ignore"):
                expected[token] = logits[token] * r if logits[token] <= 0 else logits[token] / r
    return expected


@given(rows(300), st.floats(0.125, 5), st.integers(1, 60), SLOPE, STORY, STORY)
def test_halves_equal_koboldcpps_loop(logits, penalty, window, slope, prompt, output):
    logits = np.clip(logits, np.float32(-1e37), np.float32(1e37))  # an overflow is infinite in KoboldCpp
    prompt, output = within(prompt, logits), within(output, logits)
    params = {"penalty": penalty, "range": window, "slope": slope, "shape": "halves"}
    left = run({"repetition_penalty": params}, logits, prompt, output)
    np.testing.assert_array_equal(left.logits, as_koboldcpp_does(logits, prompt + output, penalty, window, slope))


@given(rows(LARGEST), PENALTY, RANGE, STORY, STORY)
def test_without_a_slope_it_equals_llama_cpps_penalties(logits, penalty, window, prompt, output):
    logits = np.clip(logits, np.float32(-1e37), np.float32(1e37))  # llama.cpp lets what overflows become infinite
    prompt, output = within(prompt, logits), within(output, logits)
    ours = run({"repetition_penalty": {"penalty": penalty, "range": window}}, logits, prompt, output)
    theirs = native([{"penalties": {"repeat": penalty, "last_n": window or -1}}], logits, prompt + output)
    assert ours.ids.tolist() == theirs.ids.tolist()
    agree(ours, theirs)
