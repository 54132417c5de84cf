"""Finds conversations and messages in a chat store."""

from __future__ import annotations

from typing import Any

from .database import Database
from .errors import StoreError
from .records import ConversationSummary, SearchHit, StoredMessage
from .search import excerpt, search_condition, search_terms

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
        terms = search_terms(text)
        if not terms:
            raise StoreError("--search: the text to search for is empty")
        condition, values = search_condition(terms)  # no text of the user is in the condition
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
            hits.append(SearchHit(self.summary(conversation), message, excerpt(message.content, terms)))
        return hits


def _summary(row: tuple[Any, ...]) -> ConversationSummary:
    identifier, name, created, updated, count, text, model = row
    title = " ".join(str(text or "").split())
    return ConversationSummary(identifier, name, title, created, updated, count, model)
