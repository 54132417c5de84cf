"""A conversation from one store to another: into memory when a disk is full, and back once it is not."""

from __future__ import annotations

from .chat_store import ChatStore


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
