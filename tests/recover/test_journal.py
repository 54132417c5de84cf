"""Checkpoints: no query is sent twice, the responses of another run are rejected, and an incomplete line is
removed."""

import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logitsmith.recover import EndpointResponse, RecoverError, RecoverySettings, recover
from logitsmith.recover.journal import QueryJournal, query_key
from logitsmith.recover.session import QuerySession

from .fakes import Fake, row_of
from .odd import Odd

ROW = row_of()


def settings(path, **rest):
    return RecoverySettings(checkpoint=path, **rest)


def test_a_stopped_run_is_resumed_without_repeating_calls(tmp_path):
    path = tmp_path / "c"
    first = Fake(ROW, 5)
    part = recover(first, "x", settings=settings(path, max_calls=30))
    assert (part.stop_reason, part.is_complete, first.calls) == ("max_calls", False, 30)
    assert 0 < np.isfinite(part.logprobs).sum() < 300
    second = Fake(ROW, 5)
    whole = recover(second, "x", settings=settings(path, resume=True))
    assert whole.is_complete
    assert np.abs(whole.logprobs - ROW).max() < 1e-12
    assert (whole.new_calls, whole.total_calls) == (second.calls, second.calls + 30)
    assert [bias for bias in second.asked if not bias] == [{}]  # is it still the same model?
    asked = [str(sorted(bias.items())) for bias in first.asked + second.asked if bias]
    assert len(asked) == len(set(asked))
    fresh = Fake(ROW, 5)
    assert recover(fresh, "x").total_calls == whole.total_calls - 1
    assert recover(Fake(ROW, 5), "x", settings=settings(path, resume=True)).new_calls == 0


@pytest.mark.parametrize(("window", "noise"), [(1, 0.0), (0, 0.0), (5, 1e-3)])
def test_every_method_repeats_its_queries(tmp_path, window, noise):
    path = tmp_path / "c"
    endpoint = Fake(row_of(24), window, noise=noise, relative_error=1e-6)
    stopped = 0
    found = recover(endpoint, "x", settings=settings(path, max_calls=23))
    while found.stop_reason:
        stopped += 1
        assert stopped < 100
        found = recover(endpoint, "x", settings=settings(path, max_calls=23, resume=True))
    assert found.is_complete
    assert stopped
    assert found.total_calls == endpoint.calls - (stopped - 1)  # each start asks one question again


def test_an_incomplete_last_line_is_removed(tmp_path):
    path = tmp_path / "c"
    recover(Fake(ROW, 5), "x", settings=settings(path, max_calls=30))
    whole = path.read_bytes()
    for cut in (1, 7, len(whole.splitlines()[-1])):
        path.write_bytes(whole[:-cut])
        found = recover(Fake(ROW, 5), "x", settings=settings(path, resume=True, max_calls=2))
        assert (found.total_calls, found.new_calls) == (31, 2)
        assert path.read_bytes() == whole


VERSION_1 = {
    "next-token": (lambda: Fake(row_of(10), 4), "auto", 1e-3, 5),
    "top-token": (lambda: Odd(row_of(10), 2, drawn=True, chooser=True), "bisection", 2e-3, 149),
}
"""Complete checkpoints that an earlier version wrote, with drift checks and both kinds of queries."""


@pytest.mark.parametrize("name", VERSION_1)
def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path, name):
    build, method, eps, queries = VERSION_1[name]
    path = tmp_path / "c"
    shutil.copyfile(Path(__file__).parent / "data" / f"{name}.checkpoint", path)
    before = path.read_bytes()
    found = recover(build(), "x", method, settings=settings(path, bisection_error_nats=eps, resume=True))
    assert (found.is_complete, found.new_calls, found.total_calls) == (True, 0, queries)
    assert np.abs(found.logprobs - row_of(10)).max() < eps
    assert path.read_bytes() == before


def test_a_checkpoint_of_another_run_is_rejected(tmp_path):
    path = tmp_path / "c"
    recover(Fake(ROW, 5), "x", settings=settings(path, max_calls=5))
    kept = path.read_bytes()
    with pytest.raises(RecoverError, match="the checkpoint already exists; continue it with resume=True"):
        recover(Fake(ROW, 5), "x", settings=settings(path))
    other = Fake(ROW, 5)
    other.identity = {"api": "other"}
    for endpoint, prompt, what in (
        (other, "x", 'endpoint is {"api": "fake"}, not {"api": "other"}'),
        (Fake(ROW, 5), "y", 'prompt is "x", not "y"'),
    ):
        with pytest.raises(RecoverError, match="another run") as failure:
            recover(endpoint, prompt, settings=settings(path, resume=True))
        assert what in str(failure.value)
        assert other.calls == 0
    assert path.read_bytes() == kept


@pytest.mark.slow
def test_another_method_continues_with_the_same_responses(tmp_path):
    """Responses belong to the endpoint, not to a method, so a method that is rejected costs nothing."""
    path = tmp_path / "c"
    with pytest.raises(RecoverError, match="forced does not work"):
        recover(Fake(ROW, 5), "x", "forced", settings=settings(path))
    found = recover(Fake(ROW, 5), "x", "single", settings=settings(path, resume=True))
    assert (found.method, found.is_complete) == ("single", True)
    assert np.abs(found.logprobs - ROW).max() < 1e-12


OTHER_FILES = {
    "text": b"hello\n",
    "text without a newline": b"all that I have written",
    "text, the last line without one": b"hello\nworld",
    "numbers": b"PK\x03\x04\n\x00\xff",
    "JSON": b"[1]\n",
    "deep JSON": b"[" * 100_000,
    "of another version": b'{"recover": 99}\n',
    "a whole head without its newline, of another run": b'{"recover": 2}',
}


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("name", OTHER_FILES)
def test_other_files_are_refused_and_left_alone(tmp_path, name, resume):
    path = tmp_path / "c"
    path.write_bytes(OTHER_FILES[name])
    with pytest.raises(RecoverError, match="not a checkpoint of gen recover"):
        recover(Fake(ROW, 5), "x", settings=settings(path, resume=resume))
    assert path.read_bytes() == OTHER_FILES[name]


ANOTHER_MODEL = {
    "another row": {"seed": 1},
    "almost the same row": {"spread": 3.001},
    "another token": {"seed": 1, "window": 0},
    "another row, noisy": {"seed": 1, "noise": 1e-3, "relative_error": 1e-6},
}


@pytest.mark.parametrize("name", ANOTHER_MODEL)
def test_responses_of_two_models_are_not_mixed(tmp_path, name):
    path = tmp_path / "c"
    habits = {"window": 5, **ANOTHER_MODEL[name]}
    other = row_of(**{what: habits.pop(what) for what in ("seed", "spread") if what in habits})
    window = habits.pop("window")
    recover(Fake(ROW, window, **habits), "x", settings=settings(path, max_calls=30))
    kept = path.read_bytes()
    endpoint = Fake(other, window, **habits)
    with pytest.raises(RecoverError, match="from those in the checkpoint"):
        recover(endpoint, "x", settings=settings(path, resume=True))
    assert endpoint.asked == [{}, {}, {}]
    assert path.read_bytes() == kept


def test_a_response_is_on_disk_before_it_is_used(tmp_path, monkeypatch):
    forced = []

    def force(number):
        status = os.fstat(number)
        if stat.S_ISREG(status.st_mode):
            forced.append(status.st_size)

    monkeypatch.setattr(os, "fsync", force)
    path = tmp_path / "c"
    endpoint = Fake(ROW, 5)
    seen = []
    recover(endpoint, "x", settings=settings(path, max_calls=9, progress=lambda *_: seen.append(len(forced))))
    lines = path.read_bytes().splitlines(keepends=True)
    assert forced == [sum(map(len, lines[: count + 1])) for count in range(10)]
    assert seen
    assert min(seen) > 4


FAULTS = {
    "immediately": (0, False),
    "behind some answers": (7, True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_checkpoint_without_a_response_is_removed(tmp_path, name):
    path = tmp_path / "c"
    count, kept = FAULTS[name]
    endpoint = Fake(ROW, 5)
    ask = endpoint.query

    def failing(prompt, bias):
        if endpoint.calls == count:
            raise RecoverError("gone")
        return ask(prompt, bias)

    endpoint.query = failing
    with pytest.raises(RecoverError, match="gone") as failure:
        recover(endpoint, "x", settings=settings(path))
    assert ("the responses are saved" in str(failure.value), path.exists()) == (kept, kept)


@pytest.mark.parametrize("late", range(4))
def test_all_calls_report_the_first_failure(late):
    """Calls that start after a failure raise the same error, even if their results are read first."""
    endpoint = Fake(ROW, 5)
    ask = endpoint.query
    begun = []

    def failing(prompt, bias):
        begun.append(bias)
        number = len(begun)
        if number == 4 + late:
            raise RecoverError("gone")
        time.sleep(0.02)
        return ask(prompt, bias)

    endpoint.query = failing
    with pytest.raises(RecoverError, match="gone"):
        recover(endpoint, "x", settings=RecoverySettings(max_concurrent_calls=4))


def test_a_call_that_starts_after_a_failure_reports_it():
    asker = QuerySession(Fake(ROW, 5), "x", RecoverySettings())
    asker.endpoint.query = lambda *_: 10**9
    for _ in range(2):
        with pytest.raises(RecoverError, match="returned token 1000000000"):
            next(asker.send_queries([{}]))


class Costly(Fake):
    """Each response takes ``cost`` requests, and each request except the first is claimed."""

    requests, cost = 0, 1

    def answer(self, prompt, logit_bias, kind, claim_call):
        self.requests += 1
        for _ in range(self.cost - 1):
            claim_call()
            self.requests += 1
        return replace(super().answer(prompt, logit_bias, kind, claim_call), calls=self.cost)


@pytest.mark.parametrize("in_flight", [1, 4, 8])
@pytest.mark.parametrize("max_calls", [1, 2, 3, 20])
@pytest.mark.parametrize("cost", [1, 3])
def test_max_calls_holds(tmp_path, max_calls, in_flight, cost):
    endpoint = Costly(ROW, 5)
    endpoint.cost = cost
    found = recover(
        endpoint, "x", settings=settings(tmp_path / "c", max_calls=max_calls, max_concurrent_calls=in_flight)
    )
    assert (found.stop_reason, found.new_calls, endpoint.requests) == ("max_calls", max_calls, max_calls)


def test_a_missing_folder(tmp_path):
    with pytest.raises(RecoverError, match="cannot be written: No such file"):
        recover(Fake(ROW, 5), "x", settings=settings(tmp_path / "no" / "c"))


def test_a_response_is_read_as_it_was_written(tmp_path):
    about = {"endpoint": {}, "prompt": "x"}
    saved = {
        query_key({3: 1.0}): EndpointResponse(
            3, -0.1, {3: -0.1, 4: -1 / 3}, {3: b"\xff\x00", 4: b""}, 2, (-0.5, -1 / 7)
        ),
        query_key({3: 1}, repetition=1): EndpointResponse(None, None, {1: -2.0}, {}, 1),
    }
    journal = QueryJournal(tmp_path / "c", about, False)
    for key, response in saved.items():
        journal.add(key, response)
    journal.close()
    again = QueryJournal(tmp_path / "c", about, True)
    assert {key: again.get(key) for key in saved} == saved
    assert again.get(query_key({3: 2.0})) is None
    assert query_key({1: 1.0, 2: 2.0}) == query_key({2: 2.0, 1: 1.0})
    again.close()


def test_several_calls_in_flight_give_the_same(tmp_path):
    for count in (1, 8):
        endpoint = Fake(ROW, 20)
        found = recover(endpoint, "x", settings=settings(tmp_path / str(count), max_concurrent_calls=count))
        assert np.abs(found.logprobs - ROW).max() < 1e-12
        assert endpoint.calls == found.total_calls == recover(Fake(ROW, 20), "x").total_calls


def test_an_interrupted_run_says_so_and_keeps_what_it_has(tmp_path):
    endpoint = Fake(ROW, 5)
    found = recover(
        endpoint,
        "x",
        settings=settings(tmp_path / "c", is_interrupted=lambda: endpoint.calls >= 20, max_concurrent_calls=2),
    )
    assert found.stop_reason == "interrupted"
    assert found.total_calls == endpoint.calls == (tmp_path / "c").read_bytes().count(b"\n") - 1
    assert np.isfinite(found.logprobs).any()
