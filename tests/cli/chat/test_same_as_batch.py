"""Each answer of a chat is the one that `gen batch` gives for the same messages and seed."""

import json
import os
import subprocess
import sys

import pytest


def gen(*arguments, text="", folder=None):
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "logitsmith.cli", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, env=environment)


@pytest.mark.slow
def test_turns_of_processes_with_a_prompt_cache(tmp_path):
    options = ("chat", "--seed", 3, "-n", 40, "--prompt-cache", tmp_path / "cache")
    gen(*options, text="Name three rivers of Europe.\nWhich of them is the longest?\n", folder=tmp_path)
    turns = f"Write a poem about it.\n/export {tmp_path / 'chat.jsonl'}\n/stats\n"
    done = gen(*options, "--resume", text=turns, folder=tmp_path)
    reused = next(line for line in done.stdout.splitlines() if line.startswith("reused"))
    assert int(reused.split()[1]) >= 64
    messages = json.loads((tmp_path / "chat.jsonl").read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    requests = [{"id": str(n), "messages": messages[:n], "seed": 3, "max_tokens": 40} for n in (1, 3, 5)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
    gen("batch", tmp_path / "in.jsonl", "--deterministic", "-o", tmp_path / "out.jsonl", folder=tmp_path)
    answers = {
        int(line["custom_id"]): line["response"]["body"]["choices"][0]["message"]["content"]
        for line in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    }
    assert answers == {n: messages[n]["content"] for n in (1, 3, 5)}
