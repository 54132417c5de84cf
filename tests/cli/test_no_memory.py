"""Memory that the system does not give: one sentence, whichever way Python reports it."""

import subprocess
import sys

import pytest

WITHOUT_MEMORY = """
import errno, os, threading

def no_map(*_, **__): raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
def no_memory(*_, **__): raise MemoryError
def no_thread(*_, **__): raise RuntimeError("can't start new thread")

{fault}
from logitsmith.cli import main
main({arguments!r})
"""


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        pytest.param("import logitsmith.engine as e; e.Model.load = no_map", ["x", "-n", "1"], id="ENOMEM"),
        pytest.param(
            "import logitsmith.engine as e; e.Model.load = no_memory", ["x", "-n", "1"], id="MemoryError"
        ),
        pytest.param("threading.Thread.start = no_thread", ["{model}", "-n", "1"], id="a thread without a stack"),
    ],
)
def test_one_sentence_says_so(environment, home, pruned_model, fault, arguments):
    words = [word.format(model=pruned_model) for word in arguments]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY.format(fault=fault, arguments=words)],
        capture_output=True,
        text=True,
        cwd=home / "work",
        env=environment,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == (
        "gen: memory ran out; try a smaller model or a smaller -c, or raise the limit (ulimit -v)"
    )
    assert "output" not in done.stderr
    assert done.returncode == 1
