"""The SQLite file of a chat store: the tables of each version, and transactions that write to them.

One file contains all conversations of a user. This module knows nothing about models or terminals.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .records import StoreError, StoreWriteError

APPLICATION_ID = 0x67656E63  # ``genc``: marks a SQLite file as a chat store (PRAGMA application_id)

# The tables of version 1. Messages form trees. Conversations share messages with the same hash. An answer is what
# a model generated. While it is in progress, it has no message; ``writer`` is the process that generates it.
_CREATE_TABLES = """
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

# Version 2: the index of `ChatStore.search`. It contains all sequences of three characters, so that it also finds
# words in languages that write no spaces between words.
_SEARCH_INDEX = """
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

# Version 3: an unused field of the recipe is removed
_REMOVE_TEMPLATE_FIELD = "UPDATE answer SET recipe = json_remove(recipe, '$.template');"

# Script n converts version n to version n + 1 (PRAGMA user_version). Released scripts never change.
MIGRATIONS = (_CREATE_TABLES, _SEARCH_INDEX, _REMOVE_TEMPLATE_FIELD)


# maximum time that one chat waits for another one that is writing; a write takes milliseconds
_MAX_LOCK_WAIT_SECONDS = 10.0
# the first version with strict tables; the index of three characters needs version 3.34
_MIN_SQLITE_VERSION = (3, 37)


class Database:
    """A connection to a SQLite file, or to a database in memory. It is used by one thread at a time."""

    # Every method raises ``StoreError``, and ``StoreWriteError`` for data that cannot be written.

    def __init__(self, path: Path | None) -> None:
        self.path = path  # None if the database is in memory
        if sqlite3.sqlite_version_info < _MIN_SQLITE_VERSION:
            min_version = ".".join(map(str, _MIN_SQLITE_VERSION))
            raise StoreError(f"chats need SQLite {min_version} or later; this Python has {sqlite3.sqlite_version}")
        if path is not None:
            _make_private_file(path)
        with self._sqlite_errors_described():
            self._connection = sqlite3.connect(
                path or ":memory:", timeout=_MAX_LOCK_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._sqlite_errors_described():
                self._prepare()
        except StoreWriteError as error:
            self._connection.close()
            raise StoreError(f"{error}; --no-log chats without a store") from None
        except BaseException:
            self._connection.close()
            raise

    @property
    def name(self) -> str:
        return "memory" if self.path is None else str(self.path)

    def _prepare(self) -> None:
        """Check that the file is a chat store, update its tables to this version, and set how it is written."""
        run = self._connection.execute
        run("BEGIN")  # so that all queries see one state, even if another chat is creating its tables
        try:
            table_count = run("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            application_id = self._pragma("application_id")
            version = self._pragma("user_version")
        finally:
            run("COMMIT")
        is_new = table_count == 0 and application_id == 0 and version == 0
        if not is_new and application_id != APPLICATION_ID:
            raise StoreError(f"{self.name}: this SQLite file is not a chat store of gen; move it away")
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.name}: a newer logitsmith wrote this chat store (version {version}; this one reads up to"
                f" {len(MIGRATIONS)}); update logitsmith, or chat without a store with --no-log"
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA foreign_keys = ON")
        run("PRAGMA secure_delete = ON")
        if version < len(MIGRATIONS):
            self._migrate()

    def _migrate(self) -> None:
        with self.transaction():
            version = self._pragma("user_version")  # another chat may have updated the file meanwhile
            for script_number in range(version, len(MIGRATIONS)):
                for statement in _statements(MIGRATIONS[script_number]):
                    self._connection.execute(statement)
            self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._connection.execute(f"PRAGMA user_version = {max(version, len(MIGRATIONS))}")

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def transaction(self, *, is_durable: bool = True) -> Iterator[None]:
        """Execute the statements inside the block as one transaction."""
        # ``is_durable``: whether a power failure cannot undo the transaction.
        synchronous = "FULL" if is_durable else "NORMAL"
        with self._sqlite_errors_described():
            self._connection.execute(f"PRAGMA synchronous = {synchronous}")
            try:  # an exception of a signal may be raised at any line
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(statement, values)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._sqlite_errors_described():
            return self._connection.execute(query, values).fetchall()

    def first_row(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        rows = self.rows(query, values)
        return rows[0] if rows else None

    def erase_deleted_data(self) -> None:
        """Remove deleted data from the file, its index and its write-ahead log."""
        with self._sqlite_errors_described():
            self._connection.execute("INSERT INTO message_text (message_text) VALUES ('optimize')")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _sqlite_errors_described(self) -> Iterator[None]:
        """While inside, turn SQLite's errors into ``StoreError`` with the name of the database."""
        try:
            yield
        except sqlite3.Error as error:
            raise _store_error(error, self.name) from None


DELETED_CHAT_ERROR = "this chat was deleted meanwhile and cannot be continued; start a new one"

_LOCKED = f"another program has locked the chat store for {_MAX_LOCK_WAIT_SECONDS:g} seconds"
_DAMAGED = (
    "the chat store is damaged; move it away to start a new one (sqlite3 FILE .recover restores what it can)"
)

# messages for the codes of SQLite's errors (https://sqlite.org/rescode.html)
_WRITE_ERRORS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: "the chat store may not be written",
    sqlite3.SQLITE_IOERR: "the disk could not be written",
}
_OTHER_ERRORS = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CONSTRAINT: DELETED_CHAT_ERROR,
}
_PRIMARY_CODE_MASK = 0xFF  # the last byte of an extended code is the primary code


def _store_error(error: sqlite3.Error, database_name: str) -> StoreError:
    """Return the ``StoreError`` with which this module replaces an error of SQLite."""
    # Errors that Python's module raises itself have no code.
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE_MASK
    if code in _WRITE_ERRORS:
        return StoreWriteError(f"{database_name}: {_WRITE_ERRORS[code]}")
    message = _OTHER_ERRORS.get(code, f"the chat store cannot be used ({error})")
    return StoreError(f"{database_name}: {message}")


def _make_private_file(path: Path) -> None:
    """Create the file if it does not exist, and make it accessible to its owner only."""
    # SQLite gives its write-ahead log the same mode.
    try:
        is_folder_new = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_folder_new:
            path.parent.chmod(0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            can_others_access = os.fstat(descriptor).st_mode & 0o077 != 0
            if can_others_access:
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(
            f"{path}: the chat store cannot be opened ({error.strerror}); chat without a store with --no-log"
        ) from None


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script."""
    # SQLite's `executescript` cannot be used, because it would end the open transaction.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def store_path() -> Path:
    """Return ``$XDG_DATA_HOME/logitsmith/chats.db`` or ``~/.local/share/logitsmith/chats.db``."""
    # Raises ``StoreError``.
    try:
        home: Path | None = Path.home()
    except RuntimeError:
        home = None
    data_folder = _data_home(os.environ, home)
    if data_folder is None:
        raise StoreError("there is no home folder to store chats in; set XDG_DATA_HOME, or use --no-log")
    return data_folder / "logitsmith" / "chats.db"


def _data_home(environment: Mapping[str, str], home: Path | None) -> Path | None:
    configured_folder = Path(environment.get("XDG_DATA_HOME", ""))
    if configured_folder.is_absolute():  # the XDG specification requires that relative paths are ignored
        return configured_folder
    return None if home is None else home / ".local" / "share"
