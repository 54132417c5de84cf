"""The line editor without a terminal: SIGINT at moments that a test with real keys could not hit."""

import pytest

START = """
import signal
from logitsmith.cli.chat.typed_input import TypedInput
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

def read():
    try:
        print(editor.read())
    except KeyboardInterrupt:
        print("interrupted", editor.was_cleared)

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
    editor = TypedInput(lambda _: ([], 0), None)
    start = editor._session.prompt
"""
READ = """
    keys.send_text("Hello\\r")
    read()
"""
WHILE_IT_STARTS = """
    editor._session.prompt = lambda *arguments, **options: (interrupt(), start(*arguments, **options))[1]
    read()
    editor._session.prompt = start
"""
WHILE_IT_ENDS = """
    def end_late(*arguments, **options):
        try:
            return start(*arguments, **options)
        finally:
            interrupt()
    editor._session.prompt = end_late
    keys.send_text("{}")
    read()
    editor._session.prompt = start
"""
AFTER_ITS_END = WHILE_IT_ENDS.format("\\x03") + "    read()\n"
AFTER_A_TEXT = WHILE_IT_ENDS.format("a\\r") + "    print(editor.pop_interrupt())\n"
CLEARED = """
    keys.send_text("half\\x03\\x03")
    read()
"""
ACTIONS = {
    "a line": (READ, "Hello\n"),
    "while the editor starts": (WHILE_IT_STARTS + READ, "interrupted False\nHello\n"),
    "after another SIGINT": (AFTER_ITS_END + READ, "interrupted False\ninterrupted False\nHello\n"),
    "after a text": (AFTER_A_TEXT + READ, "a\nTrue\nHello\n"),
    "after a text, read at the next prompt": (
        WHILE_IT_ENDS.format("a\\r") + "    read()\n" + READ,
        "a\ninterrupted False\nHello\n",
    ),
    "a line that was cleared": (
        CLEARED + READ + "    print(editor.was_cleared)",
        "interrupted True\nHello\nFalse\n",
    ),
}
AT_EACH_LINE = """
import sys
from logitsmith.cli.chat import loop
from logitsmith.cli.chat.chat import Chat

def press_again(line_number):
    '''Send SIGINT at this line of code after the note; return the exit code and the number of lines.'''
    lines = 0
    def trace(frame, event, _):
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == line_number:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
            return None
        return trace
    def note(text):
        sys.settrace(trace)
        sys._getframe(1).f_trace = trace
    def leave(app):
        if lines:
            sys.settrace(None)
            app.after_render -= leave
            keys.send_text("\\x04")
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        editor = TypedInput(lambda _: ([], 0), None)
        editor._session.app.after_render += leave
        loop.print_note = note
        keys.send_text("KEYS")
        try:
            code = loop.run_loop(Chat(None, None, None, editor))
        except KeyboardInterrupt:
            code = 130
    sys.settrace(None)
    return code, lines

press_again(0)
code, lines = press_again(0)
assert (code, lines > 1000) == (0, True), (code, lines)
numbers = (*range(1, 50), *range(50, lines - 200, lines // 100))
print([number for number in numbers if press_again(number)[0] != 130])
"""


@pytest.mark.parametrize(("actions", "expected"), ACTIONS.values(), ids=ACTIONS)
def test_what_is_read(gen, actions, expected):
    done = gen(program=START + actions)
    assert (done.out, done.err) == (expected, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", ["\\x03", "half\\x03\\x03"], ids=["in an empty line", "after a line that was cleared"]
)
def test_ctrl_c_again_leaves_whatever_line_runs(gen, keys):
    """No line of code between the note and the next prompt loses the second Ctrl-C."""
    done = gen(program=START.partition("\nwith ")[0] + AT_EACH_LINE.replace("KEYS", keys))
    assert (done.out, done.err) == ("[]\n", "")
