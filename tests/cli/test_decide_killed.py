"""A table that is killed at any moment, and gone on with, gives what an undisturbed run gives."""

import csv
import random
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("with_pruned_model")]

ROWS, KILLS = 80, 5
COMMAND = (sys.executable, "-m", "logitsmith.cli", "decide", "-t", "1", "-c", "512", "-np", "1")
ASKED = ("--predicate", "The sea was calm.", "--table")


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_killed_five_times_it_gives_exactly_what_an_undisturbed_run_gives(home, environment, name):
    work, draw = home / "work", random.Random(7)
    with (work / "in.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["n", "text"])
        for number in range(ROWS):
            text = draw.choice(["The sea,\n", 'a "ship" ', "At noon ", "It was said that "]) * draw.randrange(1, 9)
            writer.writerow([number] if number % 23 == 5 else [number, text])
    command = [*COMMAND, *ASKED, "in.csv", "--format", name]
    options = {"cwd": work, "env": environment, "capture_output": True}
    began = time.monotonic()
    quiet = subprocess.run([*command, "-o", f"whole.{name}"], check=False, **options)
    seconds = time.monotonic() - began
    assert quiet.returncode == 1, quiet.stderr  # some rows are wrong
    killed = 0
    while killed < KILLS:
        process = subprocess.Popen(
            [*command, "-o", f"out.{name}", "--resume"], cwd=work, env=environment, stderr=subprocess.PIPE
        )
        try:
            process.wait(draw.uniform(0.5, 2 + seconds / 6))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            break
        killed += 1
    last = subprocess.run([*command, "-o", f"out.{name}", "--resume"], check=False, **options)
    assert last.returncode == 1, last.stderr
    assert killed
    assert (work / f"out.{name}").read_bytes() == (work / f"whole.{name}").read_bytes()
