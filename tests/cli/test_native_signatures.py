"""A llama-cpp-python that declares another C signature than the engine calls: one sentence, and no crash."""

import json
import subprocess
import sys

import pytest
from logitsmith.engine.native.binding import SUPPORTED_VERSIONS, binding_version

CHANGED = """
import llama_cpp.llama_cpp as lib
from ctypes import *
from llama_cpp._ggml import libggml
{change}
from logitsmith.cli import main
main({arguments})
"""
DIFFERENT = {
    "one argument less": (
        "lib.llama_vocab_is_eog.argtypes = [c_void_p]",
        ("llama_vocab_is_eog", "declares bool (pointer)", "bool (pointer, int)"),
    ),
    "a wider argument": (
        "lib.llama_vocab_is_control.argtypes = [c_void_p, c_int64]",
        ("llama_vocab_is_control", "declares bool (pointer, long)", "bool (pointer, int)"),
    ),
    "no result": (
        "lib.llama_get_logits_ith.restype = None",
        ("llama_get_logits_ith", "declares void (pointer, int)", "pointer (pointer, int)"),
    ),
    "a result without a sign": (
        "lib.llama_token_to_piece.argtypes, lib.llama_token_to_piece.restype = [c_void_p], c_uint32",
        ("llama_token_to_piece", "declares uint (pointer)", "int (pointer, int, pointer, int, int, bool)"),
    ),
    "a structure": (
        "lib.llama_vocab_is_eog.argtypes = [lib.llama_batch, c_int]",
        ("llama_vocab_is_eog", "declares bool (llama_batch, int)", "bool (pointer, int)"),
    ),
    "no declaration": (
        "del lib.llama_vocab_is_eog",
        ("llama_vocab_is_eog", "does not declare the function", "bool (pointer, int)"),
    ),
    "a declaration that is switched off": (
        "lib.llama_vocab_is_eog = lambda vocab, token: False",
        ("llama_vocab_is_eog", "does not declare the function", "bool (pointer, int)"),
    ),
    "a function of ggml": (
        "libggml.ggml_set_abort_callback.argtypes = [c_int]",
        ("ggml_set_abort_callback", "declares int (int)", "pointer (pointer)"),
    ),
    "a callback": (
        "lib.ggml_abort_callback = CFUNCTYPE(c_bool, c_int, c_void_p)",
        ("ggml_abort_callback", "declares bool (int, pointer)", "bool (pointer)"),
    ),
    "no callback": (
        "del lib.ggml_abort_callback",
        ("ggml_abort_callback", "does not declare the callback", "bool (pointer)"),
    ),
}


def problem_and_advice(name, finding, expected):
    oldest = SUPPORTED_VERSIONS.split(",")[0].removeprefix(">=")
    return (
        f"{name}: llama-cpp-python {binding_version()} {finding}, but logitsmith expects {expected}",
        f"install a supported version ({SUPPORTED_VERSIONS}), such as the oldest one:"
        f" pip install llama-cpp-python=={oldest}",
    )


def run_changed(environment, home, change, *arguments):
    code = CHANGED.format(change=change, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=home / "work",
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    return done


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize(("change", "signatures"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_run_ends_with_a_sentence(environment, home, change, signatures):
    done = run_changed(environment, home, change, "Hello", "-n", "1")
    problem, advice = problem_and_advice(*signatures)
    assert (done.stdout, done.stderr) == ("", f"gen: {problem}; {advice}\n")


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize("command", ["score", "next"])
def test_so_do_other_commands(environment, home, command):
    change, signatures = DIFFERENT["one argument less"]
    done = run_changed(environment, home, change, command, "Hello")
    assert (done.stdout, done.stderr) == ("", f"gen: {'; '.join(problem_and_advice(*signatures))}\n")


def test_doctor_shows_it(environment, home):
    change, signatures = DIFFERENT["one argument less"]
    done = run_changed(environment, home, change, "doctor", "--format", "json")
    found = [(entry["problem"], entry["advice"]) for entry in json.loads(done.stdout)["problems"]]
    assert problem_and_advice(*signatures) in found
