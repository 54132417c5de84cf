"""Endpoints with unusual behavior: a logprob is right within its error or missing, or the run is rejected."""

import numpy as np
import pytest
from logitsmith.recover import RecoverError, RecoverySettings, recover

from .fakes import Fake, row_of
from .odd import Odd, first_only, nucleus, rounded, scaled, without

ROW = row_of()
ORDER = np.argsort(-ROW)
IGNORED = [5, 50, 100, 200]


def cut_without(*ids):
    return lambda bias: {t: max(-8.0, min(8.0, value)) for t, value in bias.items() if t not in ids}


def last_five(bias):
    return dict(list(bias.items())[-5:])


def first_five(bias):
    return dict(list(bias.items())[:5])


HEARD = {
    "some tokens' biases are ignored": (without(*IGNORED), 4),
    "the same, and biases are cut": (cut_without(*IGNORED), 14),  # they cannot be pushed out of others' way
    "only the first bias counts": (first_only, 0),
    "only the first five count": (first_five, 0),
    "only the last five count": (last_five, 0),
    "rounded": (rounded, 0),
}


@pytest.mark.parametrize("window", [2, 5, 20])
@pytest.mark.parametrize("name", HEARD)
def test_biases_that_are_not_added(name, window):
    heard, missing = HEARD[name]
    found = recover(Odd(ROW, window, heard=heard), "x")
    gaps = np.flatnonzero(np.isnan(found.logprobs)).tolist()
    assert set(gaps) >= set(IGNORED if missing else ())
    assert len(gaps) <= missing
    assert found.is_complete == (not missing)
    assert np.nanmax(np.abs(found.logprobs - ROW)) < 1e-9
    if missing:
        assert any("as if a bias were ignored" in note for note in found.notes)


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("n", [None, 30])
def test_biases_that_are_rounded_to_integers(window, n):
    endpoint = Odd(ROW, window, heard=rounded)
    found = recover(endpoint, "x", top_count=n)
    assert found.is_complete
    assert any("biases are rounded to multiples of 1" in note for note in found.notes)
    assert np.nanmax(np.abs(found.logprobs - ROW)) < 1e-9


NOT_AS_ASKED = {
    "scaled, window of 1": (1, scaled(0.7), "shifts logprobs by 0.7 nats instead of the expected 1"),
    "scaled": (5, scaled(0.7), "shifts logprobs by 1.4 nats instead of the expected 2"),
    "a factor of 0.98": (20, scaled(0.98), "shifts logprobs by .* instead of the expected"),
    "the sign": (5, scaled(-1.0), "nothing can be recovered"),
}


@pytest.mark.parametrize("name", NOT_AS_ASKED)
@pytest.mark.parametrize("method", ["auto", "parallel", "single", "bisection"])
def test_biases_with_an_unexpected_effect(name, method):
    window, heard, message = NOT_AS_ASKED[name]
    with pytest.raises(RecoverError, match=message):
        recover(Odd(ROW, window, heard=heard), "x", method)


def test_a_bias_that_is_larger_than_asked_gives_no_number():
    found = recover(Odd(ROW, 5, heard=lambda bias: {t: v + 20 * (t == 50) for t, v in bias.items()}), "x")
    assert np.flatnonzero(np.isnan(found.logprobs)).tolist() == [50]
    assert np.nanmax(np.abs(found.logprobs - ROW)) < 1e-9
    assert not found.is_complete


def test_small_logprobs_that_are_shown_wrongly():
    endpoint = Odd(ROW, 10, min_reliable_logprob=-7.0, shaped=lambda row: np.where(row < -7, -7.5, row))
    found = recover(endpoint, "x")
    assert found.is_complete
    assert np.abs(found.logprobs - ROW).max() < 1e-9


def test_a_chosen_tokens_own_logprob_may_be_that_after_the_biases():
    found = recover(Odd(ROW, 5, raw=True, own_after=True), "x", tokens=[1, 2])
    assert (found.method, found.is_complete) == ("bisection", True)
    with pytest.raises(RecoverError, match="forced does not work"):
        recover(Odd(ROW, 5, raw=True, own_after=True), "x", "forced")


@pytest.mark.parametrize("cut", [6, 8, 9, 10, 11, 12, 30])
@pytest.mark.parametrize("n", [20, 40, 120])
def test_limited_suppression_is_compared_with_single_repeatedly(cut, n):
    endpoint = Fake(ROW, 1, cut=float(cut))
    try:
        found = recover(endpoint, "x", top_count=n)
    except RecoverError as error:
        assert "it may limit biases" in str(error)  # noqa: PT017
        assert cut < 9
        return
    assert set(found.ids) == set(ORDER[:n])
    assert np.nanmax(np.abs(found.logprobs - ROW) - found.errors) < 1e-10
    assert found.max_error_nats < (3e-4 if cut < 10 else 2e-4)


def test_a_sum_that_is_not_1_is_a_failure():
    found = recover(Odd(ROW, 5, shaped=nucleus(0.95)), "x")
    assert not found.is_complete
    assert found.errors.min() >= 0.049
    assert any("that is not 1 within the errors" in note for note in found.notes)
    flat = recover(Odd(ROW, 5, shaped=lambda row: row + 0.1 * (row < -8)), "x")
    assert not flat.is_complete
    assert np.all(np.abs(flat.logprobs - ROW)[ROW > -8] <= flat.errors[ROW > -8])


def test_a_part_of_the_tokens_cannot_have_more_than_all_probability():
    endpoint = Odd(ROW, 5, shaped=lambda row: row + 0.3 * (row.max() < -0.5))
    found = recover(endpoint, "x", top_count=25)
    assert not found.is_complete
    assert any("that is not 1 within the errors" in note for note in found.notes)
    assert recover(Odd(ROW, 5), "x", top_count=25).is_complete


CUT_OFF = {"top_p of 0.7": (5, nucleus(0.7)), "top_p of 0.95, all of it shown": (50, nucleus(0.95))}


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_sampler_that_cuts_off_is_refused(name):
    window, shaped = CUT_OFF[name]
    with pytest.raises(RecoverError, match="the endpoint truncates its tokens"):
        recover(Odd(ROW, window, shaped=shaped), "x")


def test_shown_logprobs_with_all_probability_are_noted():
    found = recover(Odd(ROW, 3, shaped=nucleus(0.7)), "x", top_count=3)
    assert any("if the endpoint truncates its tokens" in note for note in found.notes)
    assert not any("truncates" in note for note in recover(Fake(row_of(top=30.0), 10), "x", top_count=3).notes)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_token_that_was_drawn_is_shown_beside_the_window(window):
    for n in (window, 30):
        found = recover(Odd(ROW, window, sampled=True, drawn=True), "x", top_count=n)
        assert found.is_complete
        assert set(found.ids) == set(ORDER[:n])
        assert np.nanmax(np.abs(found.logprobs - ROW)) < 1e-9


NAMELESS = {
    "in the base window": (5, [2], False),
    "behind it": (5, [8], False),
    "the window's only one": (1, [2], False),
    "all of a window": (3, [5, 6, 7], False),
    "behind what was asked for": (5, [10], True),
    "far behind": (5, [70], True),
}


@pytest.mark.parametrize("name", NAMELESS)
def test_likely_tokens_that_cannot_be_named(name):
    window, ranks, complete = NAMELESS[name]
    found = recover(Odd(ROW, window, nameless=ORDER[ranks]), "x", top_count=10)
    assert found.is_complete == complete
    assert any("cannot name" in note for note in found.notes) == (not complete)
    assert np.nanmax(np.abs(found.logprobs - ROW)) < 1e-9


@pytest.mark.parametrize(("window", "method"), [(20, "parallel"), (20, "single"), (1, "single")])
def test_noise_has_an_error_even_if_each_query_is_sent_once(window, method):
    endpoint = Odd(ROW, window, noise=1e-3, relative_error=1e-6)
    found = recover(endpoint, "x", method, settings=RecoverySettings(calls_per_query=1))
    off = np.abs(found.logprobs - ROW)
    assert (off <= 3 * found.errors).mean() > 0.97
    assert np.median(found.errors) < 10e-3


@pytest.mark.parametrize("repeats", [None, 3])
def test_an_endpoint_that_changes_during_the_run(repeats):
    found = recover(
        Odd(ROW, 2, moved=50, relative_error=1e-6), "x", settings=RecoverySettings(calls_per_query=repeats)
    )
    assert found.errors.min() > 1e-3
    assert any("changed by up to" in note for note in found.notes)


@pytest.mark.parametrize("digits", [2, 3, 5])
def test_hidden_digits_are_an_error(digits):
    found = recover(Fake(ROW, 10, digits=digits, relative_error=1e-14), "x")
    off = np.abs(found.logprobs - ROW).max()
    assert 0.3 * 10.0**-digits < off < 3 * found.max_error_nats < 10 * 10.0**-digits
    assert (np.abs(found.logprobs - ROW) <= 2 * found.errors).all()


def test_a_relative_error_that_is_declared_too_small_is_measured():
    random = np.random.default_rng(0)
    added = 1e-4 * random.normal(size=300)
    found = recover(Odd(ROW, 10, shaped=lambda row: row + added * (row > -3)), "x")
    assert found.max_error_nats > 2e-5
