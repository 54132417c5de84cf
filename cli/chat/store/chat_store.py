"""The chats of a user: conversations, whose messages form trees, and the answers of models."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any, cast

from .conversation_index import ConversationIndex
from .database import Database
from .errors import StoreError
from .location import store_path
from .records import AnswerRecipe, Role, StoredAnswer, StoredMessage, clean_text, message_hash
from .token_packing import unpack_tokens

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
