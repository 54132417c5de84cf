"""The README: short, and its tour's commands print what it says."""

from pathlib import Path

import pytest

from docs.tools.tour import README, run, tour

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


@pytest.mark.slow
@pytest.mark.parametrize(("command", "output"), CASES.items(), ids=range(len(CASES)))
def test_tour(command, output, tmp_path):
    # Another processor computes other logits, so this is a proof for the machine that the README was made on.
    printed = run(command, tmp_path)
    assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in output.splitlines()]
