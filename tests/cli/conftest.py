"""`gen` as a process: what it prints, where, and its exit code."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest


@dataclass
class Result:
    out: str
    err: str
    code: int

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def text(self):
        return "".join(line["text"] for line in self.lines if line["event"] == "token")


@pytest.fixture
def home(tmp_path):
    """An empty folder with an empty user config, so that the tests depend on nobody's own."""
    (tmp_path / "config").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture
def environment(home):
    kept = {key: value for key, value in os.environ.items() if key not in ("GEN_MODEL", "FORCE_COLOR")}
    return {**kept, "XDG_CONFIG_HOME": str(home / "config"), "NO_COLOR": "1", "COLUMNS": "200"}


@pytest.fixture
def gen(home, environment):
    def run(*arguments, stdin=b"", code=0, **extra):
        done = subprocess.run(
            [sys.executable, "-m", "logitsmith.cli", *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=home / "work",
            env={**environment, **extra},
            timeout=120,
            check=False,
        )
        result = Result(done.stdout.decode(), done.stderr.decode(), done.returncode)
        assert "Traceback" not in result.err, result.err
        assert result.code == code, result.err
        return result

    return run
