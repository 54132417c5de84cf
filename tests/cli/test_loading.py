"""When a model is loaded: after the other input was read. How a signal ends the load, and what a run imports."""

import subprocess
import sys

import pytest

from .test_signals import CODES, signals, start


@pytest.mark.parametrize("command", ["run", "next"])
@pytest.mark.parametrize("model", ["missing.gguf", __file__, None], ids=["missing", "no model", "a model"])
def test_a_wrong_preset_is_reported_before_a_wrong_model(gen, command, model, pruned_model):
    model = str(pruned_model) if model is None else model
    assert "unknown preset" in gen(command, "x", "-m", model, "-P", "no such preset", code=2).err


SLOW_LOAD = """
import os, sys, time
from logitsmith.cli import main
from logitsmith.engine.native import model

load_file = model.load_file

def slow_load(path, params):
    os.write(2, b"loading\\n")
    time.sleep({seconds})
    return load_file(path, params)

model.load_file = slow_load
sys.argv = ["gen", "Hello", "-n", "1"]
main()
"""


@pytest.mark.usefixtures("with_pruned_model")
@signals
@pytest.mark.parametrize("delay", [0, 0.02, 0.5])
def test_a_signal_during_the_load(environment, number, delay):
    with start([sys.executable, "-c", SLOW_LOAD.format(seconds=0.4)], environment) as process:
        assert process.stderr.readline() == b"loading\n"
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        out, err = process.communicate()
    assert err == b""
    assert process.returncode == CODES[number] or (process.returncode == 0 and out)


UNNEEDED = (
    *("rich", "httpx", "huggingface_hub", "prompt_toolkit", "markdown_it", "llguidance", "ray"),
    *("numpy.random", "logitsmith.models.resolve"),
)


@pytest.mark.usefixtures("with_pruned_model")
def test_a_run_imports_nothing_that_it_does_not_need(environment):
    program = (
        "import sys\nfrom logitsmith.cli import main\n"
        "try: main(['run', 'Hello', '-n', '1', '-s', '7', '--temp', '0.5'])\nexcept SystemExit: pass\n"
        f"print([name for name in {UNNEEDED} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment, check=True, text=True
    )
    assert done.stderr == "[]\n"
