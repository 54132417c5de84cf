"""The binding: its Python classes are imported on demand, and equal C signatures are accepted."""

import re
import subprocess
import sys
from importlib.metadata import requires

import pytest
from logitsmith.engine.native.binding import SUPPORTED_VERSIONS

PROGRAMS = {
    "none of them is imported": "assert 'llama_cpp.llama' not in sys.modules",
    "a class": "from llama_cpp import Llama; assert Llama.__module__ == 'llama_cpp.llama'",
    "an attribute": "import llama_cpp; assert llama_cpp.__version__ == binding_version()",
    "all names": "exec('from llama_cpp import *'); assert 'Llama' in globals()",
    "the declarations are the same": "import llama_cpp; assert llama_cpp.llama_cpp is lib; llama_cpp.Llama",
    "an unknown name": "import llama_cpp; assert not hasattr(llama_cpp, 'unknown')",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("before", ["", "import llama_cpp\n"], ids=["alone", "after the package"])
def test_the_classes_of_the_binding(before, program):
    if before and "not in sys.modules" in program:
        pytest.skip("the package was imported on purpose")
    start = f"import sys\n{before}import logitsmith.engine.model\n"
    names = "from logitsmith.engine.native.binding import binding_version, lib\n"
    subprocess.run([sys.executable, "-c", start + names + program], check=True)


SAME = {
    "other pointers": "lib.llama_vocab_is_eog.argtypes = [POINTER(c_int), c_int]",
    "a pointer to a structure": "lib.llama_vocab_is_eog.argtypes = [POINTER(lib.llama_batch), c_int]",
    "an array": "lib.llama_token_to_piece.argtypes = [c_void_p, c_int, c_char * 8, c_int, c_int, c_bool]",
    "the width in the name": "lib.llama_vocab_is_eog.argtypes = [c_void_p, c_int32]",
    "a result that stays an address": "lib.llama_get_logits_ith.restype = c_void_p",
    "a callback for another pointer": "lib.ggml_abort_callback = CFUNCTYPE(c_bool, POINTER(c_int))",
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_a_signature_that_c_passes_alike_is_accepted(change):
    start = f"import llama_cpp.llama_cpp as lib\nfrom ctypes import *\n{change}\n"
    subprocess.run([sys.executable, "-c", start + "import logitsmith.engine.model"], check=True)


def test_supported_versions_are_those_of_the_project():
    (allowed,) = [text for text in requires("logitsmith") if re.match(r"llama-cpp-python\b", text)]
    assert set(re.findall(r"[<>]=?[\d.]+", allowed)) == set(SUPPORTED_VERSIONS.split(","))
