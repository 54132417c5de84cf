"""Progress bars: short, with tokens and rate, and nothing of them stays, however the process ends."""

import os
import re
import subprocess
import sys
import termios

import pyte
import pytest

PROGRAM = """
import os, time
from logitsmith.cli.render.progress import reading
from logitsmith.cli.visible_bar import erase_bar
with reading() as update:
    for done in range(512, 15000, 512):
        update(done, 20480)
        time.sleep(0.01)
    {end}
"""
ENDS = {
    "in order": "update(20480, 20480)",
    "by an exception": "raise SystemExit",
    "at once": "erase_bar(); os._exit(0)",
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


LINES_BELOW = """
import os, time
from logitsmith.cli.render.batch import BatchProgress, show_progress
from logitsmith.cli.visible_bar import erase_bar
print("before", flush=True)
with show_progress(BatchProgress(10), False, lambda: ["worker 1: 3 answered", "worker 2 on " + "x" * 90]):
    time.sleep(0.5)
    {end}
"""


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_lines_below_a_bar_are_cut_and_leave_nothing(environment, end):
    program = LINES_BELOW.format(end="pass" if end.startswith("update") else end)
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    variables = {key: value for key, value in environment.items() if key != "COLUMNS"}
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdout=follower, stderr=follower, env={**variables, "TERM": "xterm"})
    os.close(follower)
    screen = pyte.Screen(80, 24)
    stream = pyte.ByteStream(screen)
    shown = set()
    try:
        while data := os.read(leader, 4096):
            stream.feed(data)
            shown.update(line.rstrip() for line in screen.display)
    except OSError:  # the terminal is closed
        pass
    os.close(leader)
    assert process.wait() == 0
    assert "worker 1: 3 answered" in shown
    assert f"worker 2 on {'x' * 36}…" in shown
    assert [line.rstrip() for line in screen.display if line.strip()] == ["before"]
