"""Faults of a store: kills, full disks, other processes, older and newer versions, damage."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import time_ns

import pytest
from logitsmith.chats import database as schema
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.database import _data_home, store_path
from logitsmith.chats.records import (
    AnswerRecipe,
    Changes,
    StoredAnswer,
    StoredMessage,
    StoreError,
    StoreWriteError,
    pack_tokens,
)
from logitsmith.chats.store import ChatStore

from .conftest import settings

ROOT = Path(__file__).parents[2]


def start(*arguments):
    command = [sys.executable, "-m", "tests.chats.chatting", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def contents(messages):
    return [message.content for message in messages]


@pytest.mark.slow
def test_a_kill_during_an_answer_keeps_the_stored_part(model_path, tmp_path, notes):
    path = tmp_path / "chats.db"
    process = start("talk", model_path, path)
    made = [int(process.stdout.readline()) for _ in range(2000)]
    process.kill()
    made += map(int, process.communicate()[0].splitlines())
    assert process.returncode == -signal.SIGKILL
    store = ChatStore.open(path)
    summary = store.find_conversation()
    conversation = Conversation.resume(store, summary.id, notes.append)
    messages = conversation.messages()
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    record = conversation.answer_record(messages[-1])
    assert record.result is None
    assert list(record.token_ids) == made[: len(record.token_ids)]
    assert len(record.token_ids) > 1000
    assert messages[-1].content == record.content != ""
    assert len(notes) == 1
    assert "was cut off when gen was killed" in notes[0]
    again = Conversation.resume(store, summary.id, notes.append)
    assert (again.messages(), len(notes)) == (messages, 1)
    store.close()


class AnswerInProgress:
    """A stored answer that another process is generating."""

    def __init__(self, conversation, store):
        recipe = AnswerRecipe(model={"name": "x"}, chain=[], seed=1)
        self._answer = StoredAnswer(
            time_ns(), None, conversation.current_message.hash, recipe, (1, 2), "", "", (), None
        )
        self._conversation, self._store = conversation.id, store
        self.update("", [])

    def update(self, content, token_ids):
        self._write(content, token_ids)

    def finish(self, content, token_ids, result):
        message = StoredMessage.new(self._answer.parent_hash, "assistant", content)
        self._write(content, token_ids, message, result)

    def _write(self, content, token_ids, message=None, result=None):
        added = {} if message is None else {message.hash: message}
        answer = replace(
            self._answer,
            content=content,
            token_ids=tuple(token_ids),
            message_hash=next(iter(added), None),
            result=result,
        )
        head = {} if message is None else {"current_message": message.hash}
        self._store.save(self._conversation, Changes(added, {answer.number: answer}, head))


def begin_answer(conversation, store):
    return AnswerInProgress(conversation, store)


def test_an_answer_of_an_ended_process_becomes_a_message(store, conversation, notes):
    question = conversation.add_user_message("Hello")
    growing = begin_answer(conversation, store)
    growing.update("Hi the", [5, 6])
    begin_answer(conversation, store)  # without any token
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    store.database.run("UPDATE answer SET writer = replace(writer, ?, ?)", (str(os.getpid()), str(gone.pid)))
    again = Conversation.resume(store, conversation.id, notes.append)
    assert contents(again.messages()) == ["Hello", "Hi the"]
    assert again.answer_record(again.current_message).token_ids == (5, 6)
    assert store.database.rows("SELECT count(*) FROM answer") == [(1,)]
    assert again.current_message.parent_hash == question.hash
    assert len(notes) == 1


def test_an_answer_of_a_running_process_is_unchanged(store, conversation, notes):
    conversation.add_user_message("Hello")
    growing = begin_answer(conversation, store)
    growing.update("Hi the", [5, 6])
    process_1 = (f":{os.getpid()}", ":1")  # a process that is always alive
    store.database.run("UPDATE answer SET writer = replace(writer, ?, ?)", process_1)
    assert contents(Conversation.resume(store, conversation.id, notes.append).messages()) == ["Hello"]
    store.database.run("UPDATE answer SET updated = updated - 3600")
    assert contents(Conversation.resume(store, conversation.id, notes.append).messages()) == ["Hello", "Hi the"]
    growing.finish("Hi there", [5, 6, 7], {"finish_reason": "stop"})
    again = Conversation.resume(store, conversation.id, notes.append)
    answers = again.children(conversation.current_message)
    assert contents(answers) == ["Hi the", "Hi there"]
    assert again.answer_record(answers[1]).token_ids == (5, 6, 7)


def test_two_threads_with_one_store(tmp_path):
    def add(number):
        store = ChatStore.open(tmp_path / "chats.db")
        conversation = Conversation.new(store, pytest.fail)
        for text in ("a", "b", f"c{number}"):
            conversation.add_user_message(text)
        store.close()
        return conversation.id

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(add, range(8)))
    store = ChatStore.open(tmp_path / "chats.db")
    assert {summary.id for summary in store.list_conversations()} == set(ids)
    assert store.database.rows("SELECT count(*) FROM message") == [(10,)], "they share their messages"
    store.close()


@pytest.mark.slow
def test_two_concurrent_chats(tmp_path):
    path = tmp_path / "chats.db"
    processes = [start("add", path, 60) for _ in range(2)]
    assert [process.communicate()[0] for process in processes] == ["", ""]
    assert [process.returncode for process in processes] == [0, 0]
    store = ChatStore.open(path)
    assert [summary.message_count for summary in store.list_conversations()] == [60, 60]
    assert store.database.rows("SELECT count(*) FROM message") == [(60,)], "they share their messages"
    assert len(store.search("message 5", limit=100)) == 15
    store.close()


@pytest.fixture
def full_disk():
    """Return a function that limits the size of files; None removes the limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (before[0] if size is None else size, before[1]))

    yield limit
    limit(None)


def test_a_full_disk(store, session, conversation, notes, full_disk):
    conversation.add_user_message("Hello")
    list(session.answer(settings()))
    conversation.rename("tea")
    full_disk(1000)
    conversation.add_user_message("And now?")
    list(session.answer(settings()))
    conversation.add_user_message("And then?")
    assert not conversation.is_stored
    assert len(conversation.messages()) == 5
    assert conversation.name == "tea"
    assert len(notes) == 1
    assert notes[0].startswith(f"{store.path}: the disk ")
    assert notes[0].endswith("; the chat continues, and is saved once that is possible")
    assert not conversation.save_unsaved_changes()
    full_disk(None)
    assert conversation.save_unsaved_changes()
    assert notes[1:] == ["the chat is saved again"]
    other = ChatStore.open(store.path)
    again = Conversation.resume(other, conversation.id, notes.append)
    assert again.messages() == conversation.messages()
    assert again.answer_record(again.messages()[3]) == conversation.answer_record(again.messages()[3])
    assert other.database.rows("SELECT count(*) FROM answer") == [(2,)]
    other.close()


def test_a_disk_that_is_full_from_the_beginning_and_in_mid_answer(store, session, conversation, notes, full_disk):
    full_disk(1000)
    conversation.add_user_message("Hello")
    assert (len(conversation.messages()), len(notes)) == (1, 1)
    full_disk(None)
    assert conversation.save_unsaved_changes()
    events = session.answer(settings(chain="ignore_eos > temp0.8"))
    for _ in range(5):
        next(events)
    full_disk(1000)
    list(events)
    assert not conversation.is_stored
    full_disk(None)
    assert conversation.save_unsaved_changes()
    assert store.database.rows("SELECT count(*), count(message) FROM answer") == [(1, 1)]
    assert len(conversation.answer_record(conversation.current_message).token_ids) == 30


def test_messages_lost_on_a_full_disk_are_reported_at_exit(store, conversation, notes, full_disk):
    conversation.add_user_message("Hello")
    full_disk(1000)
    conversation.add_user_message("And now?")
    conversation.add_user_message("And then?")
    conversation.save_before_exit()
    assert notes[1:] == [f"{store.path}: 2 messages of this chat could not be stored"]
    full_disk(None)
    assert contents(Conversation.resume(store, conversation.id, notes.append).messages()) == ["Hello"]


def test_a_stored_chat_reports_nothing_at_exit(store, conversation, notes):
    conversation.save_before_exit()
    conversation.add_user_message("Hello")
    conversation.save_before_exit()
    assert notes == []


def test_a_new_store_on_a_full_disk(tmp_path, full_disk):
    full_disk(1000)
    with pytest.raises(StoreError, match=r"chats\.db: the disk .*; --no-log chats without a store"):
        ChatStore.open(tmp_path / "chats.db")


def test_a_cut_off_answer_on_a_full_disk(store, conversation, notes, full_disk):
    conversation.add_user_message("Hello")
    begin_answer(conversation, store).update("Hi the", [5, 6])
    full_disk(1000)
    assert contents(Conversation.resume(store, conversation.id, notes.append).messages()) == ["Hello"]
    assert "the answer that was cut off will be shown once the store can be written" in notes[0]
    full_disk(None)
    assert contents(Conversation.resume(store, conversation.id, notes.append).messages()) == ["Hello", "Hi the"]


def test_a_store_that_another_program_locks(store, conversation, notes, monkeypatch):
    other = sqlite3.connect(store.path, isolation_level=None)
    store.database._connection.execute("PRAGMA busy_timeout = 10")
    other.execute("BEGIN IMMEDIATE")
    conversation.add_user_message("Hello")
    assert "another program has locked the chat store" in notes[0]
    other.execute("ROLLBACK")
    assert conversation.save_unsaved_changes()
    other.close()
    assert len(store.list_conversations()) == 1


def make_version(path, version):
    """Write a store of this version of the schema, with a conversation."""
    old = sqlite3.connect(path)
    for script in schema.MIGRATIONS[:version]:
        old.executescript(script)
    old.executescript(f"PRAGMA application_id = {schema.APPLICATION_ID}; PRAGMA user_version = {version}")
    old.execute("INSERT INTO message VALUES (1, 'aa', NULL, 'user', 'An old wombat', 1.0)")
    old.execute("INSERT INTO conversation VALUES ('c0ffee', NULL, 1.0, 1.0, 1, '{}')")
    old.execute("INSERT INTO conversation_message VALUES ('c0ffee', 1, 1)")
    old.execute("INSERT INTO message VALUES (2, 'bb', 1, 'assistant', 'Indeed', 2.0)")
    recipe = {"model": {"name": "x"}, "chain": [], "seed": 1} | ({"template": {}} if version < 3 else {})
    values = (json.dumps(recipe), pack_tokens([4]), pack_tokens([5]))
    old.execute("INSERT INTO answer VALUES (1, 'c0ffee', 1, 2, 'x', 2.0, ?, ?, '', 'Indeed', ?, NULL)", values)
    old.commit()
    old.close()


@pytest.mark.parametrize("version", range(1, len(schema.MIGRATIONS) + 1))
def test_an_older_version_is_brought_up_to_date(tmp_path, version):
    make_version(tmp_path / "chats.db", version)
    store = ChatStore.open(tmp_path / "chats.db")
    assert contents([hit.message for hit in store.search("wombat")]) == ["An old wombat"]
    assert store.database.rows("PRAGMA user_version") == [(len(schema.MIGRATIONS),)]
    assert store.database.rows("PRAGMA integrity_check") == [("ok",)]
    answer = store.answer("bb", "c0ffee")
    assert (answer.recipe, answer.token_ids) == (AnswerRecipe(model={"name": "x"}, chain=[], seed=1), (5,))
    store.close()


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    make_version(tmp_path / "chats.db", 1)
    monkeypatch.setattr("logitsmith.chats.database.MIGRATIONS", (*schema.MIGRATIONS, "CREATE nonsense;"))
    with pytest.raises(StoreError, match="the chat store cannot be used"):
        ChatStore.open(tmp_path / "chats.db")
    monkeypatch.undo()
    store = ChatStore.open(tmp_path / "chats.db")
    assert len(store.list_conversations()) == 1
    store.close()


def write_sqlite(path, script):
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def damage(path):
    store = ChatStore.open(path)
    conversation = Conversation.new(store, print)
    for number in range(50):
        conversation.add_user_message(f"message {number} " * 50)
    store.close()
    data = bytearray(path.read_bytes())
    data[4096 * 2 : 4096 * 20] = os.urandom(4096 * 18)
    path.write_bytes(data)


UNUSABLE = {
    "no database": (lambda path: path.write_text("Dear diary"), r"chats\.db: the chat store is damaged; move it"),
    "another program's": (lambda path: write_sqlite(path, "CREATE TABLE x (y)"), "not a chat store of gen; move"),
    "another program's mark": (
        lambda path: write_sqlite(path, "PRAGMA application_id = 5; PRAGMA user_version = 1"), "not a chat store",
    ),
    "newer": (
        lambda path: make_version(path, 2) or write_sqlite(path, "PRAGMA user_version = 99"),
        r"a newer logitsmith wrote this chat store \(version 99; this one reads up to 3\)",
    ),
    "a folder": (lambda path: path.mkdir(), "cannot be opened (Is a directory); chat without a store"),
    "damaged": (damage, "the chat store is damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_files_that_cannot_be_used(tmp_path, prepare, message):
    path = tmp_path / "chats.db"
    prepare(path)
    before = path.read_bytes() if path.is_file() else b""

    def use():
        store = ChatStore.open(path)
        try:
            store.search("message 7")
            store.messages(store.list_conversations()[0].id)
        finally:
            store.close()

    with pytest.raises(StoreError, match=message.replace("(Is", r"\(Is").replace("directory)", r"directory\)")):
        use()
    assert not before or path.read_bytes() == before


def test_a_file_that_may_not_be_written(store, conversation, notes):
    conversation.add_user_message("Hello")
    store.database._connection.execute("PRAGMA query_only = ON")
    conversation.add_user_message("Are you there?")
    assert "the chat store may not be written" in notes[0]
    assert len(conversation.messages()) == 2


def test_memory_that_cannot_be_written_is_an_error():
    store = ChatStore.in_memory()
    store.database._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreWriteError, match="memory: the chat store may not be written"):
        Conversation.new(store, print).add_user_message("Hello")
    store.close()


FOLDERS = {
    "unset": ({}, "/home/me/.local/share"),
    "xdg": ({"XDG_DATA_HOME": "/x"}, "/x"),
    "relative": ({"XDG_DATA_HOME": "x"}, "/home/me/.local/share"),
}


@pytest.mark.parametrize(("environment", "folder"), FOLDERS.values(), ids=FOLDERS)
def test_the_folder_of_the_store(environment, folder):
    assert _data_home(environment, Path("/home/me")) == Path(folder)
    assert _data_home({}, None) is None


def test_the_users_store(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert store_path() == tmp_path / "logitsmith" / "chats.db"
    store = ChatStore.open()
    assert store.path.exists()
    store.close()
