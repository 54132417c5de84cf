"""Packages that are not installed or that are of another kind, and memory that there is not: one sentence."""

import json
import subprocess
import sys

import pytest
from logitsmith.engine.native.binding import SUPPORTED_VERSIONS


def run_changed(environment, home, change, *arguments):
    """Run `gen` in a new process, after a change that is made before anything is imported."""
    program = f"{change}\nfrom logitsmith.cli import main\nmain({arguments!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=home / "work",
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    return done


MISSING = {
    "pyyaml": ("import sys; sys.modules['yaml'] = None", ["presets", "check", "creative"]),
    "numpy": ("import sys; sys.modules['numpy'] = None", ["doctor"]),
}


@pytest.mark.parametrize(("package", "fault"), MISSING.items(), ids=MISSING)
def test_a_package_that_is_not_installed_is_named(environment, home, package, fault):
    change, arguments = fault
    done = run_changed(environment, home, change, *arguments)
    assert done.stderr.startswith(f"gen: the Python package {package} is not installed here;")
    assert (done.stderr.count("\n"), done.stdout) == (1, "")


def test_a_missing_module_of_our_own_is_a_fault(environment, home):
    change = "import sys; sys.modules['logitsmith.samplers'] = None"
    assert "Traceback" in run_changed(environment, home, change, "samplers").stderr


OTHER_SIGNATURES = {
    "a function": (
        "import llama_cpp.llama_cpp as lib; from ctypes import *; lib.llama_vocab_is_eog.argtypes = [c_void_p]",
        "llama_vocab_is_eog",
    ),
    "a callback": ("import llama_cpp.llama_cpp as lib; del lib.ggml_abort_callback", "ggml_abort_callback"),
}


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize(("change", "name"), OTHER_SIGNATURES.values(), ids=OTHER_SIGNATURES)
def test_another_signature_of_llama_cpp_ends_a_run_with_a_sentence(environment, home, change, name):
    done = run_changed(environment, home, change, "Hello", "-n", "1")
    assert done.stderr.startswith(f"gen: {name}: llama-cpp-python ")
    assert SUPPORTED_VERSIONS in done.stderr
    assert (done.stderr.count("\n"), done.stdout) == (1, "")


def test_the_doctor_shows_another_signature(environment, home):
    change, name = OTHER_SIGNATURES["a function"]
    done = run_changed(environment, home, change, "doctor", "--format", "json")
    (entry,) = [each for each in json.loads(done.stdout)["problems"] if each["problem"].startswith(f"{name}: ")]
    assert SUPPORTED_VERSIONS in entry["advice"]


WITHOUT_MEMORY = """
import errno, os, threading

def no_map(*_, **__): raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
def no_memory(*_, **__): raise MemoryError
def no_thread(*_, **__): raise RuntimeError("can't start new thread")

{fault}
from logitsmith.cli import main
main()
"""
FAULTS = {
    "ENOMEM": "import logitsmith.engine as e; e.Model.load = no_map",
    "MemoryError": "import logitsmith.engine as e; e.Model.load = no_memory",
    "a thread without a stack": "threading.Thread.start = no_thread",
}


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_memory_that_the_system_does_not_give(gen, fault):
    error = gen("x", "-n", "1", program=WITHOUT_MEMORY.format(fault=fault), code=1).err
    assert error.splitlines()[-1].startswith("gen: memory ran out; ")
    assert "output" not in error


def test_a_llama_cpp_that_cannot_be_loaded(environment, home):
    (home / "work" / "llama_cpp.py").write_text("raise RuntimeError('Failed to load shared library')\n")
    out = " ".join(run_changed(environment, home, "", "doctor").stdout.split())
    assert "cannot be loaded: Failed to load shared library" in out
    assert "pip install --force-reinstall" in out
