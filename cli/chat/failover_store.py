"""Keeps a conversation going when its store cannot be written, such as on a full disk."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from ...common.text import count_noun
from .store.chat_store import ChatStore
from .store.copying import copy_conversation
from .store.errors import StoreWriteError
from .store.growing_answer import discard_growing

Report = Callable[[str], object]
"""Called with a sentence that the user should see."""

_Result = TypeVar("_Result")
_SECONDS_BETWEEN_TRIALS = 2.0


class FailoverStore:
    """The store of one conversation: its file, or memory while that cannot be written.

    Attributes: ``current``, where the conversation is now; ``identifier``, the conversation's id, None before its
    first message.
    """

    def __init__(self, store: ChatStore, identifier: str | None, report: Report) -> None:
        self._file_store = self.current = store
        self.identifier = identifier
        self._report = report
        self._next_trial = 0.0

    def write(self, action: Callable[[ChatStore], _Result]) -> _Result:
        """Return what ``action`` returns, which writes to the store that it is given. Raises ``StoreError``."""
        if monotonic() >= self._next_trial:
            self.store_again()
        before = self.identifier
        try:
            return action(self.current)
        except StoreWriteError as error:
            self.identifier = before
            if self.current is not self._file_store or self.current.path is None:
                raise
            self._go_on_in_memory(error)
            return action(self.current)

    def write_together(self, action: Callable[[ChatStore], _Result]) -> _Result:
        """Do as `write`, as one transaction."""

        def write(store: ChatStore) -> _Result:
            with store.database.writing():
                return action(store)

        return self.write(write)

    def _go_on_in_memory(self, error: StoreWriteError) -> None:
        memory = ChatStore.in_memory()
        if self.identifier is not None:
            copy_conversation(self._file_store, memory, self.identifier)
        self.current = memory
        self._next_trial = monotonic() + _SECONDS_BETWEEN_TRIALS
        self._report(f"{error}; the chat goes on, and is stored once that is possible")

    def store_again(self) -> bool:
        """Store what had to stay in memory. Returns False if that is still not possible."""
        if self.current is self._file_store:
            return True
        try:
            if self.identifier is not None:
                copy_conversation(self.current, self._file_store, self.identifier)
                discard_growing(self._file_store, self.identifier)
        except StoreWriteError:
            self._next_trial = monotonic() + _SECONDS_BETWEEN_TRIALS
            return False
        self.current.close()
        self.current = self._file_store
        self._report("the chat is stored again")
        return True

    def leave(self) -> None:
        """Store what is in memory for the last time; reports how much of it is lost."""
        if self.store_again() or self.identifier is None:
            return
        stored = {message.hash for message in self._file_store.messages(self.identifier)}
        lost = sum(message.hash not in stored for message in self.current.messages(self.identifier))
        self.current.close()
        self._report(f"{self._file_store.path}: {count_noun(lost, 'message')} of this chat could not be stored")
