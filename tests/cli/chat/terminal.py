"""A simulated terminal: types keys into `gen chat`, and returns the text on the screen."""

import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
import termios
import time

import pyte

ENTER, ALT_ENTER, TAB, UP, LEFT = "\r", "\x1b\r", "\t", "\x1b[A", "\x1b[D"
CTRL_C, CTRL_D, CTRL_E, CTRL_R, CTRL_X = "\x03", "\x04", "\x05", "\x12", "\x18"
PROMPT = "> "
_MAX_WAIT_SECONDS = 30


class _Screen(pyte.HistoryScreen):
    """A screen that reports the position of its cursor on request, as terminals do."""

    def __init__(self, columns, lines, answer):
        super().__init__(columns, lines, history=10_000)
        self.write_process_input = lambda text: answer(text.encode())


class Terminal:
    """A terminal that runs `gen chat`.

    Attributes:
        screen: the screen.
        pid: process id of `gen chat`.
        raw: all bytes that the terminal has received.
    """

    def __init__(self, server, arguments, *, columns=80, lines=24, cwd, env):
        self._server = server
        self._leader, follower = os.openpty()
        self._set_size(columns, lines)
        self.screen = _Screen(columns, lines, lambda data: os.write(self._leader, data))
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        variables = {**env, "TERM": "xterm-256color"}
        self.pid = server.start_on_terminal(arguments, follower, cwd=cwd, env=variables)
        os.close(follower)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._leader is not None:
            self.kill()

    def type(self, keys):
        """Type keys. The terminal continues to show output while the keys are typed."""
        data = keys.encode()
        while data:
            _, writable, _ = select.select([], [self._leader], [], 0.02)
            if writable:
                data = data[os.write(self._leader, data[:512]) :]
            self._read(0)

    def paste(self, text):
        """Paste text, with the marks of terminals around it."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def send(self, line):
        """Type a line, and wait for the next prompt."""
        before = self._prompts()
        self.type(line + ENTER)
        self.wait_until(lambda: self._prompts() > before and self.is_at_prompt(), line)

    def wait_for(self, text):
        """Wait until a text is on the screen, or has been scrolled off its top."""
        self.wait_until(lambda: text in self.text, text)

    def wait_for_answer(self, message):
        """Wait until the answer to a message is on the screen. A progress bar does not count as an answer."""

        def is_answered():
            _, is_sent, written = self.text.rpartition(f"> {message}\n")
            return is_sent and "Reading" not in written and len(written.strip()) >= 50

        self.wait_until(is_answered, f"an answer to {message!r}")

    def wait_until(self, condition, description=""):
        """Wait until a condition is true. ``description`` is for the error of a timeout."""
        end = time.monotonic() + _MAX_WAIT_SECONDS
        while not condition():
            if not self._read(0.05) or time.monotonic() > end:
                raise AssertionError(f"{description!r} did not appear:\n{self.text}")

    def wait_for_prompt(self):
        """Wait until the chat waits for a turn."""
        self.wait_until(lambda: self._prompts() and self.is_at_prompt(), "a prompt")

    def is_at_prompt(self):
        """Return whether the cursor is at an empty prompt."""
        line = self.screen.display[self.screen.cursor.y]
        return self.screen.cursor.x == len(PROMPT) and line.strip() == PROMPT.strip()

    def resize(self, columns, lines):
        """Change the size of the window."""
        self._set_size(columns, lines)
        self.screen.resize(lines, columns)
        os.kill(self.pid, signal.SIGWINCH)

    def stop_and_continue(self):
        """Stop and continue the process as a shell does after Ctrl-Z and fg, which turns the echo on."""
        os.kill(self.pid, signal.SIGSTOP)
        modes = termios.tcgetattr(self._leader)
        modes[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self._leader, termios.TCSANOW, modes)
        os.kill(self.pid, signal.SIGCONT)
        self.wait_until(lambda: not termios.tcgetattr(self._leader)[3] & termios.ECHO, "a quiet terminal")

    @property
    def shown(self):
        """The screen, without trailing spaces and trailing empty lines."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def text(self):
        """The screen, and the lines that have been scrolled off its top."""
        above = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return "\n".join([*(line.rstrip() for line in above), self.shown])

    def style(self, text):
        """The style of the first character of a text on the screen."""
        for y, line in enumerate(self.screen.display):
            if text in line:
                return self.screen.buffer[y][line.index(text)]
        raise AssertionError(f"{text!r} is not on the screen:\n{self.shown}")

    def leave(self, keys=CTRL_D):
        """Type keys that end the chat, and return its exit code."""
        self.type(keys)
        return self.ended()

    def ended(self):
        """Wait for the end of the chat, and return its exit code."""
        end = time.monotonic() + _MAX_WAIT_SECONDS
        while self._read(0.05):
            assert time.monotonic() < end, self.text
        code = self._server.wait(self.pid, _MAX_WAIT_SECONDS)
        self._close()
        return code

    def hang_up(self):
        """Close the terminal, as its window is closed; return the exit code of the chat."""
        self._close()
        return self._server.wait(self.pid, _MAX_WAIT_SECONDS)

    def kill(self):
        """End the process as kill -9 does."""
        os.kill(self.pid, signal.SIGKILL)
        self._server.wait(self.pid, _MAX_WAIT_SECONDS)
        self._close()

    def _close(self):
        os.close(self._leader)
        self._leader = None

    def _set_size(self, columns, lines):
        termios.tcsetwinsize(self._leader, (lines, columns))

    def _prompts(self):
        return self.raw.count(b"\x1b[?2004h")  # before each prompt, pasted text is asked to be marked

    def _read(self, seconds):
        """Show what comes within this time; False if the program has ended."""
        if select.select([self._leader], [], [], seconds)[0]:
            try:
                data = os.read(self._leader, 1 << 16)
            except OSError:
                return False
            self.raw += data
            self._stream.feed(data)
        return True


class LimitedProcess:
    """Starts `gen` in a process of its own, in which no file grows beyond a size, as on a disk that is full.

    ``stderr``: where its messages go; None: to the terminal.
    """

    def __init__(self, most_bytes=resource.RLIM_INFINITY, stderr=None):
        self._most_bytes = most_bytes
        self._stderr = stderr

    def start_on_terminal(self, arguments, terminal, *, cwd, env):
        """Run a command in a session of its own, which this terminal controls; returns its process id."""

        def prepare():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._most_bytes, self._most_bytes))

        words = [sys.executable, "-m", "logitsmith.cli", *map(str, arguments)]
        self._process = subprocess.Popen(
            words, stdin=terminal, stdout=terminal, stderr=terminal if self._stderr is None else self._stderr,
            cwd=cwd, env=env, start_new_session=True, preexec_fn=prepare,  # noqa: PLW1509 - the child has one thread
        )  # fmt: skip
        return self._process.pid

    def wait(self, _pid, timeout):
        """Wait for the end of the command, and return its exit code."""
        return self._process.wait(timeout)
