"""Bisection: with and without shown logprobs, with noise, and rejected where it would measure something else."""

import numpy as np
import pytest
from logitsmith.recover import RecoverError, RecoverySettings, recover

from .fakes import Fake, row_of
from .odd import Odd, rounded, scaled

ROW = row_of()
SHARP = row_of(top=3.0)


def off(found, row=ROW):
    """Return the largest error, on the scale of the result."""
    return np.nanmax(np.abs(found.logprobs - (row if found.is_normalized else row - row.max())))


@pytest.mark.parametrize("window", [0, 2, 5, 20])
@pytest.mark.parametrize(
    ("method", "habits"),
    [
        ("bisection", {}),
        ("auto", {"raw": True, "mute": True}),
        ("bisection", {"drawn": True, "chooser": True}),
        ("auto", {"raw": True, "mute": True, "drawn": True, "chooser": True}),
    ],
)
def test_bisection_ignores_shown_logprobs(window, method, habits):
    found = recover(Odd(ROW, window, **habits), "x", method)
    assert (found.method, found.is_complete, found.is_normalized) == ("bisection", True, True)
    assert off(found) <= found.max_error_nats <= 1.1e-3
    some = recover(Odd(ROW, window, **habits), "x", method, tokens=[1, 2, 3, 270])
    assert not some.is_normalized
    assert off(some) <= 5e-4


@pytest.mark.parametrize("eps", [1e-2, 1e-4])
def test_bisection_stops_at_its_error(eps):
    found = recover(Fake(ROW, 0), "x", settings=RecoverySettings(bisection_error_nats=eps))
    assert off(found) <= eps
    assert found.max_error_nats == pytest.approx(eps)
    part = recover(Fake(ROW, 0), "x", settings=RecoverySettings(bisection_error_nats=eps, max_calls=40))
    assert (part.stop_reason, part.is_normalized, np.nanmax(part.logprobs)) == ("max_calls", False, 0)


@pytest.mark.parametrize("window", [0, 2, 5, 20])
def test_bisection_ranks_tokens(window):
    found = recover(Odd(ROW, window), "x", "bisection", top_count=30)
    assert set(found.ids) == set(np.argsort(-ROW)[:30])
    assert off(found) <= 5e-4


REFUSED = {
    "drawn": (Odd(ROW, 5, drawn=True), "bisection", "biases are not added exactly|draws its tokens"),
    "drawn, a likely one": (Odd(SHARP, 5, drawn=True, raw=True, mute=True), "auto", "draws its tokens"),
    "drawn, not shown": (Odd(ROW, 0, drawn=True), "auto", "draws its tokens"),
    "another each time": (Fake(ROW, 0, noise=3.0), "auto", "draws its tokens"),
    "scaled": (Odd(ROW, 5, heard=scaled(0.7), raw=True, mute=True), "auto", "are not added exactly"),
    "rounded": (Odd(ROW, 5, heard=rounded, raw=True, mute=True), "auto", "are not added exactly"),
    "rounded, not shown": (Odd(ROW, 0, heard=rounded), "auto", "the endpoint rounds or reshapes biases"),
    "reshaped": (
        Odd(ROW, 0, heard=lambda bias: {token: value**3 / 99 for token, value in bias.items()}),
        "auto",
        "the endpoint rounds or reshapes biases",
    ),
    "a step of 1": (
        Odd(ROW, 5, heard=rounded),
        "bisection",
        "biases are rounded to multiples of 1.*parallel or auto may",
    ),
    "deaf": (Fake(ROW, 0, deaf=True), "auto", "nothing can be recovered .*a bias does not change the token"),
    "deaf, with a window": (
        Fake(ROW, 5, deaf=True),
        "auto",
        "nothing can be recovered .*changes neither the logprobs nor the chosen token",
    ),
    "deaf, with a window of 1": (Fake(ROW, 1, deaf=True), "bisection", "nothing can be recovered"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rejected_before_many_calls(name):
    endpoint, method, message = REFUSED[name]
    before = endpoint.calls
    with pytest.raises(RecoverError, match=message):
        recover(endpoint, "x", method)
    assert endpoint.calls - before < 200


def test_tokens_of_the_unbiased_response_need_no_query():
    found = recover(Fake(ROW, 5, deaf=True), "x", top_count=4)
    assert (found.is_complete, found.total_calls) == (True, 4)
    assert off(found) < 1e-12


@pytest.mark.parametrize("repeats", [None, 1, 5])
def test_noise_widens_the_interval(repeats):
    endpoint = Fake(ROW, 0, noise=1e-2)
    found = recover(endpoint, "x", tokens=list(range(60)), settings=RecoverySettings(calls_per_query=repeats))
    assert off(found) <= found.max_error_nats < 0.2
    assert any("choices vary from call to call" in note for note in found.notes)


@pytest.mark.slow
def test_each_query_is_repeated_and_the_majority_counts():
    tokens, worst = list(range(100)), {}
    for repeats in (1, 25):
        endpoint = Fake(ROW, 0, noise=1e-2)
        found = recover(endpoint, "x", tokens=tokens, settings=RecoverySettings(calls_per_query=repeats))
        worst[repeats] = float(np.std((found.logprobs - ROW)[tokens]))
        assert endpoint.calls > repeats * 100 * 14
    assert worst[25] < 0.6 * worst[1]


def test_a_threshold_that_moves_during_the_run_is_noticed():
    found = recover(Odd(ROW, 0, moved=500), "x")
    assert found.max_error_nats > 4e-3
    assert any("changed by up to" in note for note in found.notes)
    assert not any("changed by up to" in note for note in recover(Odd(ROW, 0), "x").notes)
