"""Changes that the store cannot write are kept in memory and written later."""

import pytest
from logitsmith.chats import conversation as module
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.records import StoreError
from logitsmith.chats.store import ChatStore

from .conftest import settings


@pytest.fixture
def writable(store):
    """Return a function that makes the store writable or not."""

    def set_writable(is_writable):
        store.database._connection.execute(f"PRAGMA query_only = {'OFF' if is_writable else 'ON'}")

    return set_writable


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Retry writing the store at each change."""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_RETRIES", 0.0)


def contents(messages):
    return [message.content for message in messages]


def resumed(store, conversation, notes):
    return Conversation.resume(store, conversation.id, notes.append)


def test_unsaved_changes_are_written_with_the_next_change(store, session, conversation, notes, writable):
    conversation.add_user_message("Hello")
    writable(False)
    list(session.answer(settings()))
    conversation.rename("tea")
    conversation.save_settings({"seed": 3})
    conversation.undo()
    conversation.add_user_message("Hello again")
    list(session.answer(settings(seed=2)))
    conversation.goto(conversation.all_messages()[0].hash)
    assert contents(store.messages(conversation.id)) == ["Hello"]
    assert len(notes) == 1
    assert not conversation.is_stored
    writable(True)
    head = conversation.add_user_message("Last")
    assert conversation.is_stored
    assert notes[1:] == ["the chat is saved again"]
    again = resumed(store, conversation, notes)
    assert again.all_messages() == conversation.all_messages()
    assert (again.current_message, again.name, again.settings) == (head, "tea", {"seed": 3})
    for message in again.all_messages():
        assert again.answer_record(message) == conversation.answer_record(message)
        assert again.answer_count(message) == conversation.answer_count(message)
    assert store.database.rows("SELECT count(*), count(message) FROM answer") == [(2, 2)]
    assert len(notes) == 2


@pytest.mark.parametrize("token", [0, 1, 5, 29])
def test_an_answer_is_one_answer_wherever_writing_fails(
    store, session, conversation, notes, writable, monkeypatch, token
):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_WRITES", 0.0)
    conversation.add_user_message("Hello")
    for number, _ in enumerate(session.answer(settings(chain="ignore_eos > temp0.8"))):
        writable(not token <= number < token + 3)
    writable(True)
    assert conversation.save_unsaved_changes()
    assert store.database.rows("SELECT count(*), count(message) FROM answer") == [(1, 1)]
    record = resumed(store, conversation, notes).answer_record(conversation.current_message)
    assert len(record.token_ids) == 30
    assert conversation.answer_count(conversation.messages()[0]) == 1


def test_the_recipe_of_an_unsaved_answer_is_known(session, conversation, writable):
    writable(False)
    conversation.add_user_message("Hello")
    list(session.answer(settings(seed=7)))
    assert conversation.answer_record(conversation.current_message).recipe.seed == 7
    assert conversation.answer_count(conversation.messages()[0]) == 1


def test_nothing_is_written_until_the_next_retry(conversation, notes, writable, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_RETRIES", 60.0)
    conversation.add_user_message("Hello")
    writable(False)
    conversation.add_user_message("Are you there?")
    writable(True)
    conversation.add_user_message("And now?")
    assert not conversation.is_stored
    conversation.save_before_exit()
    assert conversation.is_stored
    assert notes[1:] == ["the chat is saved again"]


CHANGES = {
    "a message": lambda conversation: conversation.add_user_message("Are you there?"),
    "a name": lambda conversation: conversation.rename("sea"),
    "settings": lambda conversation: conversation.save_settings({"preset": "x"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_deleted_chat_changes_nothing(store, conversation, change):
    conversation.add_user_message("Hello")
    before = conversation.messages()
    other = ChatStore.open(store.path)
    other.delete(conversation.id)
    other.close()
    with pytest.raises(StoreError, match="was deleted meanwhile"):
        change(conversation)
    assert (conversation.messages(), conversation.all_messages(), conversation.name) == (before, before, None)
    assert store.database.rows("SELECT count(*) FROM message") == [(0,)]


def test_a_name_that_is_taken(store, conversation, notes, writable):
    other = Conversation.new(store, notes.append)
    other.rename("tea")
    other.add_user_message("Hello")
    with pytest.raises(StoreError, match="has the name 'tea'"):
        conversation.rename("tea")
    conversation.add_user_message("Hello")
    writable(False)
    conversation.rename("coffee")
    writable(True)
    other.rename("coffee")
    assert conversation.save_unsaved_changes()
    assert notes[-1] == "another chat is already called 'coffee'; this chat has no name now"
    assert conversation.name is None
    assert resumed(store, conversation, notes).name is None
    assert resumed(store, other, notes).name == "coffee"


def test_two_new_chats_with_one_name(store, notes):
    first, second = (Conversation.new(store, notes.append) for _ in range(2))
    for conversation in (first, second):
        conversation.rename("tea")
    for conversation in (first, second):
        conversation.add_user_message("Hello")
    assert (first.name, second.name) == ("tea", None)
    assert notes == ["another chat is already called 'tea'; this chat has no name now"]


def test_leaving_a_chat_that_was_deleted_while_it_was_not_saved(store, conversation, notes, writable):
    conversation.add_user_message("Hello")
    writable(False)
    conversation.add_user_message("Are you there?")
    writable(True)
    other = ChatStore.open(store.path)
    other.delete(conversation.id)
    other.close()
    conversation.save_before_exit()
    (_, report) = notes
    assert report.startswith(f"{store.path}: 1 message of this chat could not be stored: ")
    assert "was deleted meanwhile" in report


def test_a_message_that_is_already_stored_is_not_lost(conversation, notes, writable):
    conversation.add_user_message("Hello")
    conversation.undo()
    writable(False)
    conversation.add_user_message("Hello")
    conversation.add_user_message("And now?")
    conversation.save_before_exit()
    assert notes[-1].endswith(": 1 message of this chat could not be stored")


def test_a_resumed_conversation_counts_what_was_answered_before(store, session, conversation, notes):
    question = conversation.add_user_message("Hello")
    for _ in range(3):
        list(session.regenerate(settings(seed=1)))
    assert len(conversation.children(question)) == 1
    assert conversation.answer_count(question) == resumed(store, conversation, notes).answer_count(question) == 3
