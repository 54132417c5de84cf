"""transformers as an oracle, in a process of the environment that `make transformers` creates.

    ask("beam_search", rows=rows, beams=4, eos=0)["sequences"]

The functions are those of `transformers_child.py`. Without the environment, a test that asks is skipped; with
REQUIRE_TRANSFORMERS=1 it fails.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

IS_REQUIRED = bool(os.environ.get("REQUIRE_TRANSFORMERS"))
PYTHON = Path(sys.prefix, "transformers", "bin", "python")
"""The environment lies in the one that runs the tests, whichever `make VENV=` names."""
CHILD = Path(__file__).with_name("transformers_child.py")


def ask(function: str, **arguments: Any) -> Any:
    """Return what a function of `transformers_child.py` returns. Arrays of NumPy become lists."""
    process = _start()
    question = {"function": function, "arguments": arguments}
    process.stdin.write(json.dumps(question, default=_as_json) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, f"the process of transformers ended, with exit code {process.wait()}"
    answer = json.loads(line)
    assert "error" not in answer, answer["error"]
    return answer["result"]


def _as_json(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be asked for")


def _start() -> Any:
    if not PYTHON.exists():
        if IS_REQUIRED:
            pytest.fail(f"{PYTHON} is missing; run make transformers")
        pytest.skip("needs transformers: make transformers")
    return _process()


@cache
def _process() -> Any:
    """The process, started at the first question: importing torch takes seconds."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "0"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.Popen(
        [PYTHON, CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if not os.environ.get("SHOW_TRANSFORMERS") else None,
        env=environment,
        text=True,
        encoding="utf-8",
    )

    def stop() -> None:
        process.stdin.close()
        process.wait()
        process.stdout.close()

    atexit.register(stop)
    return process
