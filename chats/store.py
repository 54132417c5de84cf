"""The store of chats: conversations, whose messages form trees, and the answers of models.

An open `Conversation` is entirely in memory, and `ChatStore.save` writes its changes. An answer is stored
periodically while it is generated, so that little is lost if the process is killed.
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

from .database import DELETED_CHAT_ERROR, Database, store_path
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

# the fields of a `ConversationSummary`, in this order
_SUMMARY_QUERY = """
SELECT id, name, created, updated,
    (SELECT count(*) FROM conversation_message WHERE conversation = id),
    (SELECT substr(content, 1, 200) FROM conversation_message AS link JOIN message ON message.number = link.message
        WHERE link.conversation = id AND role = 'user' ORDER BY link.number LIMIT 1),
    (SELECT json_extract(recipe, '$.model.name') FROM answer WHERE answer.conversation = id
        ORDER BY number DESC LIMIT 1)
FROM conversation """
_MIN_ID_PREFIX_CHARACTERS = 2  # minimum length of a text that is accepted as the beginning of an id


class ChatStore:
    """A store of chats, opened with `open` or `in_memory`, and closed with `close`."""

    # Every method raises ``StoreError``, and ``StoreWriteError`` for data that cannot be written.

    def __init__(self, database: Database) -> None:
        self.database = database  # the database with the store's tables

    @classmethod
    def open(cls, path: Path | None = None) -> ChatStore:
        """Open the store in this file, which is created if it does not exist; None opens the user's store."""
        return cls(Database(path or store_path()))

    @classmethod
    def in_memory(cls) -> ChatStore:
        return cls(Database(None))

    @property
    def path(self) -> Path | None:
        """File of the store; None if the store is in memory."""
        return self.database.path

    def close(self) -> None:
        self.database.close()

    # Reading

    def list_conversations(self, limit: int | None = None) -> list[ConversationSummary]:
        """Return conversations, sorted by the time of the last change, the latest first."""
        # ``limit``: maximum number; None: all. SQLite returns all rows for a limit of -1.
        max_rows = -1 if limit is None else limit
        rows = self.database.rows(f"{_SUMMARY_QUERY} ORDER BY updated DESC LIMIT ?", (max_rows,))
        return [_summary_from_row(row) for row in rows]

    def summary(self, conversation_id: str) -> ConversationSummary:
        row = self.database.first_row(f"{_SUMMARY_QUERY} WHERE id = ?", (conversation_id,))
        if row is None:
            raise StoreError(f"there is no conversation {conversation_id}")
        return _summary_from_row(row)

    def find_conversation(self, text: str | None = None) -> ConversationSummary:
        """Return the conversation whose name or id is this text, or whose id begins with it."""
        # None: the conversation that was changed last.
        if text is None:
            latest_conversations = self.list_conversations(1)
            if not latest_conversations:
                raise StoreError(f"{self.database.name}: there is no conversation yet")
            return latest_conversations[0]
        matching_rows = self.database.rows(f"{_SUMMARY_QUERY} WHERE name = ? OR id = ?", (text, text.lower()))
        if not matching_rows and len(text) >= _MIN_ID_PREFIX_CHARACTERS:
            matching_rows = self.database.rows(
                f"{_SUMMARY_QUERY} WHERE substr(id, 1, ?) = ? ORDER BY updated DESC", (len(text), text.lower())
            )
        if not matching_rows:
            raise StoreError(f"there is no conversation {text!r}; gen chat --list shows all")
        if len(matching_rows) > 1:
            ids = ", ".join(str(row[0]) for row in matching_rows[:5])
            raise StoreError(
                f"{text!r} begins the ids of {len(matching_rows)} conversations: {ids}; give more characters"
            )
        return _summary_from_row(matching_rows[0])

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """Return messages that contain all words of a text, newest first. Case is ignored."""
        terms = text.split()
        if not terms:
            raise StoreError("--search: the text to search for is empty")
        condition, values = _search_condition(terms)  # contains only placeholders, no text of the user
        rows = self.database.rows(
            "SELECT message.hash, parent.hash, message.role, message.content, message.created,"  # noqa: S608
            " max(link.conversation) FROM message LEFT JOIN message AS parent ON parent.number = message.parent"
            " JOIN conversation_message AS link ON link.message = message.number"
            f" WHERE {condition} GROUP BY message.number"
            " ORDER BY message.created DESC, message.number DESC LIMIT ?",
            (*values, limit),
        )
        hits = []
        for *fields, conversation_id in rows:
            message = StoredMessage(*fields)
            hits.append(SearchHit(self.summary(conversation_id), message, _make_excerpt(message.content, terms)))
        return hits

    def settings(self, conversation_id: str) -> dict[str, Any]:
        row = self.database.first_row("SELECT settings FROM conversation WHERE id = ?", (conversation_id,))
        return {} if row is None else cast(dict[str, Any], json.loads(row[0]))

    def current_message_hash(self, conversation_id: str) -> str | None:
        """Return the hash of a conversation's current message; None before the first message."""
        row = self.database.first_row(
            "SELECT hash FROM conversation JOIN message ON message.number = head WHERE id = ?", (conversation_id,)
        )
        return None if row is None else str(row[0])

    def messages(self, conversation_id: str) -> list[StoredMessage]:
        rows = self.database.rows(
            "SELECT message.hash, parent.hash, message.role, message.content, message.created FROM message"
            " LEFT JOIN message AS parent ON parent.number = message.parent"
            " JOIN conversation_message AS link ON link.message = message.number"
            " WHERE link.conversation = ? ORDER BY link.number",
            (conversation_id,),
        )
        return [StoredMessage(*row) for row in rows]

    def answer_parents(self, conversation_id: str) -> dict[int, str]:
        """Return, for each answer in a conversation by its number, the hash of the message that is answered."""
        rows = self.database.rows(
            "SELECT answer.number, hash FROM answer JOIN message ON message.number = answer.parent"
            " WHERE conversation = ?",
            (conversation_id,),
        )
        return dict(rows)

    def answer(self, message_hash: str, conversation_id: str) -> StoredAnswer | None:
        """Return how a message was generated, by the last such answer; None if a person wrote it."""
        row = self.database.first_row(
            "SELECT answer.number, message.hash, parent.hash, recipe, prompt_ids, beginning, answer.content,"
            " token_ids, result FROM answer JOIN message ON message.number = answer.message"
            " JOIN message AS parent ON parent.number = answer.parent WHERE message.hash = ?"
            " ORDER BY answer.conversation = ? DESC, answer.number DESC LIMIT 1",
            (message_hash, conversation_id),
        )
        return None if row is None else _answer_from_row(row)

    # Writing

    def save(self, conversation_id: str, changes: Changes, *, is_durable: bool = True) -> None:
        """Write the changes of a conversation in one transaction, forced to disk if ``is_durable``."""
        fields = changes.fields
        with self.database.transaction(is_durable=is_durable):
            if "created" in fields:
                self.add_conversation(conversation_id, fields["created"])
            elif self.database.first_row("SELECT 1 FROM conversation WHERE id = ?", (conversation_id,)) is None:
                raise StoreError(DELETED_CHAT_ERROR)
            for message in changes.messages.values():
                self.add_message(conversation_id, message)
            for answer in changes.answers.values():
                self._write_answer(conversation_id, answer)
            if "current_message" in fields:
                self.set_current_message(conversation_id, fields["current_message"])
            if "name" in fields:  # IGNORE: another process may have used the name since `check_name`
                values = (fields["name"], conversation_id)
                self.database.run("UPDATE OR IGNORE conversation SET name = ? WHERE id = ?", values)
            if "settings" in fields:
                values = (json.dumps(fields["settings"]), conversation_id)
                self.database.run("UPDATE conversation SET settings = ? WHERE id = ?", values)

    def check_name(self, conversation_id: str | None, name: str | None) -> None:
        """Raise ``StoreError`` if another conversation has this name."""
        if name is None:
            return
        row = self.database.first_row("SELECT id FROM conversation WHERE name = ?", (name,))
        owner_id = None if row is None else row[0]
        if owner_id is not None and owner_id != conversation_id:
            raise StoreError(f"the conversation {owner_id} has the name {name!r}; choose another one")

    def add_conversation(self, conversation_id: str, created: float) -> None:
        self.database.run(
            "INSERT OR IGNORE INTO conversation (id, created, updated, settings) VALUES (?, ?, ?, '{}')",
            (conversation_id, created, created),
        )

    def add_message(self, conversation_id: str, message: StoredMessage) -> None:
        """Add a message unless the same one is already stored. Called inside `Database.transaction`."""
        self.database.run(
            "INSERT OR IGNORE INTO message (hash, parent, role, content, created)"
            " VALUES (?, (SELECT number FROM message WHERE hash = ?), ?, ?, ?)",
            (message.hash, message.parent_hash, message.role, message.content, message.created),
        )
        self.database.run(
            "INSERT OR IGNORE INTO conversation_message (conversation, message)"
            " SELECT ?, number FROM message WHERE hash = ?",
            (conversation_id, message.hash),
        )

    def set_current_message(self, conversation_id: str, message_hash: str | None) -> None:
        self.database.run(
            "UPDATE conversation SET updated = ?, head = (SELECT number FROM message WHERE hash = ?) WHERE id = ?",
            (time.time(), message_hash, conversation_id),
        )

    def _write_answer(self, conversation_id: str, answer: StoredAnswer) -> None:
        token_ids = pack_tokens(answer.token_ids)
        result = None if answer.result is None else json.dumps(answer.result)
        updated_row = self.database.first_row(
            "UPDATE answer SET content = ?, token_ids = ?, updated = ?, result = ?,"
            " message = coalesce((SELECT number FROM message WHERE hash = ?), message)"
            " WHERE number = ? RETURNING number",
            (answer.content, token_ids, time.time(), result, answer.message_hash, answer.number),
        )
        if updated_row is None:
            self.database.run(
                "INSERT INTO answer (number, conversation, parent, message, writer, updated, recipe, prompt_ids,"
                " beginning, content, token_ids, result) SELECT ?, ?, number,"
                " (SELECT number FROM message WHERE hash = ?), ?, ?, ?, ?, ?, ?, ?, ? FROM message WHERE hash = ?",
                (
                    answer.number, conversation_id, answer.message_hash, _process_name(), time.time(),
                    json.dumps(asdict(answer.recipe)), pack_tokens(answer.prompt_ids), answer.beginning,
                    answer.content, token_ids, result, answer.parent_hash,
                ),
            )  # fmt: skip

    def recover_abandoned_answers(self, conversation_id: str) -> list[StoredMessage]:
        """Turn the stored parts of answers whose process was killed into messages, and return the messages."""
        # An answer without tokens is removed. If the answered message is the current message, its answer becomes
        # the current message.
        query = (
            "SELECT answer.number, writer, answer.updated, answer.content, token_ids, hash FROM answer"
            " JOIN message ON message.number = answer.parent WHERE conversation = ? AND answer.message IS NULL"
        )
        if not self.database.first_row(query, (conversation_id,)):
            return []
        recovered_messages = []
        with self.database.transaction():
            current_hash = self.current_message_hash(conversation_id)
            rows = self.database.rows(query, (conversation_id,))
            for number, writer, updated, content, token_ids, parent_hash in rows:
                is_in_progress = _is_process_alive(writer) and time.time() - updated < _ABANDONED_AFTER_SECONDS
                if is_in_progress:
                    continue
                if not unpack_tokens(token_ids):
                    self.database.run("DELETE FROM answer WHERE number = ?", (number,))
                    continue
                message = StoredMessage.new(parent_hash, "assistant", content)
                self.add_message(conversation_id, message)
                if current_hash == parent_hash:
                    current_hash = message.hash
                self.set_current_message(conversation_id, current_hash)
                self.database.run(
                    "UPDATE answer SET message = (SELECT number FROM message WHERE hash = ?) WHERE number = ?",
                    (message.hash, number),
                )
                recovered_messages.append(message)
        return recovered_messages

    def delete(self, conversation_id: str) -> None:
        """Delete the conversation with this id, and its messages that no other conversation contains."""
        self.summary(conversation_id)
        database = self.database
        with database.transaction():
            database.run("DELETE FROM answer WHERE conversation = ?", (conversation_id,))
            database.run("DELETE FROM conversation_message WHERE conversation = ?", (conversation_id,))
            database.run("DELETE FROM conversation WHERE id = ?", (conversation_id,))
            # No remaining message follows a deleted one: a conversation with a message contains all messages
            # before it.
            database.run("PRAGMA defer_foreign_keys = ON")
            database.run("DELETE FROM message WHERE number NOT IN (SELECT message FROM conversation_message)")
        database.erase_deleted_data()


def _summary_from_row(row: tuple[Any, ...]) -> ConversationSummary:
    conversation_id, name, created, updated, message_count, text, model = row
    title = " ".join(str(text or "").split())
    return ConversationSummary(conversation_id, name, title, created, updated, message_count, model)


# Minimum length of words that the search index finds. For shorter words, every message is read.
_MIN_INDEXED_CHARACTERS = 3


def _search_condition(terms: Sequence[str]) -> tuple[str, list[str]]:
    """Return an SQL condition for messages that contain all words, and the values of its placeholders."""
    indexed_terms = [term for term in terms if len(term) >= _MIN_INDEXED_CHARACTERS]
    short_terms = [term for term in terms if len(term) < _MIN_INDEXED_CHARACTERS]
    conditions = []
    values = []
    if indexed_terms:
        conditions.append("message.number IN (SELECT rowid FROM message_text WHERE message_text MATCH ?)")
        values.append(" ".join(_fts_string(term) for term in indexed_terms))
    for term in short_terms:
        conditions.append("message.content LIKE ? ESCAPE '\\'")
        values.append(f"%{_escaped_for_like(term)}%")
    return " AND ".join(conditions), values


def _fts_string(term: str) -> str:
    """Return a word as a string in the query language of SQLite's full-text search."""
    escaped_term = term.replace('"', '""')
    return f'"{escaped_term}"'


def _escaped_for_like(term: str) -> str:
    r"""Return a word for SQL's LIKE, with a backslash before the wildcards ``%`` and ``_``, and before ``\``."""
    return re.sub(r"([\\%_])", r"\\\1", term)


_MAX_EXCERPT_CHARACTERS = 80


def _make_excerpt(content: str, terms: Sequence[str]) -> str:
    """Return the text around the first of the words, on one line."""
    line = " ".join(content.split())
    any_term = "|".join(re.escape(term) for term in terms)
    match = re.search(any_term, line, re.IGNORECASE)
    match_start = 0 if match is None else match.start()
    start = max(0, match_start - _MAX_EXCERPT_CHARACTERS // 2)
    end = start + _MAX_EXCERPT_CHARACTERS
    ellipsis_before = "…" if start > 0 else ""
    ellipsis_after = "…" if end < len(line) else ""
    return f"{ellipsis_before}{line[start:end]}{ellipsis_after}"


def _answer_from_row(row: tuple[Any, ...]) -> StoredAnswer:
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


# After this time without a new token, an answer counts as abandoned, even if its process seems to run
_ABANDONED_AFTER_SECONDS = 600.0


def _process_name() -> str:
    """Return the name of this process in the store."""
    return f"{platform.node()}:{os.getpid()}"


def _is_process_alive(writer: str) -> bool:
    """Return whether the process with this name may still be running."""
    machine, _, process_id = writer.rpartition(":")
    if machine != platform.node():  # a process on another machine cannot be checked
        return True
    if writer == _process_name():
        return False  # an exception ended the answer: a process generates only one answer at a time
    try:
        os.kill(int(process_id), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        return True
    return True
