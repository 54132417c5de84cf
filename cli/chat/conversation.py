"""A conversation: a place in a tree of messages. What is said is stored before a method returns."""

from __future__ import annotations

from typing import Any

from ...common.files import deferred_interrupts
from .answer_writer import AnswerWriter
from .conversation_tree import ConversationTree
from .failover_store import FailoverStore, Report
from .store.chat_store import ChatStore
from .store.errors import StoreError, StoreWriteError
from .store.growing_answer import finish_abandoned
from .store.records import AnswerRecipe, Role, StoredMessage


class Conversation(ConversationTree):
    """A conversation, which stands at one of its messages. Make one with `new` or `resume`.

    When the store cannot be written, as on a full disk, ``report`` is called with a sentence. The conversation
    then goes on in memory, and is stored as soon as that is possible again. Methods raise ``StoreError``. Ctrl-C
    waits until what is stored and what this object knows agree.
    """

    def __init__(self, store: ChatStore, identifier: str | None, report: Report) -> None:
        super().__init__(FailoverStore(store, identifier, report))
        self._system: str | None = None
        """The system message that the first message of the user will follow."""
        self._name: str | None = None
        self._settings: dict[str, Any] = {}
        """Name and settings of a conversation that has no message yet."""

    @classmethod
    def new(cls, store: ChatStore, report: Report) -> Conversation:
        """Begin a conversation. It is stored with its first message."""
        return cls(store, None, report)

    @classmethod
    def resume(cls, store: ChatStore, identifier: str, report: Report) -> Conversation:
        """Go on with the conversation of exactly this id.

        What was written of answers whose process was killed becomes messages.
        """
        store.summary(identifier)
        try:
            for message in finish_abandoned(store, identifier):
                size = f"{len(message.content):,} characters"
                report(f"the answer {message.hash[:8]} was cut off when gen was killed; {size} of it are stored")
        except StoreWriteError as error:
            report(f"{error}; an answer that was cut off is shown once that is possible")
        return cls(store, identifier, report)

    # What it is

    @property
    def is_stored(self) -> bool:
        """False while the store cannot be written, and if it is in memory anyway."""
        return self._store.path is not None

    def store_again(self) -> bool:
        """Store what had to stay in memory, now. Returns False if that is still not possible."""
        return self._where.store_again()

    def leave(self) -> None:
        """Store what is still in memory only, for the last time; reports it if that is not possible."""
        self._where.leave()

    @property
    def name(self) -> str | None:
        """The name that the user gave it."""
        return self._name if self.id is None else self._store.summary(self.id).name

    def rename(self, name: str | None) -> None:
        """Give it a name, by which `ChatStore.find_conversation` finds it."""
        identifier = self.id
        if identifier is None:
            self._name = name
        else:
            self._where.write(lambda store: store.rename(identifier, name))

    @property
    def settings(self) -> dict[str, Any]:
        """What `save_settings` stored."""
        return self._settings if self.id is None else self._store.settings(self.id)

    def save_settings(self, settings: dict[str, Any]) -> None:
        """Store settings with the conversation: any JSON."""
        identifier = self.id
        if identifier is None:
            self._settings = settings
        else:
            self._where.write(lambda store: store.save_settings(identifier, settings))

    # What changes it

    @property
    def system(self) -> str | None:
        """The text of the system message; None without one."""
        messages = self.messages()
        if not messages:
            return self._system
        return messages[0].content if messages[0].role == "system" else None

    @deferred_interrupts()
    def set_system(self, text: str | None) -> None:
        """Put another system message, or none, before the messages on the way to the head.

        These become another branch: what comes first in a conversation is part of what a message is.
        """
        turns = [message for message in self.messages() if message.role != "system"]
        self._system = text
        identifier = self.id
        if identifier is None:
            return

        def put(store: ChatStore) -> StoredMessage | None:
            message = self._put_system(store, identifier)
            for turn in turns:
                parent = None if message is None else message.hash
                message = store.put_message(identifier, parent, turn.role, turn.content)
            store.move_head(identifier, None if message is None else message.hash)
            return message

        self._head = self._where.write_together(put)

    def add_user(self, text: str, replaced: StoredMessage | None = None) -> StoredMessage:
        """Add a message of the user, and stand there.

        Args:
            text: the message.
            replaced: the message in whose place it is put: both then follow the same one; None: behind the head.
        """
        return self._add("user", text, replaced)

    def messages_with_user(self, text: str, replaced: StoredMessage | None = None) -> list[StoredMessage]:
        """The messages from the first one to the one that `add_user` would add. Nothing is added.

        Args:
            text: see `add_user`.
            replaced: see `add_user`.
        """
        before = self.messages() if replaced is None else self.path_to(replaced)[:-1]
        if self._head is None and self._system is not None:  # it is stored with the first message
            before = [StoredMessage("", None, "system", self._system, 0.0)]
        return [*before, StoredMessage("", None, "user", text, 0.0)]

    def add_assistant(self, text: str) -> StoredMessage:
        """Add a message of the assistant that a person wrote, and stand there."""
        return self._add("assistant", text)

    @deferred_interrupts()
    def goto(self, target: str | None) -> StoredMessage | None:
        """Stand at the message whose hash begins like this; None: before the first one. Returns it."""
        message = None if target is None else self.find(target)
        identifier = self.id
        if identifier is not None:
            self._system = self.system
            head = None if message is None else message.hash
            self._where.write_together(lambda store: store.move_head(identifier, head))
            self._head = message
        return message

    def undo(self) -> StoredMessage | None:
        """Stand before the last message of the user, and return that; None if there is none to take back."""
        last = self.last_user()
        if last is not None:
            self.goto(last.parent)
        return last

    def begin_answer(
        self, parent: StoredMessage, recipe: AnswerRecipe, prompt_ids: tuple[int, ...], beginning: str
    ) -> AnswerWriter:
        """Return what stores an answer to ``parent`` while it is made.

        Args:
            parent: the message that it answers.
            recipe: what it is made with.
            prompt_ids: the tokens that the model reads.
            beginning: the text that the model goes on from.
        """

        def stand_at(message: StoredMessage) -> None:
            self._head = message

        return AnswerWriter(self._where, parent, recipe, prompt_ids, beginning, stand_at)

    @deferred_interrupts()
    def _add(self, role: Role, text: str, replaced: StoredMessage | None = None) -> StoredMessage:
        is_first = self.id is None

        def add(store: ChatStore) -> StoredMessage:
            identifier = self._where.identifier or store.new_conversation()
            self._where.identifier = identifier
            if replaced is not None:
                return store.put_message(identifier, replaced.parent, role, text)
            before = self._head or self._put_system(store, identifier)
            return store.put_message(identifier, None if before is None else before.hash, role, text)

        try:
            self._head = message = self._where.write_together(add)
        except StoreError:
            if is_first:
                self._where.identifier = None
            raise
        if is_first and self._settings:
            self.save_settings(self._settings)
        if is_first and self._name is not None:
            self.rename(self._name)
        return message

    def _put_system(self, store: ChatStore, identifier: str) -> StoredMessage | None:
        """Add the system message, if there is one; returns it. Called inside a transaction."""
        if self._system is None:
            return None
        return store.put_message(identifier, None, "system", self._system)
