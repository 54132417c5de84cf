"""A GPU in software, which `make gpu` builds: `gen` and llama.cpp's programs compute on it."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.build_llama_cpp import SOFTWARE_GPU_FOLDER
from benchmarks.server import free_port, wait_for

IS_REQUIRED = bool(os.environ.get("REQUIRE_GPU"))
BINDING = SOFTWARE_GPU_FOLDER / "python"
NAME = "Vulkan0"
"""llama.cpp's name of the device."""


@pytest.fixture(autouse=True)
def _software_gpu():
    if not BINDING.is_dir() and not IS_REQUIRED:
        pytest.skip("the GPU in software is not built: make gpu")


@dataclass(frozen=True)
class Machine:
    """A machine with a build of llama.cpp: runs `gen` and llama.cpp's programs."""

    environment: dict[str, str]
    model: Path

    def gen(self, *arguments, stdin=None, code=0):
        """Return what `gen` prints, and what it says on stderr."""
        words = [sys.executable, "-m", "logitsmith.cli", *map(str, arguments)]
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, env=self.environment, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    def text(self, *arguments):
        return self.gen("run", "-m", self.model, *arguments)[0]

    def events(self, *arguments):
        out, _ = self.gen("run", "-m", self.model, "--format", "jsonl", *arguments)
        return [json.loads(line) for line in out.splitlines()]

    def program(self, name, *arguments):
        """Return what a program of llama.cpp prints, which computes on the same device."""
        words = [SOFTWARE_GPU_FOLDER / "bin" / name, "-m", self.model, *map(str, arguments)]
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, env=self.environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    @contextmanager
    def llama_server(self, *arguments):
        """Run llama-server on the same device while inside; yield its address."""
        port = free_port()
        words = [SOFTWARE_GPU_FOLDER / "bin" / "llama-server", "-m", self.model, "--port", str(port), *arguments]
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment
        ) as process:
            try:
                wait_for(port, process)
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


def _machine(tmp_path, model, **variables):
    (tmp_path / "config").mkdir(exist_ok=True)
    folders = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    return Machine({**os.environ, **folders, "NO_COLOR": "1", "COLUMNS": "200", **variables}, model)


@pytest.fixture
def gpu(tmp_path, pruned_model):
    """A machine with a GPU."""
    return _machine(tmp_path, pruned_model, PYTHONPATH=str(BINDING), GGML_VK_VISIBLE_DEVICES="0")


@pytest.fixture
def driver_without_gpu(tmp_path, pruned_model):
    """A machine whose llama.cpp is built for a GPU, and finds none."""
    return _machine(tmp_path, pruned_model, PYTHONPATH=str(BINDING))


@pytest.fixture
def cpu(tmp_path, pruned_model):
    """A machine whose llama.cpp is built for the CPU alone."""
    return _machine(tmp_path, pruned_model)
