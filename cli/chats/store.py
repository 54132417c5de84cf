"""The store of chats: conversations, whose messages form trees, and the answers of models to them.

An answer that is being made is stored again and again, so that a killed process loses little of it. A
conversation can be copied to another store: to one in memory when a disk is full, and back later.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from .database import Database, store_path
from .records import (
    AnswerRecipe,
    ConversationSummary,
    Role,
    SearchHit,
    StoredAnswer,
    StoredMessage,
    StoreError,
    clean_text,
    message_hash,
    pack_tokens,
    unpack_tokens,
)

_SUMMARY = """
SELECT id, name, created, updated,
    (SELECT count(*) FROM conversation_message WHERE conversation = id),
    (SELECT substr(content, 1, 200) FROM conversation_message AS link JOIN message ON message.number = link.message
        WHERE link.conversation = id AND role = 'user' ORDER BY link.number LIMIT 1),
    (SELECT json_extract(recipe, '$.model.name') FROM answer WHERE answer.conversation = id
        ORDER BY number DESC LIMIT 1)
FROM conversation """
_SHORTEST_PREFIX = 2


class ConversationIndex:
    """The conversations of a database. Attributes: ``database``. Methods raise ``StoreError``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def list_conversations(self, limit: int | None = None) -> list[ConversationSummary]:
        """Return the conversations, the one that was changed last first; ``limit``: at most so many."""
        rows = self.database.rows(f"{_SUMMARY} ORDER BY updated DESC LIMIT ?", (-1 if limit is None else limit,))
        return [_summary(row) for row in rows]

    def summary(self, identifier: str) -> ConversationSummary:
        """Return the conversation of exactly this id."""
        row = self.database.row(f"{_SUMMARY} WHERE id = ?", (identifier,))
        if row is None:
            raise StoreError(f"there is no conversation {identifier}")
        return _summary(row)

    def find_conversation(self, text: str | None = None) -> ConversationSummary:
        """Return the conversation of a name, an id or the beginning of one; None: the one changed last."""
        if text is None:
            latest = self.list_conversations(1)
            if not latest:
                raise StoreError(f"{self.database.name}: there is no conversation yet")
            return latest[0]
        named = self.database.rows(f"{_SUMMARY} WHERE name = ? OR id = ?", (text, text.lower()))
        if not named and len(text) >= _SHORTEST_PREFIX:
            named = self.database.rows(
                f"{_SUMMARY} WHERE substr(id, 1, ?) = ? ORDER BY updated DESC", (len(text), text.lower())
            )
        if not named:
            raise StoreError(f"there is no conversation {text!r}; gen chat --list shows all")
        if len(named) > 1:
            ids = ", ".join(str(row[0]) for row in named[:5])
            raise StoreError(f"{text!r} begins the ids of {len(named)} conversations: {ids}; give more of it")
        return _summary(named[0])

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """Return the messages that contain all words of a text, the newest first; case does not matter."""
        terms = text.split()
        if not terms:
            raise StoreError("--search: the text to search for is empty")
        condition, values = _search_condition(terms)  # no text of the user is in the condition
        rows = self.database.rows(
            "SELECT message.hash, parent.hash, message.role, message.content, message.created,"  # noqa: S608
            " max(link.conversation) FROM message LEFT JOIN message AS parent ON parent.number = message.parent"
            " JOIN conversation_message AS link ON link.message = message.number"
            f" WHERE {condition} GROUP BY message.number"
            " ORDER BY message.created DESC, message.number DESC LIMIT ?",
            (*values, limit),
        )
        hits = []
        for *fields, conversation in rows:
            message = StoredMessage(*fields)
            hits.append(SearchHit(self.summary(conversation), message, _excerpt(message.content, terms)))
        return hits


def _summary(row: tuple[Any, ...]) -> ConversationSummary:
    identifier, name, created, updated, count, text, model = row
    title = " ".join(str(text or "").split())
    return ConversationSummary(identifier, name, title, created, updated, count, model)


_INDEXED_LETTERS = 3
"""The index finds words of so many letters and more; for shorter ones each message is looked at."""


def _search_condition(terms: Sequence[str]) -> tuple[str, list[str]]:
    """The condition of a query on ``message``, and its values."""
    conditions, values = [], []
    indexed = [term for term in terms if len(term) >= _INDEXED_LETTERS]
    if indexed:
        conditions.append("message.number IN (SELECT rowid FROM message_text WHERE message_text MATCH ?)")
        values.append(" ".join('"' + term.replace('"', '""') + '"' for term in indexed))
    for term in terms:
        if len(term) < _INDEXED_LETTERS:
            conditions.append("message.content LIKE ? ESCAPE '\\'")
            values.append("%" + re.sub(r"([\\%_])", r"\\\1", term) + "%")
    return " AND ".join(conditions), values


_EXCERPT_CHARACTERS = 80


def _excerpt(content: str, terms: Sequence[str]) -> str:
    """A piece of the content around the first of the words, on one line."""
    line = " ".join(content.split())
    found = [match.start() for term in terms if (match := re.search(re.escape(term), line, re.IGNORECASE))]
    start = max(0, min(found, default=0) - _EXCERPT_CHARACTERS // 2)
    end = start + _EXCERPT_CHARACTERS
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


_MESSAGE = (
    "SELECT message.hash, parent.hash, message.role, message.content, message.created FROM message"
    " LEFT JOIN message AS parent ON parent.number = message.parent "
)


class ChatStore(ConversationIndex):
    """A store of chats. Make one with `open`, or with `in_memory`; `close` it.

    Attributes: ``database``. Every method raises ``StoreError``, and ``StoreWriteError`` where nothing can be
    written.
    """

    @classmethod
    def open(cls, path: Path | None = None) -> ChatStore:
        """Open the store of this file, and make it if need be; None: the user's, see `store_path`."""
        return cls(Database(path or store_path()))

    @classmethod
    def in_memory(cls) -> ChatStore:
        """Make a store that is gone when it is closed (``--no-log``)."""
        return cls(Database(None))

    @property
    def path(self) -> Path | None:
        """Its file; None if it is in memory."""
        return self.database.path

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    # Conversations

    def new_conversation(self, identifier: str | None = None) -> str:
        """Add a conversation; returns its id. Called inside `Database.writing`."""
        identifier = identifier or secrets.token_hex(6)
        now = time.time()
        self.database.run(
            "INSERT OR IGNORE INTO conversation (id, created, updated, settings) VALUES (?, ?, ?, '{}')",
            (identifier, now, now),
        )
        return identifier

    def delete(self, identifier: str) -> None:
        """Delete a conversation of exactly this id, and the messages that are in no other."""
        self.summary(identifier)
        database = self.database
        with database.writing():
            database.run("DELETE FROM answer WHERE conversation = ?", (identifier,))
            database.run("DELETE FROM conversation_message WHERE conversation = ?", (identifier,))
            database.run("DELETE FROM conversation WHERE id = ?", (identifier,))
            # A message that is in a conversation is so with all those before it.
            database.run("PRAGMA defer_foreign_keys = ON")
            database.run("DELETE FROM message WHERE number NOT IN (SELECT message FROM conversation_message)")
        database.forget_deleted()

    def rename(self, identifier: str, name: str | None) -> None:
        """Give a conversation a name, by which it is found. A name belongs to one conversation."""
        taken = None if name is None else self.database.row("SELECT id FROM conversation WHERE name = ?", (name,))
        if taken is not None and taken[0] != identifier:
            raise StoreError(f"the conversation {taken[0]} has the name {name!r}; give another one")
        with self.database.writing():
            self.database.run("UPDATE conversation SET name = ? WHERE id = ?", (name, identifier))

    def settings(self, identifier: str) -> dict[str, Any]:
        """Return the settings that were stored with a conversation."""
        row = self.database.row("SELECT settings FROM conversation WHERE id = ?", (identifier,))
        return {} if row is None else cast(dict[str, Any], json.loads(row[0]))

    def save_settings(self, identifier: str, settings: dict[str, Any]) -> None:
        """Store settings with a conversation, in place of those before: any JSON."""
        with self.database.writing():
            self.database.run(
                "UPDATE conversation SET settings = ? WHERE id = ?", (json.dumps(settings), identifier)
            )

    # Messages

    def put_message(
        self, conversation: str, parent: str | None, role: Role, content: str, created: float | None = None
    ) -> StoredMessage:
        """Add a message to a conversation, which then stands there. Called inside `Database.writing`.

        A message that is there already, with the same parent, role and content, is that message.

        Args:
            conversation: the id of the conversation.
            parent: the hash of the message before it; None: it is the first one.
            role: whose message it is.
            content: its text.
            created: when it was made, in seconds since 1970; None: now.
        """
        content = clean_text(content)
        name, now = message_hash(parent, role, content), created or time.time()
        run = self.database.run
        run(
            "INSERT OR IGNORE INTO message (hash, parent, role, content, created)"
            " VALUES (?, (SELECT number FROM message WHERE hash = ?), ?, ?, ?)",
            (name, parent, role, content, now),
        )
        run(
            "INSERT OR IGNORE INTO conversation_message (conversation, message)"
            " SELECT ?, number FROM message WHERE hash = ?",
            (conversation, name),
        )
        self.move_head(conversation, name)
        return self.message(name)

    def move_head(self, conversation: str, head: str | None) -> None:
        """Let a conversation stand at a message of its own. Called inside `Database.writing`."""
        self.database.run(
            "UPDATE conversation SET updated = ?, head = (SELECT number FROM message WHERE hash = ?) WHERE id = ?",
            (time.time(), head, conversation),
        )

    def message(self, name: str) -> StoredMessage:
        """Return the message of a hash."""
        row = self.database.row(f"{_MESSAGE} WHERE message.hash = ?", (name,))
        if row is None:
            raise StoreError(f"there is no message {name[:12]}")
        return StoredMessage(*row)

    def head(self, conversation: str) -> StoredMessage | None:
        """Return the message at which a conversation stands; None before the first one."""
        row = self.database.row(
            f"{_MESSAGE} JOIN conversation ON conversation.head = message.number WHERE conversation.id = ?",
            (conversation,),
        )
        return None if row is None else StoredMessage(*row)

    def path_to(self, name: str) -> list[StoredMessage]:
        """Return the messages from the first one to this one."""
        rows = self.database.rows(
            "WITH RECURSIVE path (number, depth) AS (SELECT number, 0 FROM message WHERE hash = ?"  # noqa: S608
            " UNION ALL SELECT message.parent, depth + 1 FROM path JOIN message USING (number)"
            " WHERE message.parent NOT NULL)"
            f" {_MESSAGE} JOIN path ON path.number = message.number ORDER BY depth DESC",
            (name,),
        )
        return [StoredMessage(*row) for row in rows]

    def messages(self, conversation: str) -> list[StoredMessage]:
        """Return all messages of a conversation, in the order in which they came into it."""
        rows = self.database.rows(
            f"{_MESSAGE} JOIN conversation_message AS link ON link.message = message.number"
            " WHERE link.conversation = ? ORDER BY link.number",
            (conversation,),
        )
        return [StoredMessage(*row) for row in rows]

    # Answers

    def answer_count(self, parent: str, conversation: str) -> int:
        """Return how many answers of a conversation were begun to a message of this hash, whatever their texts."""
        row = self.database.row(
            "SELECT count(*) FROM answer JOIN message ON message.number = answer.parent"
            " WHERE message.hash = ? AND answer.conversation = ?",
            (parent, conversation),
        )
        return 0 if row is None else int(row[0])

    def answer(self, message: str, conversation: str) -> StoredAnswer | None:
        """Return how a message of the assistant was made; None for one that a person wrote.

        Of several answers with the same text, the last one of this conversation.
        """
        row = self.database.row(
            "SELECT answer.number, message.hash, parent.hash, recipe, prompt_ids, beginning, answer.content,"
            " token_ids, result FROM answer JOIN message ON message.number = answer.message"
            " JOIN message AS parent ON parent.number = answer.parent WHERE message.hash = ?"
            " ORDER BY answer.conversation = ? DESC, answer.number DESC LIMIT 1",
            (message, conversation),
        )
        return None if row is None else _answer(row)


def _answer(row: tuple[Any, ...]) -> StoredAnswer:
    number, message, parent, recipe, prompt_ids, beginning, content, token_ids, result = row
    try:
        return StoredAnswer(
            number=number,
            message=message,
            parent=parent,
            recipe=AnswerRecipe(**json.loads(recipe)),
            prompt_ids=unpack_tokens(prompt_ids),
            beginning=beginning,
            content=content,
            token_ids=unpack_tokens(token_ids),
            result=None if result is None else json.loads(result),
        )
    except (TypeError, ValueError) as error:
        raise StoreError(f"the store's record of answer {number} is damaged ({error})") from None


class GrowingAnswer:
    """An answer in the store that grows. Every method raises ``StoreWriteError``.

    Attributes: ``number``, its number in the store; ``conversation`` and ``parent``, the conversation and the hash
    of the message that it answers.
    """

    def __init__(
        self, store: ChatStore, conversation: str, parent: str, recipe: AnswerRecipe,
        prompt_ids: tuple[int, ...], beginning: str = "",
    ) -> None:  # fmt: skip
        """Begin an answer.

        Args:
            store: where it is stored.
            conversation: the id of its conversation.
            parent: the hash of the message that it answers.
            recipe: what it is made with.
            prompt_ids: the tokens that the model reads.
            beginning: the text that the model goes on from.
        """
        self._store = store
        self.conversation, self.parent = conversation, parent
        database = store.database
        with database.writing(lasting=False):
            self.number = database.run(
                "INSERT INTO answer (conversation, parent, writer, updated, recipe, prompt_ids, beginning,"
                " content, token_ids) SELECT ?, number, ?, ?, ?, ?, ?, ?, ? FROM message WHERE hash = ?",
                (
                    conversation, _this_process(), time.time(), json.dumps(asdict(recipe)),
                    pack_tokens(prompt_ids), beginning, beginning, pack_tokens(()), parent,
                ),
            )  # fmt: skip

    def is_in(self, store: ChatStore) -> bool:
        """True if it grows in this store."""
        return self._store is store

    def grow(self, content: str, token_ids: list[int]) -> None:
        """Store what is there. ``content``: the whole text, its beginning included."""
        database = self._store.database
        with database.writing(lasting=False):
            database.run(
                "UPDATE answer SET content = ?, token_ids = ?, updated = ? WHERE number = ?",
                (content, pack_tokens(token_ids), time.time(), self.number),
            )

    def finish(self, content: str, token_ids: list[int], result: dict[str, Any]) -> StoredMessage:
        """Make it a message of the conversation, which stands there now; returns that."""
        store = self._store
        with store.database.writing():
            message = store.put_message(self.conversation, self.parent, "assistant", content)
            store.database.run(
                "UPDATE answer SET content = ?, token_ids = ?, updated = ?, result = ?,"
                " message = (SELECT number FROM message WHERE hash = ?) WHERE number = ?",
                (content, pack_tokens(token_ids), time.time(), json.dumps(result), message.hash, self.number),
            )
        return message


_FORGOTTEN_SECONDS = 600.0
"""After this time without a new token, an answer counts as abandoned, whoever has its writer's number by now."""


def finish_abandoned(store: ChatStore, conversation: str) -> list[StoredMessage]:
    """Make messages of what is there of answers whose process was killed; returns them.

    An answer without any text is removed. The conversation stands at the last of them, if it stood at the message
    that this one answers.
    """
    database = store.database
    query = (
        "SELECT answer.number, writer, answer.updated, answer.content, token_ids, hash FROM answer"
        " JOIN message ON message.number = answer.parent WHERE conversation = ? AND answer.message IS NULL"
    )
    if not database.row(query, (conversation,)):
        return []
    finished = []
    with database.writing():
        for number, writer, updated, content, tokens, parent in database.rows(query, (conversation,)):
            if _is_alive(writer) and time.time() - updated < _FORGOTTEN_SECONDS:
                continue
            if not unpack_tokens(tokens):
                database.run("DELETE FROM answer WHERE number = ?", (number,))
                continue
            head = store.head(conversation)
            message = store.put_message(conversation, parent, "assistant", content)
            if head is None or head.hash != parent:
                store.move_head(conversation, None if head is None else head.hash)
            database.run(
                "UPDATE answer SET message = (SELECT number FROM message WHERE hash = ?) WHERE number = ?",
                (message.hash, number),
            )
            finished.append(message)
    return finished


def discard_growing(store: ChatStore, conversation: str) -> None:
    """Remove what this process began to store of answers, and went on with elsewhere."""
    with store.database.writing():
        store.database.run(
            "DELETE FROM answer WHERE conversation = ? AND message IS NULL AND writer = ?",
            (conversation, _this_process()),
        )


def _this_process() -> str:
    """What names this process in the store."""
    return f"{platform.node()}:{os.getpid()}"


def _is_alive(writer: str) -> bool:
    """True if the process of this name may still run; one of another machine always may."""
    machine, _, number = writer.rpartition(":")
    if machine != platform.node():
        return True
    if writer == _this_process():
        return False  # it was left by an exception: a process makes one answer at a time, and finishes it
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        return True
    return True


def copy_conversation(source: ChatStore, target: ChatStore, conversation: str) -> None:
    """Make sure that ``target`` has all of a conversation of ``source``: its messages, finished answers and place.

    What it has already stays as it is. Raises ``StoreWriteError``, and then nothing was copied.
    """
    read, database = source.database, target.database
    head = source.head(conversation)
    row = read.row("SELECT name, created, settings FROM conversation WHERE id = ?", (conversation,))
    if row is None:
        return
    answers = read.rows(
        "SELECT parent.hash, message.hash, writer, answer.updated, recipe, prompt_ids, beginning, answer.content,"
        " token_ids, result FROM answer JOIN message ON message.number = answer.message"
        " JOIN message AS parent ON parent.number = answer.parent WHERE conversation = ? ORDER BY answer.number",
        (conversation,),
    )
    with database.writing():
        target.new_conversation(conversation)
        database.run(
            "UPDATE OR IGNORE conversation SET name = ?, created = ?, settings = ? WHERE id = ?",
            (*row, conversation),
        )
        for message in source.messages(conversation):
            target.put_message(conversation, message.parent, message.role, message.content, message.created)
        target.move_head(conversation, None if head is None else head.hash)
        for parent, message, *fields in answers:
            _put_answer(target, conversation, parent, message, fields)


def _put_answer(target: ChatStore, conversation: str, parent: str, message: str, fields: list[object]) -> None:
    """Add an answer that is not there yet. ``fields``: the columns from ``writer`` to ``result``."""
    database = target.database
    token_ids = fields[-2]
    known = database.row(
        "SELECT 1 FROM answer WHERE conversation = ? AND token_ids = ? AND recipe = ?"
        " AND message = (SELECT number FROM message WHERE hash = ?)",
        (conversation, token_ids, fields[2], message),
    )
    if known is None:
        database.run(
            "INSERT INTO answer (conversation, parent, message, writer, updated, recipe, prompt_ids, beginning,"
            " content, token_ids, result) SELECT ?, (SELECT number FROM message WHERE hash = ?),"
            " (SELECT number FROM message WHERE hash = ?), ?, ?, ?, ?, ?, ?, ?, ?",
            (conversation, parent, message, *fields),
        )
