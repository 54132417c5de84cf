"""The binding: its Python classes come only when somebody asks for them."""

import subprocess
import sys

import pytest

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
    names = "from logitsmith.engine.native_binding import binding_version, lib\n"
    subprocess.run([sys.executable, "-c", start + names + program], check=True)
