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
    folders = {"XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}
    return {**kept, **folders, "NO_COLOR": "1", "COLUMNS": "200"}


@pytest.fixture
def with_pruned_model(environment, pruned_model, request):
    """Let `gen` run the pruned model where no flag names one, except in tests marked ``bundled_model``."""
    if not request.node.get_closest_marker("bundled_model"):
        environment["GEN_MODEL"] = str(pruned_model)


def run_in_new_process(arguments, *, stdin, cwd, env, timeout):
    done = subprocess.run(
        [sys.executable, "-m", "logitsmith.cli", *arguments],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=env,
        timeout=timeout,
        check=False,
    )
    return done.stdout, done.stderr, done.returncode


@pytest.fixture
def gen(home, environment, gen_server):
    """Run `gen`; in a new process if the test sets variables, some of which are read when modules are imported."""

    def run(*arguments, stdin=b"", code=0, **variables):
        run_command = run_in_new_process if variables else gen_server.run
        out, err, exit_code = run_command(
            arguments,
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            cwd=home / "work",
            env={**environment, **variables},
            timeout=120,
        )
        result = Result(out.decode(), err.decode(), exit_code)
        assert "Traceback" not in result.err, result.err
        assert result.code == code, result.err
        return result

    return run
