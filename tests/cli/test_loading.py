"""When a model is loaded, and how a signal ends the load; what a command imports."""

import signal
import subprocess
import sys
import time

import pytest

from .test_completion import question
from .test_signals import CODES


@pytest.mark.parametrize("command", ["run", "next"])
@pytest.mark.parametrize("model", ["missing.gguf", __file__], ids=["missing", "no model"])
def test_a_wrong_preset_is_reported_before_a_wrong_model(gen, command, model):
    assert "unknown preset" in gen(command, "x", "-m", model, "-P", "no such preset", code=2).err


SLOW_LOAD = """
import os, sys, time
from logitsmith.cli import main
from logitsmith.engine.native import model

load_file = model.load_file

def slow_load(path, params):
    os.write(2, b"loading\\n")
    time.sleep(0.4)
    return load_file(path, params)

model.load_file = slow_load
sys.argv = ["gen", "Hello", "-n", "1"]
main()
"""


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize(
    ("number", "delay"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 0.02), (signal.SIGHUP, 0.3), (signal.SIGINT, 0.5)],
    ids=str,
)
def test_a_signal_during_the_load(start_gen, number, delay):
    command = start_gen(program=SLOW_LOAD)
    assert command.stderr.readline() == b"loading\n"
    time.sleep(delay)
    command.send_signal(number)
    out, err = command.finish()
    assert err == b""
    assert command.returncode == CODES[number] or (command.returncode == 0 and out)


OF_HELP = {"numpy", "llama_cpp", "httpx", "starlette", "prompt_toolkit", "yaml", "logitsmith.samplers"}
OF_COMPLETION = {"numpy", "llama_cpp", "logitsmith.engine", "logitsmith.logprobs"}
OF_A_RUN = {
    *("rich", "httpx", "huggingface_hub", "prompt_toolkit", "markdown_it", "llguidance", "ray"),
    *("numpy.random", "logitsmith.models.resolve"),
}
LINES = {
    **dict.fromkeys(("gen run --help", "gen presets --help", "gen --version"), OF_HELP),
    **dict.fromkeys(("gen --se\t", "gen -P \t", "gen --set top_k.\t", "gen chat --resume \t"), OF_COMPLETION),
    "gen run Hello -n 1 -s 7 --temp 0.5": OF_A_RUN,
}
"""Command lines, and with a tab the lines that are completed; the modules that they do not need."""


@pytest.mark.usefixtures("with_pruned_model", "chats")
@pytest.mark.parametrize(("line", "unneeded"), LINES.items(), ids=LINES)
def test_nothing_is_imported_that_is_not_needed(environment, home, line, unneeded):
    program = (
        "import sys\nfrom logitsmith.cli import main\n"
        f"sys.argv = {line.split()}\ntry:\n    main()\nfinally:\n"
        f"    print(sorted({unneeded} & set(sys.modules)), file=sys.stderr)"
    )
    asked = question(line[:-1]) if line.endswith("\t") else {}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **asked},
        cwd=home / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "[]\n"
    assert done.stdout.strip()
