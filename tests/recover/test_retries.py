"""Retries as the user sees them: a line in a log, a countdown on a terminal."""

import os
import pty
import subprocess
import sys
import time

import pytest
from logitsmith.cli.render import progress as shown
from logitsmith.cli.render.progress import RetryDisplay
from logitsmith.recover import RecoverySettings, Retry, recover

from ..cli.conftest import environment, home  # noqa: F401 - fixtures
from .conftest import api
from .fakes import Fake, row_of
from .test_command import asked, served


@pytest.fixture
def display(monkeypatch):
    """A display, with a clock that can be set, and its notes."""
    clock, notes = [100.0], []
    monkeypatch.setattr(shown.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(shown, "print_note", notes.append)
    return RetryDisplay(), clock, notes


def test_a_problem_is_named_once_as_long_as_it_lasts(display):
    retries, _, notes = display
    for problem in ("busy", "busy", "gone", "busy"):
        retries.show(Retry(problem, 0.3, 2, 9))
    assert notes == [f"{problem}; trying again in 1 s, try 2 of 9" for problem in ("busy", "gone", "busy")]


def test_the_seconds_until_the_next_try(display):
    retries, clock, _ = display
    assert retries.countdown() == ""
    retries.show(Retry("busy", 12.0, 3, 9))
    retries.show(Retry("busy", 600.0, 2, 9))
    seen = []
    for clock[0] in (100.0, 101.5, 111.9, 112.0, 699.5, 700.0):
        seen.append(retries.countdown())
    assert seen == [
        "Again in 12 s, try 3 of 9",
        "Again in 11 s, try 3 of 9",
        "Again in 1 s, try 3 of 9",
        "Again in 588 s, try 2 of 9",
        "Again in 1 s, try 2 of 9",
        "",
    ]


def busy_at_first(seconds):
    """A server that rejects its first request and asks to wait."""
    answer, _ = served()
    refused = []

    def answer_later(path, body, headers):
        if not refused and not path.endswith(("/models", "/tokenize")):
            refused.append(path)
            return 503, {}, {"Retry-After": str(seconds)}
        return answer(path, body, headers)

    return answer_later


def command(url):
    return [sys.executable, "-m", "logitsmith.cli", *asked(url, "--top", "3", "--vocab-size", "400")]


def test_a_line_where_there_is_no_terminal(environment):  # noqa: F811 - the fixture
    with api(busy_at_first(1)) as url:
        done = subprocess.run(command(url), env=environment, capture_output=True, text=True, check=True, input="")
    (line,) = [line for line in done.stderr.splitlines() if "503" in line]
    assert line.startswith("gen: note: http://")
    assert line.endswith("; trying again in 1 s, try 2 of 9")
    assert "Again in" not in done.stderr
    assert "\x1b" not in done.stderr


def test_a_countdown_on_a_terminal(environment):  # noqa: F811 - the fixture
    leader, follower = pty.openpty()
    with api(busy_at_first(3)) as url:
        process = subprocess.Popen(
            command(url),
            env={**environment, "COLUMNS": "80", "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=follower,
        )
        os.close(follower)
        said = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            said += part
        assert process.wait() == 0
    os.close(leader)
    places = [said.find(f"Again in {seconds} s, try 2 of 9".encode()) for seconds in (3, 2, 1)]
    assert -1 not in places
    assert places == sorted(places)
    assert b"Recovering" in said
    assert b"Again" not in said.splitlines()[-1]


METHODS = ("auto", "single", "parallel", "top_n", "forced", "bisection")


@pytest.mark.parametrize("method", METHODS)
def test_a_method_notes_that_the_first_response_shows_everything(method):
    fake = Fake(row_of(60), 8)
    recovery = recover(fake, "x", method, 3)
    used = "top_n" if method == "auto" else method
    assert recovery.method == used
    assert recovery.is_complete
    assert (
        f"the response without a bias already shows everything requested; {used} was not needed" in recovery.notes
    )
    more = recover(fake, "x", method, 9, settings=RecoverySettings()) if method in ("auto", "top_n") else None
    assert more is None or not any("without a bias already" in note for note in more.notes)


def test_a_refused_connection_names_the_flag_that_waits(environment):  # noqa: F811 - the fixture
    began = time.monotonic()
    url = "http://127.0.0.1:9"
    done = subprocess.run(command(url), env=environment, capture_output=True, text=True, check=False, input="")
    assert done.returncode == 1
    assert done.stderr == (
        f"gen: {url}/: no connection: Connection refused; use --wait if the server is still starting\n"
    )
    assert time.monotonic() - began < 60  # eight retries alone would take 70 s and more
