"""The messages of a conversation as a tree, and the one at which the conversation stands."""

from __future__ import annotations

from .failover_store import FailoverStore
from .store.chat_store import ChatStore
from .store.errors import StoreError
from .store.records import Role, StoredAnswer, StoredMessage


class ConversationTree:
    """The messages of a conversation. Methods raise ``StoreError``."""

    def __init__(self, where: FailoverStore) -> None:
        """Stand where the store says that the conversation stands. ``where``: the store of the conversation."""
        self._where = where
        self._head = None if where.identifier is None else where.current.head(where.identifier)
        """The store has it for later sessions; another one with the same conversation does not move this one."""

    @property
    def id(self) -> str | None:
        """Its id; None before its first message."""
        return self._where.identifier

    @property
    def _store(self) -> ChatStore:
        return self._where.current

    @property
    def head(self) -> StoredMessage | None:
        """The message at which it stands; None before the first one."""
        return self._head

    def messages(self) -> list[StoredMessage]:
        """The messages from the first one to the head."""
        return [] if self._head is None else self.path_to(self._head)

    def path_to(self, message: StoredMessage) -> list[StoredMessage]:
        """The messages from the first one to this one."""
        return self._store.path_to(message.hash)

    def all_messages(self) -> list[StoredMessage]:
        """The messages of all branches, in the order in which they came."""
        return [] if self.id is None else self._store.messages(self.id)

    def last_user(self) -> StoredMessage | None:
        """The last message of the user on the way to the head."""
        return self._last("user")

    def last_answer(self) -> StoredMessage | None:
        """The last message of the assistant on the way to the head."""
        return self._last("assistant")

    def _last(self, role: Role) -> StoredMessage | None:
        return next((message for message in reversed(self.messages()) if message.role == role), None)

    def open_message(self) -> StoredMessage | None:
        """The message of the user at the head, which has no answer behind it yet; None at another one."""
        return self._head if self._head is not None and self._head.role == "user" else None

    def children(self, message: StoredMessage | None) -> list[StoredMessage]:
        """The messages that follow a message, or that begin the conversation, the oldest first."""
        parent = None if message is None else message.hash
        return [other for other in self.all_messages() if other.parent == parent]

    def siblings(self, message: StoredMessage) -> list[StoredMessage]:
        """The messages in the place of this one, and itself."""
        return [other for other in self.all_messages() if other.parent == message.parent]

    def answer_count(self, message: StoredMessage) -> int:
        """Return the number of answers made to a message, including those with the same text."""
        made = 0 if self.id is None else self._store.answer_count(message.hash, self.id)
        return max(made, len(self.children(message)))

    def find(self, prefix: str) -> StoredMessage:
        """The message whose hash begins like this."""
        found = [message for message in self.all_messages() if message.hash.startswith(prefix.lower())]
        if not found or not prefix:
            raise StoreError(f"there is no message {prefix!r} in this conversation")
        if len(found) > 1:
            raise StoreError(f"{len(found)} messages begin with {prefix!r}; give more of it")
        return found[0]

    def answer_record(self, message: StoredMessage) -> StoredAnswer | None:
        """How a message of the assistant was made; None for one that a person wrote."""
        return None if self.id is None else self._store.answer(message.hash, self.id)
