"""An answer while it is made: what is there of it is stored again and again, so that a kill loses little."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .token_packing import pack_tokens, unpack_tokens

if TYPE_CHECKING:
    from .chat_store import ChatStore
    from .records import AnswerRecipe, StoredMessage

_FORGOTTEN_SECONDS = 600.0
"""After this time without a new token, an answer counts as abandoned, whoever has its writer's number by now."""


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
                    conversation, this_process(), time.time(), json.dumps(asdict(recipe)), pack_tokens(prompt_ids),
                    beginning, beginning, pack_tokens(()), parent,
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
            (conversation, this_process()),
        )


def this_process() -> str:
    """What names this process in the store."""
    return f"{platform.node()}:{os.getpid()}"


def _is_alive(writer: str) -> bool:
    """True if the process of this name may still run; one of another machine always may."""
    machine, _, number = writer.rpartition(":")
    if machine != platform.node():
        return True
    if writer == this_process():
        return False  # it was left by an exception: a process makes one answer at a time, and finishes it
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        return True
    return True
