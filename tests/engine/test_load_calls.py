"""What a load does beside llama.cpp: nothing with the process's memory, and it calls Python only if asked to."""

import json
import subprocess
import sys

import pytest

RECORDER = """
import json, sys

events = []

def record(event, arguments):
    if event == "open" and str(arguments[0]) in ("/proc/self/maps", "/proc/self/smaps"):
        events.append(str(arguments[0]))
    elif event == "ctypes.dlsym" and "advise" in str(arguments[-1]):
        events.append(str(arguments[-1]))

sys.addaudithook(record)

import logitsmith.engine.native.model as native
callbacks = []
load = native.lib.llama_model_load_from_file

def load_and_look(path, params):
    callbacks.append(bool(params.progress_callback))
    return load(path, params)

native.lib.llama_model_load_from_file = load_and_look
"""

REPORT = """
print(json.dumps([events, callbacks]), file=sys.stderr)
"""

IN_PYTHON = """
from logitsmith.engine import Model
for mmap in (True, False):
    for progress in (None, lambda fraction: True):
        Model.load("m.gguf", mmap=mmap, progress=progress).close()
"""

BY_COMMANDS = """
from logitsmith.cli import main
from logitsmith.cli.commands import serve
serve._wait = lambda *_: None
for command in (
    ["run", "a", "-n", "17"],
    ["run", "a", "-n", "17", "-v"],
    ["batch", "requests.jsonl"],
    ["serve", "--port", "0"],
):
    try:
        main([*command, "-m", "m.gguf", "-t", "1"])
    except SystemExit as end:
        assert not end.code, end.code
"""

LOADS = {
    "in Python, without and with progress": (IN_PYTHON, [False, True] * 2),
    "by commands, without a terminal": (BY_COMMANDS, [False] * 4),
}


@pytest.mark.parametrize(("program", "callbacks"), LOADS.values(), ids=LOADS)
def test_a_load_only_loads(small_model, program, callbacks):
    folder = small_model.parent
    (folder / "requests.jsonl").write_text('{"prompt": "a", "max_tokens": 1}\n')
    program = RECORDER + program.replace("m.gguf", small_model.name) + REPORT
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    assert json.loads(done.stderr.splitlines()[-1]) == [[], callbacks]
