"""`gen` as a command: what it prints, where, and its exit code."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pytest
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.store import ChatStore


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


@pytest.fixture
def gen(home, environment, gen_server):
    """Run `gen`, or a program instead of it, in a child of a process that has imported everything."""

    def run(*arguments, stdin=b"", code=0, program=None, **variables):
        out, err, exit_code = gen_server.run(
            arguments,
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            cwd=home / "work",
            env={**environment, **variables},
            timeout=120,
            program=program,
        )
        result = Result(out.decode(), err.decode(), exit_code)
        assert "Traceback" not in result.err, result.err
        assert result.code == code, result.err
        return result

    return run


class RunningCommand:
    """A command that runs in a child of the server, with a pipe to each of its streams."""

    def __init__(self, server, pid, stdin, stdout, stderr):
        self._server, self.pid = server, pid
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode = None

    def send_signal(self, number):
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self.pid, number)

    def wait(self, seconds=60):
        """Wait for the end, and return the exit code."""
        if self.returncode is None:
            self.returncode = self._server.wait(self.pid, seconds)
        return self.returncode

    def finish(self, data=b""):
        """Write the last input. Returns the rest of stdout and stderr, after the end."""
        if self.stdin is not None:
            self.stdin.write(data)
            self.stdin.close()
        with ThreadPoolExecutor(1) as pool:
            err = pool.submit(self.stderr.read)
            out = self.stdout.read()
        self.wait()
        return out, err.result()


@pytest.fixture
def start_gen(home, environment, gen_server):
    """Start `gen`, or a program instead of it, with pipes and an empty stdin where no other stream is given.

    It is killed at the latest when the test is over.
    """
    started = []

    def start(*arguments, program=None, has_stdin=False, stdin=None, stdout=None, stderr=None):
        nothing = os.open(os.devnull, os.O_RDONLY)
        ends = [os.pipe()[::-1] if has_stdin else (None, nothing if stdin is None else stdin)]
        ends += [(None, given) if given is not None else os.pipe() for given in (stdout, stderr)]
        streams = [theirs for _, theirs in ends]
        pid = gen_server.start(arguments, streams, cwd=home / "work", env=environment, program=program)
        for ours, theirs in ends:
            if ours is not None:
                os.close(theirs)
        os.close(nothing)
        pipes = [
            None if ours is None else os.fdopen(ours, mode, buffering=0)
            for (ours, _), mode in zip(ends, ("wb", "rb", "rb"), strict=True)
        ]
        started.append(RunningCommand(gen_server, pid, *pipes))
        return started[-1]

    yield start
    for command in started:
        if command.returncode is None:
            command.send_signal(signal.SIGKILL)
            command.wait()
        for pipe in (command.stdin, command.stdout, command.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def chats(home, monkeypatch):
    """Two stored chats, one of them with a name; returns their ids."""
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    store = ChatStore.open()
    named, other = (Conversation.new(store, print) for _ in range(2))
    named.add_user_message("Hello")
    named.rename("my sea's story")
    other.add_user_message("About whales")
    store.close()
    return named.id, other.id
