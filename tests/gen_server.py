"""A process that has imported `gen` and forks for each command, since the imports are half of a short run.

A child has its own streams, folder and environment, and the exit code of `python -m logitsmith.cli`. It takes no
interpreter apart when it ends, which would be a third of a short run; tests that start processes of their own do.
Instead of a command it can run a program, which may change a part of the product before it calls `main`.
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
import stat
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
            code = self.wait(self.start(arguments, [terminal.fileno()] * 3, cwd=cwd, env=env), timeout)
            terminal.close()
            reader.join()
        return STYLE.sub("", b"".join(written).decode().replace("\r\n", "\n")), code

    def run(self, arguments, *, stdin, cwd, env, timeout, program=None):
        """Run a command, or a program, to its end. Returns what it wrote to stdout and stderr, and its code."""
        with TemporaryFile() as source, TemporaryFile() as out, TemporaryFile() as err:
            source.write(stdin)
            source.seek(0)
            streams = [stream.fileno() for stream in (source, out, err)]
            pid = self.start(arguments, streams, cwd=cwd, env=env, program=program)
            code = self.wait(pid, timeout)
            out.seek(0)
            err.seek(0)
            return out.read(), err.read(), code

    def start_on_terminal(self, arguments, terminal, *, cwd, env):
        """Start a command in a new session that this terminal controls, and return the process id.

        `wait` must be called before the next command.
        """
        return self.start(arguments, [terminal] * 3, cwd=cwd, env=env, controls=True)

    def start(self, arguments, streams, *, cwd, env, program=None, controls=False):
        """Start a command, or a program, with these three streams, and return the process id.

        `wait` must be called before the next command.
        """
        words = [os.fsdecode(argument) for argument in arguments]
        request = {"arguments": words, "cwd": str(cwd), "env": env, "program": program, "controls": controls}
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
    if not all(stat.S_ISREG(os.fstat(number).st_mode) for number in range(3)):
        # the streams that were made for a file would seek
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["gen", *request["arguments"]]
    try:
        if request["program"] is None:
            main()
        else:
            exec(compile(request["program"], "program", "exec"), {"__name__": "__main__"})
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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored where they run in the background
    with socket.socket(fileno=int(sys.argv[1])) as this_end:
        import_everything()
        serve(this_end)
