"""Stores an answer of a conversation while it grows, wherever that conversation is stored by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .failover_store import FailoverStore
from .store.chat_store import ChatStore
from .store.growing_answer import GrowingAnswer
from .store.records import AnswerRecipe, StoredMessage

_Result = TypeVar("_Result")


class AnswerWriter:
    """An answer that is being made. It is in the store from the first token on."""

    def __init__(
        self,
        store: FailoverStore,
        parent: StoredMessage,
        recipe: AnswerRecipe,
        prompt_ids: tuple[int, ...],
        beginning: str,
        on_finish: Callable[[StoredMessage], object],
    ) -> None:
        """Begin an answer.

        Args:
            store: where its conversation is.
            parent: the message that it answers.
            recipe: what it is made with.
            prompt_ids: the tokens that the model reads.
            beginning: the text that the model goes on from.
            on_finish: called with its message.
        """
        self._store, self._on_finish = store, on_finish
        self._fields = (parent.hash, recipe, prompt_ids, beginning)
        self._growing = store.write(self._begin)

    def grow(self, content: str, token_ids: list[int]) -> None:
        """Store what is there. ``content``: the whole text, its beginning included."""
        self._write(lambda growing: growing.grow(content, token_ids))

    def finish(self, content: str, token_ids: list[int], result: dict[str, Any]) -> StoredMessage:
        """Make it a message, at which the conversation then stands."""
        message = self._write(lambda growing: growing.finish(content, token_ids, result))
        self._on_finish(message)
        return message

    def _begin(self, store: ChatStore) -> GrowingAnswer:
        return GrowingAnswer(store, str(self._store.identifier), *self._fields)

    def _write(self, action: Callable[[GrowingAnswer], _Result]) -> _Result:
        def write(store: ChatStore) -> _Result:
            if not self._growing.is_in(store):
                self._growing = self._begin(store)
            return action(self._growing)

        return self._store.write(write)
