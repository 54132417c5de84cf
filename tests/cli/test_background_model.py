"""The model is loaded in the background while Python imports modules and reads the other input."""

import subprocess
import sys

import pytest
from logitsmith.cli.inputs import model as background
from logitsmith.cli.inputs.model import load_arguments, load_in_background
from logitsmith.cli.options.model import LogOptions, ModelOptions, NumaStrategy
from logitsmith.engine.native.options import are_huge_pages_supported

from .test_signals import CODES, signals, start

NOT_IN_BACKGROUND = {
    "an adapter": {"lora": ["a.gguf"]},
    "metadata": {"override_kv": ["a=int:1"]},
    "the GPU": {"gpu_layers": -1},
    "a flag without effect": {"main_gpu": 1},
    "NUMA": {"numa": NumaStrategy("isolate")},
    "locked memory": {"mlock": True},
    "a file that is read": {"mmap": False},
    "no file": {"model": "no/such.gguf"},
    "no model": {"model": __file__},
}


@pytest.fixture
def loads(monkeypatch):
    """The plans that were loaded in the background."""
    loads = []

    class Load:
        def __init__(self, plan):
            loads.append(plan)

        def cancel(self):
            loads.append("canceled")

    monkeypatch.setattr("logitsmith.engine.native.model.BackgroundLoad", Load)
    return loads


@pytest.mark.parametrize("flags", NOT_IN_BACKGROUND.values(), ids=NOT_IN_BACKGROUND)
def test_it_is_not_done(loads, pruned_model, flags, capsys):
    with load_in_background(
        ModelOptions(**{"model": str(pruned_model), **flags}), LogOptions()
    ) as background_model:
        assert background_model is None
    assert loads == []
    assert capsys.readouterr() == ("", "")


def test_it_is_not_done_for_a_large_file_a_shown_log_or_no_need(loads, pruned_model, monkeypatch):
    options = ModelOptions(model=str(pruned_model))
    with load_in_background(options, LogOptions(verbose=True)) as background_model:
        assert background_model is None
    with load_in_background(options, LogOptions(), is_needed=False) as background_model:
        assert background_model is None
    monkeypatch.setattr(background, "_MAX_BACKGROUND_BYTES", 1000)
    with load_in_background(options, LogOptions()) as background_model:
        assert background_model is None
    assert loads == []


TOKENS = {None: None, -1: None, 15: True, 16: None}


@pytest.mark.parametrize(("max_tokens", "mmap"), TOKENS.items(), ids=str)
def test_for_a_few_tokens_the_file_is_mapped(max_tokens, mmap):
    assert load_arguments(ModelOptions(), {}, print, max_tokens)["mmap"] is mmap
    assert load_arguments(ModelOptions(mmap=False), {}, print, max_tokens)["mmap"] is False


def test_it_is_canceled_in_the_end(loads, pruned_model):
    with load_in_background(ModelOptions(model=str(pruned_model)), LogOptions()) as background_model:
        assert background_model.spec.path == pruned_model
        assert [plan.path for plan in loads] == [pruned_model]
    assert loads[1:] == ["canceled"]


@pytest.mark.parametrize("command", ["run", "next"])
@pytest.mark.parametrize("model", ["missing.gguf", __file__, None], ids=["missing", "no model", "a model"])
def test_a_wrong_preset_is_reported_before_a_wrong_model(gen, command, model, pruned_model):
    model = str(pruned_model) if model is None else model
    assert "unknown preset" in gen(command, "x", "-m", model, "-P", "no such preset", code=2).err


SLOW_LOAD = """
import os, sys, time
from logitsmith.engine.native.model import BackgroundLoad
from logitsmith.cli import main

load = BackgroundLoad._load

def slow_load(self):
    os.write(2, b"loading\\n")
    time.sleep({seconds})
    load(self)

BackgroundLoad._load = slow_load
sys.argv = ["gen", "Hello", "-n", "1"]
main()
"""


@pytest.mark.usefixtures("with_pruned_model")
@signals
@pytest.mark.parametrize("seconds", [0.05, 0.7], ids=["while the rest is imported", "while it is waited for"])
@pytest.mark.parametrize("delay", [0, 0.02, 0.5])
def test_a_signal_during_the_load(environment, number, seconds, delay):
    with start([sys.executable, "-c", SLOW_LOAD.format(seconds=seconds)], environment) as process:
        assert process.stderr.readline() == b"loading\n"
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        out, err = process.communicate()
    assert err == b""
    assert process.returncode == CODES[number] or (process.returncode == 0 and out)


SLOW_READ = """
import os, sys, time
from logitsmith.engine.native.model import BackgroundLoad
from logitsmith.cli import main

def report(self, fraction, of=BackgroundLoad._report_progress):
    os.write(2, b"." if fraction else b"reading\\n")
    time.sleep(0.01)
    return of(self, fraction)

BackgroundLoad._report_progress = report
sys.argv = ["gen", "Hello", "-n", "16"]
main()
"""
TENSORS = 272


@pytest.mark.skipif(not are_huge_pages_supported(), reason="without huge pages the file is mapped")
@pytest.mark.bundled_model
@signals
def test_a_signal_stops_reading(environment, number):
    with start([sys.executable, "-c", SLOW_READ], environment) as process:
        assert process.stderr.readline() == b"reading\n"
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == CODES[number]
    assert set(err) <= set(b".")
    assert len(err) < TENSORS


UNNEEDED = (
    *("rich", "jinja2", "httpx", "huggingface_hub", "prompt_toolkit", "markdown_it", "llguidance", "ray"),
    *("llama_cpp.llama", "numpy.random", "typer._adapters"),
    *("logitsmith.models.resolve", "logitsmith.presets.config_table"),
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
