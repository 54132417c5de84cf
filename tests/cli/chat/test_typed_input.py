"""What a person types, without a terminal: SIGINT at a moment that no key can be timed for."""

import signal

import pytest
from logitsmith.cli.chat.terminal.typed_input import TypedInput
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput


@pytest.fixture
def keys():
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


@pytest.fixture
def typed():
    return lambda: TypedInput(lambda _: ([], 0), None)


def test_a_line_is_read(keys, typed):
    keys.send_text("Hello\r")
    assert typed().read() == "Hello"


def test_an_interrupt_while_the_editor_starts_ends_it(keys, typed, monkeypatch):
    editor = typed()
    start = editor._session.prompt

    def start_late(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return start(*arguments, **options)

    monkeypatch.setattr(editor._session, "prompt", start_late)
    with pytest.raises(KeyboardInterrupt):
        editor.read()
    monkeypatch.undo()
    keys.send_text("Hello\r")
    assert editor.read() == "Hello"
