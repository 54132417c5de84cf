"""The store of chats: conversations, whose messages form trees, and the answers of models to them.

It is the log of conversations, which are whole in memory (`Conversation`): `ChatStore.save` takes their changes.
An answer that is being made is stored again and again, so that a killed process loses little of it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from .database import DELETED, Database, store_path
from .records import (
    AnswerRecipe,
    Changes,
    ConversationSummary,
    SearchHit,
    StoredAnswer,
    StoredMessage,
    StoreError,
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
_MIN_ID_PREFIX_CHARACTERS = 2


class ChatStore:
    """A store of chats. Make one with `open`, or with `in_memory`; `close` it.

    Attributes: ``database``. Every method raises ``StoreError``, and ``StoreWriteError`` where nothing can be
    written.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

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

    # Reading

    def list_conversations(self, limit: int | None = None) -> list[ConversationSummary]:
        """Return the conversations, the one that was changed last first; ``limit``: at most so many."""
        rows = self.database.rows(f"{_SUMMARY} ORDER BY updated DESC LIMIT ?", (-1 if limit is None else limit,))
        return [_summary(row) for row in rows]

    def summary(self, identifier: str) -> ConversationSummary:
        """Return the conversation of exactly this id."""
        row = self.database.first_row(f"{_SUMMARY} WHERE id = ?", (identifier,))
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
        if not named and len(text) >= _MIN_ID_PREFIX_CHARACTERS:
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

    def settings(self, identifier: str) -> dict[str, Any]:
        """Return the settings that were stored with a conversation."""
        row = self.database.first_row("SELECT settings FROM conversation WHERE id = ?", (identifier,))
        return {} if row is None else cast(dict[str, Any], json.loads(row[0]))

    def current_message_hash(self, conversation: str) -> str | None:
        """Return the hash of the message at which a conversation stands; None before the first one."""
        row = self.database.first_row(
            "SELECT hash FROM conversation JOIN message ON message.number = head WHERE id = ?", (conversation,)
        )
        return None if row is None else str(row[0])

    def messages(self, conversation: str) -> list[StoredMessage]:
        """Return all messages of a conversation, in the order in which they came into it."""
        rows = self.database.rows(
            "SELECT message.hash, parent.hash, message.role, message.content, message.created FROM message"
            " LEFT JOIN message AS parent ON parent.number = message.parent"
            " JOIN conversation_message AS link ON link.message = message.number"
            " WHERE link.conversation = ? ORDER BY link.number",
            (conversation,),
        )
        return [StoredMessage(*row) for row in rows]

    def answer_parents(self, conversation: str) -> dict[int, str]:
        """Return the answers of a conversation by number: of each the hash of the message that it answers."""
        rows = self.database.rows(
            "SELECT answer.number, hash FROM answer JOIN message ON message.number = answer.parent"
            " WHERE conversation = ?",
            (conversation,),
        )
        return dict(rows)

    def answer(self, message: str, conversation: str) -> StoredAnswer | None:
        """Return how a message of the assistant was made; None for one that a person wrote.

        Of several answers with the same text, the last one of this conversation.
        """
        row = self.database.first_row(
            "SELECT answer.number, message.hash, parent.hash, recipe, prompt_ids, beginning, answer.content,"
            " token_ids, result FROM answer JOIN message ON message.number = answer.message"
            " JOIN message AS parent ON parent.number = answer.parent WHERE message.hash = ?"
            " ORDER BY answer.conversation = ? DESC, answer.number DESC LIMIT 1",
            (message, conversation),
        )
        return None if row is None else _answer(row)

    # Writing

    def save(self, conversation: str, changes: Changes, *, is_durable: bool = True) -> None:
        """Write changes of a conversation: all of them, or none.

        ``is_durable``: see `Database.transaction`.
        """
        fields = changes.fields
        with self.database.transaction(is_durable=is_durable):
            if "created" in fields:
                self.add_conversation(conversation, fields["created"])
            elif self.database.first_row("SELECT 1 FROM conversation WHERE id = ?", (conversation,)) is None:
                raise StoreError(DELETED)
            for message in changes.messages.values():
                self.add_message(conversation, message)
            for answer in changes.answers.values():
                self._write_answer(conversation, answer)
            if "current_message" in fields:
                self.set_current_message(conversation, fields["current_message"])
            if "name" in fields:  # since `check_name`, another process may have taken it
                row = (fields["name"], conversation)
                self.database.run("UPDATE OR IGNORE conversation SET name = ? WHERE id = ?", row)
            if "settings" in fields:
                row = (json.dumps(fields["settings"]), conversation)
                self.database.run("UPDATE conversation SET settings = ? WHERE id = ?", row)

    def check_name(self, conversation: str | None, name: str | None) -> None:
        """Raise ``StoreError`` for a name that another conversation has. None for one that is not stored yet."""
        taken = (
            None
            if name is None
            else self.database.first_row("SELECT id FROM conversation WHERE name = ?", (name,))
        )
        if taken is not None and taken[0] != conversation:
            raise StoreError(f"the conversation {taken[0]} has the name {name!r}; give another one")

    def add_conversation(self, identifier: str, created: float) -> None:
        """Add a conversation. Called inside `Database.transaction`."""
        self.database.run(
            "INSERT OR IGNORE INTO conversation (id, created, updated, settings) VALUES (?, ?, ?, '{}')",
            (identifier, created, created),
        )

    def add_message(self, conversation: str, message: StoredMessage) -> None:
        """Add a message, of which an equal one may be there already. Called inside `Database.transaction`."""
        self.database.run(
            "INSERT OR IGNORE INTO message (hash, parent, role, content, created)"
            " VALUES (?, (SELECT number FROM message WHERE hash = ?), ?, ?, ?)",
            (message.hash, message.parent_hash, message.role, message.content, message.created),
        )
        self.database.run(
            "INSERT OR IGNORE INTO conversation_message (conversation, message)"
            " SELECT ?, number FROM message WHERE hash = ?",
            (conversation, message.hash),
        )

    def set_current_message(self, conversation: str, head: str | None) -> None:
        """Let a conversation stand at a message of its own. Called inside `Database.transaction`."""
        self.database.run(
            "UPDATE conversation SET updated = ?, head = (SELECT number FROM message WHERE hash = ?) WHERE id = ?",
            (time.time(), head, conversation),
        )

    def _write_answer(self, conversation: str, answer: StoredAnswer) -> None:
        """Add an answer, or bring the one of this number up to date."""
        token_ids = pack_tokens(answer.token_ids)
        result = None if answer.result is None else json.dumps(answer.result)
        known = self.database.first_row(
            "UPDATE answer SET content = ?, token_ids = ?, updated = ?, result = ?,"
            " message = coalesce((SELECT number FROM message WHERE hash = ?), message)"
            " WHERE number = ? RETURNING number",
            (answer.content, token_ids, time.time(), result, answer.message_hash, answer.number),
        )
        if known is None:
            self.database.run(
                "INSERT INTO answer (number, conversation, parent, message, writer, updated, recipe, prompt_ids,"
                " beginning, content, token_ids, result) SELECT ?, ?, number,"
                " (SELECT number FROM message WHERE hash = ?), ?, ?, ?, ?, ?, ?, ?, ? FROM message WHERE hash = ?",
                (
                    answer.number, conversation, answer.message_hash, _this_process(), time.time(),
                    json.dumps(asdict(answer.recipe)), pack_tokens(answer.prompt_ids), answer.beginning,
                    answer.content, token_ids, result, answer.parent_hash,
                ),
            )  # fmt: skip

    def recover_abandoned_answers(self, conversation: str) -> list[StoredMessage]:
        """Make messages of what is there of answers whose process was killed; returns them.

        An answer without any text is removed. The conversation stands at the last of them, if it stood at the
        message that this one answers.
        """
        query = (
            "SELECT answer.number, writer, answer.updated, answer.content, token_ids, hash FROM answer"
            " JOIN message ON message.number = answer.parent WHERE conversation = ? AND answer.message IS NULL"
        )
        if not self.database.first_row(query, (conversation,)):
            return []
        finished, run = [], self.database.run
        with self.database.transaction():
            head = self.current_message_hash(conversation)
            for number, writer, updated, content, tokens, parent in self.database.rows(query, (conversation,)):
                if _is_alive(writer) and time.time() - updated < _ABANDONED_AFTER_SECONDS:
                    continue
                if not unpack_tokens(tokens):
                    run("DELETE FROM answer WHERE number = ?", (number,))
                    continue
                message = StoredMessage.new(parent, "assistant", content)
                self.add_message(conversation, message)
                head = message.hash if head == parent else head
                self.set_current_message(conversation, head)
                run(
                    "UPDATE answer SET message = (SELECT number FROM message WHERE hash = ?) WHERE number = ?",
                    (message.hash, number),
                )
                finished.append(message)
        return finished

    def delete(self, identifier: str) -> None:
        """Delete a conversation of exactly this id, and the messages that are in no other."""
        self.summary(identifier)
        database = self.database
        with database.transaction():
            database.run("DELETE FROM answer WHERE conversation = ?", (identifier,))
            database.run("DELETE FROM conversation_message WHERE conversation = ?", (identifier,))
            database.run("DELETE FROM conversation WHERE id = ?", (identifier,))
            # A message that is in a conversation is so with all those before it.
            database.run("PRAGMA defer_foreign_keys = ON")
            database.run("DELETE FROM message WHERE number NOT IN (SELECT message FROM conversation_message)")
        database.erase_deleted_data()


def _summary(row: tuple[Any, ...]) -> ConversationSummary:
    identifier, name, created, updated, count, text, model = row
    title = " ".join(str(text or "").split())
    return ConversationSummary(identifier, name, title, created, updated, count, model)


_MIN_INDEXED_CHARACTERS = 3
"""The index finds words of so many letters and more; for shorter ones each message is looked at."""


def _search_condition(terms: Sequence[str]) -> tuple[str, list[str]]:
    """The condition of a query on ``message``, and its values."""
    conditions, values = [], []
    indexed = [term for term in terms if len(term) >= _MIN_INDEXED_CHARACTERS]
    if indexed:
        conditions.append("message.number IN (SELECT rowid FROM message_text WHERE message_text MATCH ?)")
        values.append(" ".join('"' + term.replace('"', '""') + '"' for term in indexed))
    for term in terms:
        if len(term) < _MIN_INDEXED_CHARACTERS:
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


def _answer(row: tuple[Any, ...]) -> StoredAnswer:
    number, message_hash, parent_hash, recipe, prompt_ids, beginning, content, token_ids, result = row
    try:
        return StoredAnswer(
            number=number,
            message_hash=message_hash,
            parent_hash=parent_hash,
            recipe=AnswerRecipe(**json.loads(recipe)),
            prompt_ids=unpack_tokens(prompt_ids),
            beginning=beginning,
            content=content,
            token_ids=unpack_tokens(token_ids),
            result=None if result is None else json.loads(result),
        )
    except (TypeError, ValueError) as error:
        raise StoreError(f"the store's record of answer {number} is damaged ({error})") from None


_ABANDONED_AFTER_SECONDS = 600.0
"""After this time without a new token, an answer counts as abandoned, whoever has its writer's number by now."""


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
