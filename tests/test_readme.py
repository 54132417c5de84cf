"""The README: its tour's commands print what it says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from logitsmith.common.extras import EXTRAS

from docs.tools.tour import LOGPROBS, README, measure_logprobs, run, tour

TEXT = README.read_text(encoding="utf-8")
CASES = tour(TEXT)


def test_the_tour_was_found():
    assert len(CASES) >= 6
    assert all("gen " in command for command in CASES)


def test_its_picture_is_there_and_names_no_other_host():
    picture = Path(README.parent, "docs", "images", "terminal.svg").read_text(encoding="utf-8")
    assert "docs/images/terminal.svg" in TEXT
    assert "@font-face" not in picture
    assert "url(http" not in picture


SECTION = TEXT.partition("## A tour")[2].partition("## Where to read more")[0]
READ_FILE = re.compile(r"(?<!> )(?<!--html )(?<!-o )\b[\w./-]+\.(?:jsonl?|ya?ml|gbnf|gguf|txt|csv)\b")


def test_the_tour_reads_no_file_that_it_has_not_made():
    made = set()
    for command in re.findall(r"^\$ (.*)|`(gen [^`]*)`", SECTION, re.MULTILINE):
        words = "".join(command)
        made |= set(re.findall(r"(?:> |-o )(\S+)", words))
        unknown = {name for name in READ_FILE.findall(words) if not Path(README.parent, name).exists()}
        assert unknown <= made, words


@pytest.fixture
def only_what_make_demo_installs(tmp_path, monkeypatch):
    """Other extras cannot be imported by processes of the test."""
    makefile = Path(README.parent, "Makefile").read_text(encoding="utf-8")
    extras = re.search(r"\.model: .*(?:\n\t.*)*?install\.py ([\w,]+)", makefile)[1].split(",")
    hidden = [module for extra, modules in EXTRAS.items() if extra not in extras for module in modules]
    assert {"ray", "gguf"} <= set(hidden)
    code = f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_the_server_of_the_tour_starts(only_what_make_demo_installs, pruned_model):
    assert "$ gen serve --open" in SECTION
    words = [sys.executable, "-m", "logitsmith.cli", "serve", "--port", "0", "-t", "1", "-m", pruned_model]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        said = next((line for line in process.stderr if "is served at" in line or "needs" in line), "")
        process.terminate()
    assert "is served at" in said


@pytest.fixture(scope="module")
def is_the_readmes_machine(tmp_path_factory):
    """True if this processor computes the logits that the README was made with, to the last bit."""
    return measure_logprobs(tmp_path_factory.mktemp("tour")) == json.loads(LOGPROBS.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("command", "output"), CASES.items(), ids=range(len(CASES)))
@pytest.mark.usefixtures("only_what_make_demo_installs")
def test_tour(command, output, tmp_path, is_the_readmes_machine):
    printed = run(command, tmp_path)
    if is_the_readmes_machine:
        assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in output.splitlines()]
    else:
        assert bool(printed.strip()) == bool(output.strip())
