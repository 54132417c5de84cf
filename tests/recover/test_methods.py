"""Each method, compared with the row that the endpoint hides."""

import numpy as np
import pytest
from logitsmith.recover import Basis, RecoverError, RecoverySettings, estimate_calls, recover

from .fakes import Fake, log_softmax, row_of
from .odd import Odd

ROW = row_of()


def worst(found, row=ROW):
    return np.nanmax(np.abs(found.logprobs - row))


CASES = {
    "parallel": (Fake(ROW, 20), "parallel", {}),
    "parallel, window of 2": (Fake(ROW, 2), "parallel", {}),
    "parallel, window of all": (Fake(ROW, 300), "parallel", {}),
    "single": (Fake(ROW, 20), "single", {}),
    "single, window of 1": (Fake(ROW, 1), "single", {}),
    "auto, window of 1": (Fake(ROW, 1), "auto", {}),
    "forced": (Fake(ROW, 5, raw=True), "forced", {}),
    "auto, biases do not move logprobs": (Fake(ROW, 5, raw=True), "auto", {}),
    "auto, the only logprob is raw": (Fake(ROW, 1, raw=True), "auto", {}),
    "top_n of all": (Fake(ROW, 7), "top_n", {"top_count": 300}),
    "declared limit": (Fake(ROW, 10, max_bias_nats=12.0), "auto", {}),
    "top_n where small values are not told": (
        Fake(ROW, 7, min_reliable_logprob=-20.0),
        "top_n",
        {"top_count": 300},
    ),
    "silent cut": (Fake(ROW, 10, cut=12.0), "auto", {}),
    "silent cut, window of 1": (Fake(ROW, 1, cut=20.0), "auto", {}),
    "a cut so low that tokens must be pushed down": (Fake(ROW, 10, cut=8.0), "auto", {}),
    "the same, declared": (Fake(ROW, 10, max_bias_nats=8.0), "auto", {}),
    "small values are not told": (Fake(ROW, 10, min_reliable_logprob=-7.0), "auto", {}),
    "a sure token": (Fake(row_of(top=30.0), 10), "auto", {}),
    "a sure token, window of 1": (Fake(row_of(top=30.0), 1), "auto", {}),
    "flat": (Fake(log_softmax(np.linspace(0, 1e-3, 300)), 10), "auto", {}),
    "very unlikely tokens": (Fake(row_of(spread=60.0), 10), "auto", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_whole_vocabulary(name):
    endpoint, method, asked = CASES[name]
    found = recover(endpoint, "x", method, **asked)
    assert found.is_complete, found.notes
    assert not np.isnan(found.logprobs).any()
    assert worst(found, endpoint.row) < 1e-8
    assert found.total_calls == found.new_calls


def test_tokens_by_id_and_no_others():
    found = recover(Fake(ROW, 5), "x", tokens=[7, 3, 3, 299])
    assert found.ids.tolist() == [3, 7, 299]
    assert worst(found) < 1e-12


@pytest.mark.parametrize("window", [1, 2, 5, 20])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_top_n_is_exact_in_ids_and_values(window, n):
    found = recover(Fake(ROW, window), "x", top_count=n)
    assert found.method == "top_n"
    assert sorted(found.ids) == sorted(np.argsort(-ROW)[:n])
    assert worst(found) < 1e-10


def test_top_n_with_a_sharp_distribution_keeps_its_digits():
    row = row_of(top=20.0)
    for window in (1, 5):
        found = recover(Fake(row, window, relative_error=1e-12), "x", top_count=20)
        assert worst(found, row) < 1e-9


def test_top_n_refuses_what_would_be_wrong():
    with pytest.raises(RecoverError, match="accepts 10 biases per call"):
        recover(Fake(ROW, 3, max_biases_per_call=10), "x", top_count=30)
    with pytest.raises(RecoverError, match="may limit biases"):
        recover(Fake(ROW, 3, cut=1.5), "x", top_count=250)


def test_a_token_that_cannot_surface_is_missing_and_never_wrong():
    row = ROW.copy()
    row[[5, 17]] = -np.inf
    for window, raw in ((10, False), (1, False), (10, True), (0, False)):
        found = recover(Fake(row, window, raw=raw), "x")
        assert np.isnan(found.logprobs[[5, 17]]).all()
        assert not found.is_complete
        assert any(
            note == "missing: 2 tokens; not shown with any bias that the endpoint accepts" for note in found.notes
        )
        others = np.delete(np.arange(300), [5, 17])
        reference = row if found.is_normalized else row - row.max()
        assert np.abs(found.logprobs[others] - reference[others]).max() < 1e-3


def test_rounded_logprobs_stay_as_good_as_they_are():
    for window in (1, 10):
        found = recover(Fake(ROW, window, digits=5, relative_error=1e-5), "x")
        assert worst(found) < 30 * 1e-5
        assert worst(found) < 3 * found.max_error_nats


def test_noise_is_measured_averaged_and_reported():
    endpoint = Fake(ROW, 20, noise=1e-3, relative_error=1e-6)
    found = recover(endpoint, "x", settings=RecoverySettings(calls_per_query=16))
    assert any("responses differ by up to" in note for note in found.notes)
    off = np.abs(found.logprobs - ROW)
    assert off.max() < 5e-3
    assert 0.5 < np.median(found.errors) / (1e-3 / 4) < 4
    assert (off < 4 * found.errors).mean() > 0.95
    assert recover(endpoint, "x", tokens=[4]).total_calls > 4 * 2  # four times each without being told


SMALL = Basis.of_matrix(np.random.default_rng(0).normal(0, 0.5, (50, 8)).astype(np.float32), "m")
REFUSED = {
    "unknown method": ({"method": "magic"}, "'magic' is not one of auto, single"),
    "empty prompt": ({"prompt": ""}, "the prompt is empty"),
    "both": ({"top_count": 3, "tokens": [1]}, "cannot be combined"),
    "n of none": ({"top_count": 0}, "top_count: 0 is not within 1..300"),
    "n too large": ({"top_count": 301}, "top_count: 301 is not within 1..300"),
    "no n": ({"method": "top_n"}, "top_n needs top_count"),
    "no tokens": ({"tokens": []}, "the list is empty"),
    "id outside": ({"tokens": [300]}, "token id 300 is not within 0..299"),
    "no basis": ({"method": "basis"}, "needs a basis"),
    "another basis": ({"basis": SMALL}, "50 tokens, but the endpoint has 300; use a basis of the same model"),
    "another basis, top": ({"method": "basis", "top_count": 10, "basis": SMALL}, "use a basis of the same model"),
    "no such eps": ({"bisection_error_nats": 0}, "bisection_error_nats: 0 is not a number > 0"),
    "no calls": ({"max_calls": 0}, "max_calls: 0 is not ≥ 1"),
    "no repeats": ({"calls_per_query": 0}, "calls_per_query: 0 is not ≥ 1"),
    "nothing to continue": ({"resume": True}, "there is no checkpoint"),
}


@pytest.mark.parametrize("run", [recover, estimate_calls])
@pytest.mark.parametrize("name", REFUSED)
def test_a_run_and_its_plan_are_refused(name, run):
    asked, message = REFUSED[name]
    arguments = {name: asked[name] for name in ("method", "top_count", "tokens") if name in asked}
    settings = RecoverySettings(**{name: asked[name] for name in asked.keys() - {"prompt", *arguments}})
    with pytest.raises(RecoverError, match=message):
        run(Fake(ROW, 5), asked.get("prompt", "x"), **arguments, settings=settings)


WRONG = {
    "parallel where biases are ignored": (
        Fake(ROW, 5, deaf=True),
        "parallel",
        "changes neither the logprobs nor the chosen token",
    ),
    "single where the logprobs are raw": (Fake(ROW, 5, raw=True), "single", "forced or auto may"),
    "forced where they are not": (Fake(ROW, 5), "forced", "parallel or auto may"),
    "parallel with a window of 1": (Fake(ROW, 1), "parallel", "single or auto may"),
    "top_n without logprobs": (Fake(ROW, 0), "top_n", "bisection or auto may"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_method_that_would_give_wrong_numbers_is_refused(name):
    endpoint, method, message = WRONG[name]
    with pytest.raises(RecoverError, match=message):
        recover(endpoint, "x", method, top_count=3 if method == "top_n" else None)


def test_a_batch_has_no_more_biases_than_the_endpoint_takes():
    found = recover(Fake(ROW, 20, max_biases_per_call=12), "x", "parallel")  # the fake refuses more
    assert found.is_complete
    assert np.abs(found.logprobs - ROW).max() < 1e-9


def test_a_first_bias_is_a_number_if_first_tokens_are_contradicted():
    row = row_of(80)
    likely = set(np.argsort(-row)[1:60].tolist())
    endpoint = Odd(row, 1, heard=lambda bias: {t: v + 20 * (t in likely) for t, v in bias.items()})
    found = recover(endpoint, "x", "single")
    assert all(np.isfinite(value) for bias in endpoint.asked for value in bias.values())
    assert np.nanmax(np.abs(found.logprobs - row)) < 1e-9


@pytest.mark.parametrize("method", ["auto", "single", "parallel", "top_n", "forced", "bisection"])
def test_a_method_notes_that_the_first_response_shows_everything(method):
    used = "top_n" if method == "auto" else method
    note = f"the response without a bias already shows everything requested; {used} was not needed"
    found = recover(Fake(ROW, 8), "x", method, 3)
    assert (found.method, found.is_complete, note in found.notes) == (used, True, True)
    if used == "top_n":
        assert note not in recover(Fake(ROW, 8), "x", method, 9).notes
