"""A batch that is killed at any moment, and gone on with, gives what an undisturbed one gives."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

REQUESTS, KILLS = 200, 20
COMMAND = (
    sys.executable,
    "-m",
    "logitsmith.cli",
    "batch",
    "in.jsonl",
    "--parallel",
    "8",
    "-c",
    "512",
    "--logprobs",
    "1",
)
LONG = "The keeper of the lighthouse wrote down every ship that passed, and the weather, and the hour. " * 6


def request(number, draw):
    """Half of them share a beginning, some grow beyond 256 tokens, some are wrong."""
    prompt = (LONG if number % 2 else "") + draw.choice(["The sea", "A ship", "At noon", "It was said that"])
    if number % 23 == 5:
        return {"id": f"r{number}", "prompt": prompt, "nonsense": 1}
    if number % 5 == 0:
        return {"id": f"r{number}", "messages": [{"role": "user", "content": prompt}], "max_tokens": 12}
    if number % 7 == 0:
        return {"id": f"r{number}", "prompt": prompt, "grammar": 'root ::= [a-z ]{5,30} "."'}
    return {
        "id": f"r{number}",
        "prompt": prompt,
        "max_tokens": draw.choice([3, 10, 25]),
        "set": {"temperature": 1.2},
    }


def results(path):
    """What was answered, without the moment at which that was."""
    found = {}
    for line in path.read_bytes().splitlines():
        record = json.loads(line)
        name = record["custom_id"]
        assert name not in found, f"{name} was answered twice"
        if record["response"]:
            del record["response"]["body"]["created"]
        found[name] = record
    return found


def test_killed_twenty_times_it_gives_exactly_what_an_undisturbed_run_gives(home, environment):
    work, draw = home / "work", random.Random(7)
    lines = [json.dumps(request(number, draw)) for number in range(REQUESTS)]
    (work / "in.jsonl").write_text("\n".join(lines) + "\n")
    options = {"cwd": work, "env": environment, "capture_output": True}
    began = time.monotonic()
    quiet = subprocess.run([*COMMAND, "-o", "whole.jsonl"], check=False, **options)
    seconds = time.monotonic() - began
    assert quiet.returncode == 1  # some lines are wrong
    whole = results(work / "whole.jsonl")
    assert len(whole) == REQUESTS
    killed = torn = 0
    while killed < KILLS:
        process = subprocess.Popen(
            [*COMMAND, "-o", "out.jsonl", "--resume"], cwd=work, env=environment, stderr=subprocess.PIPE
        )
        try:
            process.wait(draw.uniform(0.5, 2.5 + seconds / 12))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            break
        killed += 1
        if killed % 3 == 0 and (work / "out.jsonl").exists():  # as a crash of the machine may leave it
            size = (work / "out.jsonl").stat().st_size
            os.truncate(work / "out.jsonl", max(0, size - draw.randrange(1, 200)))
            torn += 1
    last = subprocess.run([*COMMAND, "-o", "out.jsonl", "--resume"], check=False, **options)
    assert last.returncode == 1, last.stderr
    assert killed == KILLS
    assert results(work / "out.jsonl") == whole
    print(f"\n{REQUESTS} requests, killed {killed} times, its end torn off {torn} times: the same results")
