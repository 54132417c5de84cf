"""The binding: equal C signatures are accepted."""

import re
import subprocess
import sys
from importlib.metadata import requires

import pytest
from logitsmith.engine.native.binding import SUPPORTED_VERSIONS

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
