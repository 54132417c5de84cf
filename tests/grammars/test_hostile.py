"""A grammar file from anywhere ends in a mask or a sentence, in bounded memory: never a crash, never a hang."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from .hostile import HOSTILE

TOP = Path(__file__).parents[2]

QUICK = {
    "groups 10,000 deep",
    "a count of 100,000 in counts",
    "rules that double 40 times beside recursion",
    "600 classes of 10,000 ranges",
}
"""Those that are tried each time."""


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def outcome(name):
    """Ask for a mask in a process of its own. Returns seconds, MB and what was said."""
    command = [sys.executable, "-m", "tests.grammars.hostile", name]
    done = subprocess.run(
        command, cwd=TOP, capture_output=True, text=True, check=False, timeout=600, preexec_fn=limited
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seconds, megabytes, said = done.stdout.rstrip("\n").split("\t")
    return float(seconds), int(megabytes), said


def check(name):
    seconds, megabytes, said = outcome(name)
    assert megabytes < 700
    assert "panic" not in said
    return f"{seconds:7.2f} s {megabytes:5} MB  {name}: {said}"


@pytest.mark.parametrize("name", [name for name in HOSTILE if name in QUICK])
def test_hostile(name):
    check(name)


def test_the_quick_ones_exist():
    assert HOSTILE.keys() >= QUICK


@pytest.mark.slow
def test_every_hostile_grammar():
    """Print seconds and memory of each."""
    lines = [check(name) for name in HOSTILE]
    print("\n" + "\n".join(lines))
