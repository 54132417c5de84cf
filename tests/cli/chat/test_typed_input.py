"""What a person types, without a terminal: SIGINT at a moment that no key can be timed for."""

import subprocess
import sys

import pytest

START = """
import signal
from logitsmith.cli.chat.terminal.typed_input import TypedInput
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
    editor = TypedInput(lambda _: ([], 0), None)
"""
READ = """
    keys.send_text("Hello\\r")
    print(editor.read())
"""
INTERRUPT = """
    start = editor._session.prompt
    def start_late(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return start(*arguments, **options)
    editor._session.prompt = start_late
    try:
        editor.read()
    except KeyboardInterrupt:
        print("ended")
    editor._session.prompt = start
"""


@pytest.mark.parametrize(
    ("actions", "expected"),
    [(READ, "Hello\n"), (INTERRUPT + READ, "ended\nHello\n")],
    ids=["a line", "an interrupt while the editor starts"],
)
def test_what_is_read(actions, expected):
    """In a process of its own: another test's browser keeps an event loop in this one."""
    command = [sys.executable, "-c", START + actions]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (expected, "")
