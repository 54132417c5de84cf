"""Checkpoints: nothing is asked twice, nothing of another run is believed, and a torn line is mended."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from logitsmith.recover import Answer, RecoverError, Settings, recover
from logitsmith.recover.journal import Journal, key_of

from .fakes import Fake, row_of

ROW = row_of()


def settings(path, **rest):
    return Settings(checkpoint=path, **rest)


def test_a_run_that_was_stopped_goes_on_and_repeats_no_call(tmp_path):
    path = tmp_path / "c"
    first = Fake(ROW, 5)
    part = recover(first, "x", settings=settings(path, max_calls=30))
    assert (part.stopped, part.complete, first.calls) == ("max_calls", False, 30)
    assert 0 < np.isfinite(part.logprobs).sum() < 300
    second = Fake(ROW, 5)
    whole = recover(second, "x", settings=settings(path, resume=True))
    assert whole.complete
    assert np.abs(whole.logprobs - ROW).max() < 1e-12
    assert (whole.sent, whole.queries) == (second.calls, second.calls + 30)
    asked = [str(sorted(bias.items())) for bias in first.asked + second.asked if bias]
    assert len(asked) == len(set(asked))
    fresh = Fake(ROW, 5)
    assert recover(fresh, "x").queries == whole.queries
    assert recover(Fake(ROW, 5), "x", settings=settings(path, resume=True)).sent == 0


@pytest.mark.parametrize(("window", "noise"), [(1, 0.0), (0, 0.0), (5, 1e-3)])
def test_every_method_replays_its_questions(tmp_path, window, noise):
    path = tmp_path / "c"
    endpoint = Fake(row_of(24), window, noise=noise, precision=1e-6)
    stopped = 0
    found = recover(endpoint, "x", settings=settings(path, max_calls=23))
    while found.stopped:
        stopped += 1
        assert stopped < 100
        found = recover(endpoint, "x", settings=settings(path, max_calls=23, resume=True))
    assert found.complete
    assert stopped
    assert found.queries == endpoint.calls


def test_a_torn_last_line_is_cut_off(tmp_path):
    path = tmp_path / "c"
    recover(Fake(ROW, 5), "x", settings=settings(path, max_calls=30))
    whole = path.read_bytes()
    for cut in (1, 7, len(whole.splitlines()[-1])):
        path.write_bytes(whole[:-cut])
        found = recover(Fake(ROW, 5), "x", settings=settings(path, resume=True, max_calls=1))
        assert (found.queries, found.sent) == (30, 1)
        assert path.read_bytes() == whole


def test_what_is_not_of_this_run_is_refused(tmp_path):
    path = tmp_path / "c"
    recover(Fake(ROW, 5), "x", settings=settings(path, max_calls=5))
    kept = path.read_bytes()
    with pytest.raises(RecoverError, match="there is a checkpoint already; go on with --resume"):
        recover(Fake(ROW, 5), "x", settings=settings(path))
    other = Fake(ROW, 5)
    other.identity = {"api": "other"}
    for endpoint, prompt, method, what in (
        (other, "x", "auto", 'its endpoint is {"api": "fake"}, not {"api": "other"}'),
        (Fake(ROW, 5), "y", "auto", 'its prompt is "x", not "y"'),
        (Fake(ROW, 5), "x", "single", 'its method is "auto", not "single"'),
    ):
        with pytest.raises(RecoverError, match="another run") as failure:
            recover(endpoint, prompt, method, settings=settings(path, resume=True))
        assert what in str(failure.value)
        assert other.calls == 0
    assert path.read_bytes() == kept


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"hello\n", "no checkpoint of a recovery"),
        (b"[1]\n", "no checkpoint of a recovery"),
        (b'{"recover": 99}\n', "no checkpoint of a recovery"),
    ],
)
def test_other_files_are_refused(tmp_path, data, message):
    path = tmp_path / "c"
    path.write_bytes(data)
    with pytest.raises(RecoverError, match=message):
        recover(Fake(ROW, 5), "x", settings=settings(path, resume=True))
    assert path.read_bytes() == data


def test_a_line_in_the_middle_that_is_damaged_is_told_of(tmp_path):
    path = tmp_path / "c"
    recover(Fake(ROW, 5), "x", settings=settings(path, max_calls=5))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b'{"key": "x"}\n', *lines[4:]]))
    with pytest.raises(RecoverError, match="line 4 is no answer"):
        recover(Fake(ROW, 5), "x", settings=settings(path, resume=True))


def test_two_runs_do_not_share_a_checkpoint(tmp_path):
    about = {"endpoint": {}, "prompt": "x", "method": "auto"}
    journal = Journal(tmp_path / "c", about, False)
    with pytest.raises(RecoverError, match="another run is writing"):
        Journal(tmp_path / "c", about, True)
    journal.close()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RecoverError, match="cannot be written: No such file"):
        recover(Fake(ROW, 5), "x", settings=settings(tmp_path / "no" / "c"))


def test_an_answer_comes_back_as_it_was(tmp_path):
    about = {"endpoint": {}, "prompt": "x", "method": "auto"}
    answer = Answer(3, -0.1, {3: -0.1, 4: -1 / 3}, {3: b"\xff\x00", 4: b""}, 2)
    with_none = Answer(None, None, {1: -2.0}, {}, 1)
    journal = Journal(tmp_path / "c", about, False)
    journal.add(key_of({3: 1.0}, 0), answer)
    journal.add(key_of({3: 1.0}, 1), with_none)
    journal.close()
    again = Journal(tmp_path / "c", about, True)
    assert (again.get(key_of({3: 1}, 0)), again.get(key_of({3: 1.0}, 1))) == (answer, with_none)
    assert again.get(key_of({3: 2.0}, 0)) is None
    assert key_of({1: 1.0, 2: 2.0}, 0) == key_of({2: 2.0, 1: 1.0}, 0)
    again.close()


SLOW = """
import sys, time
from pathlib import Path
from logitsmith.recover import Settings, recover
from tests.recover.fakes import Fake, row_of
endpoint = Fake(row_of(), 5)
ask = endpoint.query
def slowly(prompt, bias):
    time.sleep(0.01)
    return ask(prompt, bias)
endpoint.query = slowly
recover(endpoint, "x", settings=Settings(checkpoint=Path(sys.argv[1]), in_flight=3))
"""


def test_a_run_that_was_killed_goes_on(tmp_path):
    path = tmp_path / "c"
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(path)], cwd=os.getcwd())  # noqa: PTH109
    while not path.exists() or path.read_bytes().count(b"\n") < 10:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    answered = path.read_bytes().count(b"\n") - 1
    assert 9 <= answered < 70
    endpoint = Fake(ROW, 5)
    found = recover(endpoint, "x", settings=settings(path, resume=True))
    assert found.complete
    assert endpoint.calls == found.queries - answered == recover(Fake(ROW, 5), "x").queries - answered
    assert np.abs(found.logprobs - ROW).max() < 1e-12


def test_several_calls_in_flight_give_the_same(tmp_path):
    for count in (1, 8):
        endpoint = Fake(ROW, 20)
        found = recover(endpoint, "x", settings=settings(tmp_path / str(count), in_flight=count))
        assert np.abs(found.logprobs - ROW).max() < 1e-12
        assert endpoint.calls == found.queries == recover(Fake(ROW, 20), "x").queries


def test_max_calls_holds_with_several_in_flight():
    endpoint = Fake(ROW, 5)
    found = recover(endpoint, "x", settings=Settings(max_calls=20, in_flight=8))
    assert (found.stopped, found.sent, endpoint.calls) == ("max_calls", 20, 20)


def test_an_interrupted_run_says_so_and_keeps_what_it_has(tmp_path):
    endpoint = Fake(ROW, 5)
    found = recover(
        endpoint, "x", settings=settings(tmp_path / "c", interrupted=lambda: endpoint.calls >= 20, in_flight=2)
    )
    assert found.stopped == "interrupted"
    assert found.queries == endpoint.calls == (tmp_path / "c").read_bytes().count(b"\n") - 1
    assert np.isfinite(found.logprobs).any()
