"""The README: short, and its tour's commands print what it says."""

import json
from pathlib import Path

import pytest

from docs.tools.tour import LOGPROBS, README, measure_logprobs, run, tour

TEXT = README.read_text(encoding="utf-8")
CASES = tour(TEXT)


def test_it_is_short():
    assert len(TEXT.encode()) <= 8192


def test_the_tour_was_found():
    assert len(CASES) >= 6
    assert all("gen " in command for command in CASES)


def test_its_picture_is_there_and_names_no_other_host():
    picture = Path(README.parent, "docs", "images", "terminal.svg").read_text(encoding="utf-8")
    assert "docs/images/terminal.svg" in TEXT
    assert "@font-face" not in picture
    assert "url(http" not in picture


@pytest.fixture(scope="module")
def is_the_readmes_machine(tmp_path_factory):
    """True if this processor computes the logits that the README was made with, to the last bit."""
    return measure_logprobs(tmp_path_factory.mktemp("tour")) == json.loads(LOGPROBS.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("command", "output"), CASES.items(), ids=range(len(CASES)))
def test_tour(command, output, tmp_path, is_the_readmes_machine):
    printed = run(command, tmp_path)
    if is_the_readmes_machine:
        assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in output.splitlines()]
    else:
        assert bool(printed.strip()) == bool(output.strip())
