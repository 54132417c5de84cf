"""The tables of a chat store, version by version."""

from __future__ import annotations

APPLICATION_ID = 0x67656E63
"""``genc``: marks a SQLite file as a chat store (PRAGMA application_id)."""

_TABLES = """
CREATE TABLE message (
    number INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    parent INTEGER REFERENCES message (number),
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    created REAL NOT NULL
) STRICT;
CREATE INDEX message_parent ON message (parent);
CREATE TABLE conversation (
    id TEXT PRIMARY KEY,
    name TEXT UNIQUE,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    head INTEGER REFERENCES message (number),
    settings TEXT NOT NULL
) STRICT;
CREATE TABLE conversation_message (
    conversation TEXT NOT NULL REFERENCES conversation (id),
    message INTEGER NOT NULL REFERENCES message (number),
    number INTEGER PRIMARY KEY,
    UNIQUE (conversation, message)
) STRICT;
CREATE INDEX conversation_of_message ON conversation_message (message);
CREATE TABLE answer (
    number INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL REFERENCES conversation (id),
    parent INTEGER NOT NULL REFERENCES message (number),
    message INTEGER REFERENCES message (number),
    writer TEXT NOT NULL,
    updated REAL NOT NULL,
    recipe TEXT NOT NULL,
    prompt_ids BLOB NOT NULL,
    beginning TEXT NOT NULL,
    content TEXT NOT NULL,
    token_ids BLOB NOT NULL,
    result TEXT
) STRICT;
CREATE INDEX answer_conversation ON answer (conversation);
CREATE INDEX answer_message ON answer (message);
"""
"""Messages form trees, which conversations share where their hashes agree. An answer is what was made by a model;
it grows until it has a message. ``writer``: the process that lets it grow."""

_SEARCH = """
CREATE VIRTUAL TABLE message_text USING fts5 (
    content, content='message', content_rowid='number', tokenize='trigram'
);
INSERT INTO message_text (message_text) VALUES ('rebuild');
CREATE TRIGGER message_inserted AFTER INSERT ON message BEGIN
    INSERT INTO message_text (rowid, content) VALUES (new.number, new.content);
END;
CREATE TRIGGER message_deleted AFTER DELETE ON message BEGIN
    INSERT INTO message_text (message_text, rowid, content) VALUES ('delete', old.number, old.content);
END;
"""
"""The index of `search`: any three letters in a row, so that texts without blanks between words are found too."""

_NO_TEMPLATE = "UPDATE answer SET recipe = json_remove(recipe, '$.template');"
"""The recipe of an answer had a part that nothing filled or read."""

MIGRATIONS = (_TABLES, _SEARCH, _NO_TEMPLATE)
"""Script n leads from version n to n + 1 (PRAGMA user_version). Scripts that were released never change."""
