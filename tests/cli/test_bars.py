"""Progress bars: short, with tokens and rate, and nothing of them stays, however the process ends."""

import fcntl
import os
import re
import subprocess
import sys
import termios

import pyte
import pytest

from ..engine.small_models import write_model


def watch(command, environment, columns=80, interrupt_at=None, code=0):
    """Run a command on a terminal; returns the lines that were shown at any time, and those that were left.

    ``interrupt_at``: Ctrl-C is typed when a line that begins so is shown.
    """
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, columns))
    variables = {key: value for key, value in environment.items() if key != "COLUMNS"}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**variables, "TERM": "xterm"},
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )  # fmt: skip
    os.close(follower)
    screen = pyte.Screen(columns, 24)
    stream = pyte.ByteStream(screen)
    shown = set()
    try:
        while data := os.read(leader, 4096):
            stream.feed(data)
            lines = [line.rstrip() for line in screen.display if line.strip()]
            shown.update(lines)
            if interrupt_at and any(line.startswith(interrupt_at) for line in lines):
                os.write(leader, b"\x03")
                interrupt_at = None
    except OSError:  # the terminal is closed
        pass
    os.close(leader)
    assert process.wait() == code
    return shown, [line.rstrip() for line in screen.display if line.strip()]


PROGRAM = """
import os, time
from logitsmith.cli.render.progress import reading_bar
from logitsmith.cli.messages import erase_bar
with reading_bar() as update:
    for done in range(512, 15000, 512):
        update(done, 20480)
        time.sleep(0.01)
    {end}
"""
ENDS = {
    "at its end": "update(20480, 20480)",
    "by an exception": "raise SystemExit",
    "by an immediate exit": "erase_bar(); os._exit(0)",
}
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_bar_is_short_and_leaves_nothing(environment, end):
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    variables = {key: value for key, value in environment.items() if key != "COLUMNS"}
    command = [sys.executable, "-c", PROGRAM.format(end=end)]
    process = subprocess.Popen(command, stderr=follower, env={**variables, "TERM": "xterm"})
    os.close(follower)
    written = b""
    try:
        while data := os.read(leader, 4096):
            written += data
    except OSError:  # the terminal is closed
        pass
    os.close(leader)
    assert process.wait() == 0
    text = written.decode()
    assert re.search(r"Reading \S+ +[\d,]+/20,480 [\d,]+ tokens/s", CODES.sub("", text))
    lines = [line for line in re.split(r"[\r\n]+", CODES.sub("", text)) if line]
    assert max(map(len, lines)) <= 49
    erased = text.rindex("\x1b[2K")
    assert not CODES.sub("", text[erased:]).strip()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


TIME = """
import time
from logitsmith.cli.render.progress import reading_bar
with reading_bar() as update:
    update(0, 4096)
    time.sleep(1.2)
"""


def test_a_bar_of_one_long_batch_shows_the_time(environment):
    shown, left = watch([sys.executable, "-c", TIME], environment)
    assert left == []
    assert {line.partition("0/4,096")[2].strip() for line in shown} >= {"0:00", "0:01"}


@pytest.mark.parametrize("columns", [80, 50])
def test_ctrl_c_while_a_prompt_is_read_leaves_no_bar(environment, home, columns):
    """The text of the run ends in a newline, which must not move the cursor away from the bar."""
    prompt = home / "prompt.txt"
    prompt.write_text("hello " * 20_000)
    flags = ["-m", write_model(home / "small.gguf", "llama"), "-t", "1", "-c", "100000", "-f", prompt]
    command = [sys.executable, "-m", "logitsmith.cli", "run", *flags]
    shown, left = watch(command, environment, columns, interrupt_at="Reading", code=130)
    assert any(line.startswith("Reading") for line in shown)
    assert not any("Reading" in line or "/40,000" in line for line in left)


LINES_BELOW = """
import os, time
from logitsmith.cli.render.batch_progress import BatchProgress, show_progress
from logitsmith.cli.messages import erase_bar
print("before", flush=True)
with show_progress(BatchProgress(10), False, lambda: ["worker 1: 3 answered", "worker 2 on " + "x" * 90]):
    time.sleep(0.5)
    {end}
"""


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_lines_below_a_bar_are_cut_and_leave_nothing(environment, end):
    program = LINES_BELOW.format(end="pass" if end.startswith("update") else end)
    shown, left = watch([sys.executable, "-c", program], environment)
    assert "worker 1: 3 answered" in shown
    assert f"worker 2 on {'x' * 36}…" in shown
    assert left == ["before"]
