"""Verification: each token is really queried again, within the same limit of calls."""

import numpy as np
import pytest
from logitsmith.recover import RecoverError, RecoverySettings, recover, verify

from .fakes import Fake, row_of

ROW = row_of()
TOP = np.argsort(-ROW)


@pytest.mark.parametrize(("raw", "method"), [(False, "single"), (True, "forced")])
def test_shown_tokens_are_queried_again(raw, method):
    """Recovered logprobs that are wrong are noticed even for shown tokens, because each one is queried with a
    bias."""
    found = recover(Fake(ROW, 5, raw=raw), "x", top_count=5)
    endpoint = Fake(ROW, 5, raw=raw)
    seen = verify(endpoint, "x", found, 5)
    assert (seen.method, seen.compared_token_count, seen.stop_reason) == (method, 5, None)
    assert seen.max_difference_nats < 1e-9
    assert seen.total_calls == endpoint.calls
    alone = {next(iter(bias)) for bias in endpoint.asked if len(bias) == 1}
    assert alone >= set(TOP[:5].tolist())


@pytest.mark.parametrize("place", [0, 4, 200])
def test_a_wrong_logprob_is_found(place):
    found = recover(Fake(ROW, 5), "x")
    found.logprobs[TOP[place]] += 0.5
    seen = verify(Fake(ROW, 5), "x", found, 300)
    assert (seen.compared_token_count, seen.worst_token) == (300, TOP[place])
    assert seen.max_difference_nats == pytest.approx(0.5)


@pytest.mark.parametrize("left", [0, 1, 4, 10])
def test_the_limit_of_calls_is_that_of_both(left):
    endpoint = Fake(ROW, 5)
    found = recover(endpoint, "x")
    seen = verify(endpoint, "x", found, 20, RecoverySettings(max_calls=found.new_calls + left))
    assert (seen.stop_reason, seen.total_calls) == ("max_calls", left)
    assert endpoint.calls == found.new_calls + left
    assert seen.compared_token_count < 10
    assert (seen.worst_token is None) == np.isnan(seen.max_difference_nats) == (not seen.compared_token_count)


def test_an_interrupted_verification():
    endpoint = Fake(ROW, 5)
    found = recover(endpoint, "x")
    before = endpoint.calls
    seen = verify(endpoint, "x", found, 60, RecoverySettings(is_interrupted=lambda: endpoint.calls >= before + 40))
    assert seen.stop_reason == "interrupted"
    assert 0 < seen.compared_token_count < 60


REFUSED = {
    "none": (Fake(ROW, 5), {"tokens": [3]}, 0, "token_count: 0 is not"),
    "relative": (Fake(ROW, 0), {"tokens": [3]}, 5, "relative to the most likely token"),
    "no logprobs": (Fake(ROW, 0), {}, 5, "single does not work on this endpoint"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    endpoint, asked, count, message = REFUSED[name]
    found = recover(endpoint, "x", **asked)
    with pytest.raises(RecoverError, match=message):
        verify(endpoint, "x", found, count)
