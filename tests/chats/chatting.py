"""A chat in a separate process, for tests that kill it: `python -m tests.chats.chatting MODEL STORE …`."""

import sys
from pathlib import Path

from logitsmith.chats.conversation import Conversation
from logitsmith.chats.session import ChatSession
from logitsmith.chats.store import ChatStore
from logitsmith.engine import Model, Token

from .conftest import OPTIONS, settings


def talk_until_killed(model_path, store_path):
    """Generate one answer, and then an endless one; print a line for each token of the endless one."""
    conversation = Conversation.new(ChatStore.open(Path(store_path)), report=print)
    with Model.load(model_path, **{**OPTIONS, "n_ctx": 100_000}) as model:
        session = ChatSession(model, conversation, report=print)
        conversation.add_user_message("Hello")
        list(session.answer(settings()))
        conversation.add_user_message("Go on")
        for event in session.answer(settings(chain="ignore_eos > temp0.8", max_tokens=None)):
            if isinstance(event, Token):
                print(event.id, flush=True)


def add_messages(store_path, count):
    """Add many messages, as fast as possible."""
    conversation = Conversation.new(ChatStore.open(Path(store_path)), report=print)
    for number in range(int(count)):
        (conversation.add_answer_version if number % 2 else conversation.add_user_message)(f"message {number}")


if __name__ == "__main__":
    {"talk": talk_until_killed, "add": add_messages}[sys.argv[1]](*sys.argv[2:])
