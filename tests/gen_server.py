"""A process that has imported `gen` and forks for each command, since the imports are half of a short run.

A child has its own streams, folder and environment, and the exit code of `python -m logitsmith.cli`. It takes no
interpreter apart when it ends, which would be a third of a short run; tests that start processes of their own do.
"""

import atexit
import contextlib
import fcntl
import importlib
import json
import os
import pkgutil
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
from pathlib import Path
from tempfile import TemporaryFile

LONGEST_REQUEST_BYTES = 1 << 16
IMPORTED_LATER = (
    *("llama_cpp", "numpy.ctypeslib", "numpy.ma", "numpy.random", "encodings.utf_8_sig"),
    *("rich.console", "rich.table", "rich.progress", "rich._emoji_codes"),
)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


class GenServer:
    """Runs `gen` in children of one process; a context manager that ends this process."""

    def __init__(self, environment):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.gen_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd=Path(__file__).parent.parent,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()
        self._process.wait()

    def run_on_terminal(self, arguments, *, columns, cwd, env, timeout):
        """Run a command on a terminal of this width to its end. Returns the text of the screen, without styles."""
        leader, follower = os.openpty()
        termios.tcsetwinsize(follower, (1000, columns))
        written = []
        with os.fdopen(leader, "rb", buffering=0) as screen, os.fdopen(follower, "rb+", buffering=0) as terminal:
            reader = threading.Thread(target=collect, args=(screen, written))
            reader.start()
            code = self._call(arguments, [terminal.fileno()] * 3, cwd=cwd, env=env, timeout=timeout)
            terminal.close()
            reader.join()
        return STYLE.sub("", b"".join(written).decode().replace("\r\n", "\n")), code

    def run(self, arguments, *, stdin, cwd, env, timeout):
        """Run a command to its end. Returns what it wrote to stdout and stderr, and its exit code."""
        with TemporaryFile() as source, TemporaryFile() as out, TemporaryFile() as err:
            source.write(stdin)
            source.seek(0)
            streams = [stream.fileno() for stream in (source, out, err)]
            code = self._call(arguments, streams, cwd=cwd, env=env, timeout=timeout)
            out.seek(0)
            err.seek(0)
            return out.read(), err.read(), code

    def start_on_terminal(self, arguments, terminal, *, cwd, env):
        """Start a command in a new session that this terminal controls, and return the process id.

        `wait` must be called before the next command.
        """
        return self._start(arguments, [terminal] * 3, cwd=cwd, env=env, controls=True)

    def _call(self, arguments, streams, *, cwd, env, timeout):
        """Run the command in a child process with these three streams, and return its exit code."""
        return self.wait(self._start(arguments, streams, cwd=cwd, env=env, controls=False), timeout)

    def _start(self, arguments, streams, *, cwd, env, controls):
        words = [os.fsdecode(argument) for argument in arguments]
        request = {"arguments": words, "cwd": str(cwd), "env": env, "controls": controls}
        socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
        return int(self._socket.recv(LONGEST_REQUEST_BYTES))

    def wait(self, pid, timeout):
        """Wait for the end of a command, and return its exit code."""
        self._socket.settimeout(timeout)
        try:
            return int(self._socket.recv(LONGEST_REQUEST_BYTES))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(LONGEST_REQUEST_BYTES)
            raise
        finally:
            self._socket.settimeout(None)


def collect(screen, written):
    """Append what a terminal shows to ``written``, until no process writes to it any more."""
    with contextlib.suppress(OSError):
        while data := screen.read(1 << 16):
            written.append(data)


def serve(connection):
    """Fork for each request, and answer with the child's id, then with its exit code; ends with the connection."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, LONGEST_REQUEST_BYTES, 3)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            run_command(json.loads(message), streams)
            return
        for stream in streams:
            os.close(stream)
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def run_command(request, streams):
    """Turn this child into the requested process, run the command, and exit."""
    from logitsmith.cli import main

    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    if request["controls"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if os.isatty(1):  # the streams that were made for a file would seek
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["gen", *request["arguments"]]
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        leave(end.code or 0)
    leave(0)


def leave(code):
    """End the process as Python would, without the parts that nothing outside can observe."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def import_everything():
    """Import all modules of the rooms, and what they import when they are first used."""
    for room in ("cli", "cluster", "engine", "presets", "grammars", "recover", "logprobs", "samplers"):
        package = importlib.import_module(f"logitsmith.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"logitsmith.{room}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in IMPORTED_LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which is ignored where the tests run under nohup
    with socket.socket(fileno=int(sys.argv[1])) as this_end:
        import_everything()
        serve(this_end)
