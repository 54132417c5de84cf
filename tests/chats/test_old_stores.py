"""A store that an earlier version wrote is read, written and searched, and keeps its format."""

import sqlite3
from pathlib import Path

import pytest
from logitsmith.chats.conversation import Conversation, tree_lines
from logitsmith.chats.session import ChatSession
from logitsmith.chats.store import ChatStore

from .conftest import ids, settings

TEA, OTHER = "2a0df234e3ea", "33c3bf7987ec"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "chats.db"
    connection = sqlite3.connect(path)
    connection.executescript(Path(__file__).with_name("store_of_version_3.sql").read_text("utf-8"))
    connection.close()
    return path


@pytest.fixture
def store(path):
    with_file = ChatStore.open(path)
    yield with_file
    with_file.close()


def rows(path, query):
    connection = sqlite3.connect(path)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def contents(messages):
    return [message.content for message in messages]


def test_what_is_in_it(store, notes):
    assert [(each.id, each.name, each.message_count) for each in store.list_conversations()] == [
        (OTHER, None, 4), (TEA, "tea", 8),
    ]  # fmt: skip
    assert contents(hit.message for hit in store.search("今天")) == ["And 今天?"]
    tea = Conversation.resume(store, store.find_conversation("tea").id, notes.append)
    assert (tea.name, tea.system) == ("tea", "Be brief.")
    assert tea.settings == {"seed": 1, "chain": [{"temperature": {"temperature": 0.8}}]}
    assert contents(tea.messages())[3:] == ["And then?"]
    lines = list(tree_lines(tea))
    assert [(line.depth, line.message.role) for line in lines] == [
        *[(0, "system"), (0, "user"), (1, "assistant"), (1, "assistant")],
        *[(2, "user"), (3, "assistant"), (3, "assistant"), (2, "user")],
    ]
    assert notes == []


def test_the_recipes_of_its_answers(store, notes):
    tea = Conversation.resume(store, TEA, notes.append)
    question = next(each for each in tea.all_messages() if each.content == "And 今天?")
    made, interrupted = map(tea.answer_record, tea.children(question))
    assert (made.beginning, made.recipe.seed, len(made.token_ids)) == ("Well,", 3, 4)
    assert made.content == tea.children(question)[0].content
    assert made.result["usage"]["completion_tokens"] == 4
    assert interrupted.result == {"finish_reason": "interrupted"}
    assert tea.answer_count(question) == 2


def test_its_answers_are_regenerated(store, notes, model):
    tea = Conversation.resume(store, TEA, notes.append)
    session = ChatSession(model, tea, notes.append)
    record = tea.answer_record(tea.children(tea.messages()[1])[0])
    assert ids(session.replay(record)) == list(record.token_ids)


def test_an_answer_that_was_cut_off_becomes_a_message(store, notes):
    other = Conversation.resume(store, OTHER, notes.append)
    assert contents(other.messages())[3:] == ["Go on", "And so"]
    assert other.answer_record(other.current_message).token_ids == (7, 8)
    assert len(notes) == 1
    assert contents(Conversation.resume(store, OTHER, notes.append).messages())[3:] == ["Go on", "And so"]


def test_it_is_written_in_the_same_format(store, path, notes, model):
    schema = rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    tea = Conversation.resume(store, TEA, notes.append)
    session = ChatSession(model, tea, notes.append)
    list(session.answer(settings()))
    tea.add_user_message("One more wombat")
    tea.rename("coffee")
    assert rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name") == schema
    assert rows(path, "PRAGMA user_version") == [(3,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert contents(hit.message for hit in store.search("wombat")) == ["One more wombat"]
    again = Conversation.resume(store, store.find_conversation("coffee").id, notes.append)
    assert again.messages() == tea.messages()
    assert again.answer_record(again.messages()[-2]).recipe.seed == 1
    store.delete(TEA)
    assert contents(store.messages(OTHER))[:2] == ["Be brief.", "Hello"]
