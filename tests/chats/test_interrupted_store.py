"""Ctrl-C while a message is stored takes effect after the message is stored, and the chat continues."""

import os
import signal

import pytest
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.store import ChatStore
from logitsmith.common.files import deferred_interrupts


@pytest.mark.parametrize("place", ["add_conversation", "add_message", "set_current_message"])
def test_an_interrupted_message_is_stored_and_so_are_later_ones(tmp_path, monkeypatch, place):
    original = getattr(ChatStore, place)

    def interrupted(*arguments):
        monkeypatch.setattr(ChatStore, place, original)
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(ChatStore, place, interrupted)
    store = ChatStore.open(tmp_path / "chats.db")
    conversation = Conversation.new(store, pytest.fail)
    with pytest.raises(KeyboardInterrupt):
        conversation.add_user_message("first")
    conversation.add_user_message("second")
    assert [message.content for message in conversation.messages()] == ["first", "second"]
    store.close()


@deferred_interrupts()
def interrupt_and_continue(done):
    os.kill(os.getpid(), signal.SIGINT)
    done.append("the rest")


def test_an_interrupt_waits_for_the_end_of_the_block_and_no_longer():
    done = []
    with pytest.raises(KeyboardInterrupt):
        interrupt_and_continue(done)
    assert done == ["the rest"]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
