"""Ctrl-C in a chat: once ends an answer, twice leaves, however slow the machine is; and a pipe that is closed."""

import io
import signal

import pytest
from logitsmith.cli.chat.answer_view import PlainView
from logitsmith.cli.chat.chat import Chat
from logitsmith.cli.chat.loop import run_loop
from logitsmith.cli.chat.typed_input import EndOfInputError, TurnInput

from ...chats.conftest import settings

CTRL_C, CLEAR = object(), object()


class Script(TurnInput):
    """An input with a list of actions of the user."""

    def __init__(self, actions):
        self._actions = list(actions)

    def read(self, default="", prompt_mark=""):
        while self._actions and self._actions[0] is CLEAR:
            self._actions.pop(0)
            self.was_cleared = True
        if not self._actions:
            raise EndOfInputError
        action = self._actions.pop(0)
        if action is CTRL_C:
            raise KeyboardInterrupt
        self.was_cleared = False
        return action


class InterruptedView(PlainView):
    """A view that raises SIGINT during the first answers: this many signals in each."""

    def __init__(self, interrupts):
        super().__init__(io.StringIO())
        self._interrupts = list(interrupts)

    def show_part(self, part):
        for _ in range(self._interrupts.pop(0) if self._interrupts else 0):
            signal.raise_signal(signal.SIGINT)


class FixedSettings:
    def next_request(self):
        return settings(chain="ignore_eos > temp0.8")


CASES = {
    "twice at the prompt": ([CTRL_C, CTRL_C, "never"], [], 130, []),
    "a message between": ([CTRL_C, "Hello", CTRL_C], [], 0, ["user", "assistant"]),
    "a blank line between": ([CTRL_C, "", CTRL_C], [], 0, []),
    "a line that is cleared between": ([CTRL_C, CLEAR, CTRL_C], [], 0, []),
    "thrice with a cleared line": ([CTRL_C, CLEAR, CTRL_C, CLEAR, CTRL_C], [], 0, []),
    "twice after a cleared line": ([CTRL_C, CLEAR, CTRL_C, CTRL_C, "never"], [], 130, []),
    "in the answer": (["Hello", "Again"], [1], 0, ["user", "assistant"] * 2),
    "in the answer and after it": (["Hello", CTRL_C, "never"], [1], 130, ["user", "assistant"]),
    "in the answer and after the next": (["Hello", "Again", CTRL_C], [1], 0, ["user", "assistant"] * 2),
    "in both answers": (["Hello", "Again"], [1, 1], 0, ["user", "assistant"] * 2),
    "twice in the answer": (["Hello", "never"], [2], 130, ["user", "assistant"]),
    "cleared, then twice in the answer": ([CLEAR, "Hello", "never"], [2], 130, ["user", "assistant"]),
}  # fmt: skip


@pytest.mark.parametrize(("actions", "interrupts", "code", "roles"), CASES.values(), ids=CASES)
def test_when_it_leaves(session, conversation, actions, interrupts, code, roles):
    chat = Chat(session, FixedSettings(), InterruptedView(interrupts), Script(actions))
    assert run_loop(chat) == code
    assert [message.role for message in conversation.messages()] == roles


@pytest.mark.parametrize(("count", "code"), [(1, 0), (2, 130)])
def test_before_the_prompt_is_read(session, conversation, monkeypatch, count, code):
    """The message is stored, and the second Ctrl-C leaves also where nothing can be ended in order."""
    chat = Chat(session, FixedSettings(), InterruptedView([]), Script(["Hello"]))
    divide = chat._parts_of

    def interrupted(text):
        for _ in range(count):
            signal.raise_signal(signal.SIGINT)
        return divide(text)

    monkeypatch.setattr(chat, "_parts_of", interrupted)
    assert run_loop(chat) == code
    assert [message.content for message in conversation.messages()] == ["Hello"]


def test_one_that_waits_ends_the_answer(session, conversation):
    chat = Chat(session, FixedSettings(), InterruptedView([]), Script(["Hello", "Again"]))
    chat.input.has_pending_interrupt = True
    assert run_loop(chat) == 0
    assert [message.role for message in conversation.messages()] == ["user", "assistant"]
    assert [each.content for each in conversation.children(None)] == ["Hello", "Again"]
    assert conversation.messages()[0].content == "Again"


def test_a_closed_pipe_ends_the_chat(session, conversation, monkeypatch):
    """The answer is stored before the store is closed, whoever holds the exception."""
    view = InterruptedView([])
    chat = Chat(session, FixedSettings(), view, Script(["Hello", "never"]))

    def write(part):
        if chat.conversation.all_messages():
            raise BrokenPipeError

    monkeypatch.setattr(view, "show_part", write)
    with pytest.raises(BrokenPipeError) as caught:
        run_loop(chat)
    assert [message.role for message in conversation.messages()] == ["user", "assistant"]
    assert caught.value.__traceback__ is not None


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("place", ["before the prompt is read", "before the first token"])
def test_a_typed_answer_is_kept_without_a_token(session, conversation, monkeypatch, place, count):
    """The text that the user typed as the beginning of an answer is a version of it, whatever the model wrote."""
    chat = Chat(session, FixedSettings(), InterruptedView([]), Script(["Hello", "/edit answer", "Typed text"]))
    chat.send("Hello")
    first = conversation.messages()[-1]
    target, name = (chat, "_parts_of") if place == "before the prompt is read" else (session, "continue_from")
    original = getattr(target, name)

    def interrupted(*arguments, **options):
        for _ in range(count):
            signal.raise_signal(signal.SIGINT)
        return original(*arguments, **options)

    monkeypatch.setattr(target, name, interrupted)
    chat.input._actions.pop(0)
    run_loop(chat)
    assert [message.content for message in conversation.messages()] == ["Hello", "Typed text"]
    assert [message.content for message in conversation.siblings(conversation.current_message)] == [
        first.content,
        "Typed text",
    ]


def test_a_typed_answer_that_the_model_ends_at_once(session, conversation):
    chat = Chat(session, FixedSettings(), InterruptedView([]), Script([]))
    chat.send("Hello")
    chat.settings = type("Empty", (), {"next_request": lambda self: settings(max_tokens=0)})()
    chat.continue_from("Typed text")
    assert conversation.current_message.content == "Typed text"
