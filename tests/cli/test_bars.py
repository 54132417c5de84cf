"""Progress bars: short, with tokens and rate, and nothing of them stays, however the process ends."""

import os
import re
import termios
from contextlib import suppress

import pyte
import pytest

from ..engine.small_models import write_model


@pytest.fixture
def watch(gen_server, environment, home):
    """Run `gen` or a program on a terminal; returns the lines shown at any time, those left, and all bytes.

    ``interrupt_at``: Ctrl-C is typed when a line that begins so is shown.
    """
    variables = {key: value for key, value in environment.items() if key != "COLUMNS"} | {"TERM": "xterm"}

    def run(*words, program=None, columns=80, interrupt_at=None, code=0):
        leader, follower = os.openpty()
        termios.tcsetwinsize(follower, (24, columns))
        options = {"cwd": home, "env": variables, "program": program, "controls": True}
        pid = gen_server.start(words, [follower] * 3, **options)
        os.close(follower)
        screen = pyte.Screen(columns, 24)
        stream = pyte.ByteStream(screen)
        shown, written = set(), b""
        with suppress(OSError):  # the terminal is closed
            while data := os.read(leader, 4096):
                written += data
                stream.feed(data)
                lines = [line.rstrip() for line in screen.display if line.strip()]
                shown.update(lines)
                if interrupt_at and any(line.startswith(interrupt_at) for line in lines):
                    os.write(leader, b"\x03")
                    interrupt_at = None
        os.close(leader)
        assert gen_server.wait(pid, 60) == code
        return shown, [line.rstrip() for line in screen.display if line.strip()], written.decode()

    return run


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
def test_a_bar_is_short_and_leaves_nothing(watch, end):
    _, left, text = watch(program=PROGRAM.format(end=end))
    assert left == []
    assert re.search(r"Reading \S+ +[\d,]+/20,480 [\d,]+ tokens/s", CODES.sub("", text))
    lines = [line for line in re.split(r"[\r\n]+", CODES.sub("", text)) if line]
    assert max(map(len, lines)) <= 49
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


TIME = """
import time
from logitsmith.cli.render.progress import reading_bar
with reading_bar() as update:
    update(0, 4096)
    time.sleep(1.2)
"""


def test_a_bar_of_one_long_batch_shows_the_time(watch):
    shown, left, _ = watch(program=TIME)
    assert left == []
    assert {line.partition("0/4,096")[2].strip() for line in shown} >= {"0:00", "0:01"}


@pytest.mark.parametrize("columns", [80, 50])
def test_ctrl_c_while_a_prompt_is_read_leaves_no_bar(watch, home, columns):
    """The text of the run ends in a newline, which must not move the cursor away from the bar."""
    prompt = home / "prompt.txt"
    prompt.write_text("hello " * 20_000)
    flags = ["-m", write_model(home / "small.gguf", "llama"), "-t", "1", "-c", "100000", "-f", prompt]
    shown, left, _ = watch("run", *flags, columns=columns, interrupt_at="Reading", code=130)
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
def test_lines_below_a_bar_are_cut_and_leave_nothing(watch, end):
    shown, left, _ = watch(program=LINES_BELOW.format(end="pass" if end.startswith("update") else end))
    assert "worker 1: 3 answered" in shown
    assert f"worker 2 on {'x' * 36}…" in shown
    assert left == ["before"]
