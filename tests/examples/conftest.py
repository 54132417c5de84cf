"""Runs what is in examples/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(tmp_path):
    """Run a command in an empty folder, without a user's config; returns what it prints."""

    def run_command(*command, **environment):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {key: value for key, value in os.environ.items() if key not in ("GEN_MODEL", "FORCE_COLOR")}
        result = subprocess.run(
            command,
            cwd=tmp_path,
            env={**kept, "PATH": path, "XDG_CONFIG_HOME": str(tmp_path), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run_command


@pytest.fixture
def gen(run):
    """Run `gen` and return what it prints."""
    return lambda *arguments, **environment: run(sys.executable, "-m", "logitsmith.cli", *arguments, **environment)
