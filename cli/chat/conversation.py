"""A conversation: a place in a tree of messages. What is said is stored before a method returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .store import (
    AnswerRecipe,
    ChatStore,
    Role,
    StoredAnswer,
    StoredMessage,
    StoreError,
    StoreWriteError,
    copy_conversation,
    finish_abandoned,
)
from .store.growing_answer import GrowingAnswer

_Result = TypeVar("_Result")
Report = Callable[[str], object]


class Conversation:
    """A conversation, which stands at one of its messages. Make one with `new` or `resume`.

    When the store cannot be written, as on a full disk, ``report`` is called with a sentence. The conversation
    then goes on in memory, and is stored as soon as that is possible again. Methods raise ``StoreError``.
    """

    def __init__(self, store: ChatStore, identifier: str | None, report: Report) -> None:
        self._file_store, self._store = store, store
        self._id = identifier
        self._report = report
        self._system: str | None = None
        """The system message that the first message of the user will follow."""
        self._unsaved: tuple[str | None, dict[str, Any] | None] = (None, None)
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
        for message in finish_abandoned(store, identifier):
            size = f"{len(message.content):,} characters"
            report(f"the answer {message.hash[:8]} was cut off when gen was killed; {size} of it are stored")
        return cls(store, identifier, report)

    # What it is

    @property
    def id(self) -> str | None:
        """Its id; None before its first message."""
        return self._id

    @property
    def is_stored(self) -> bool:
        """False while the store cannot be written, and if it is in memory anyway."""
        return self._store.path is not None

    @property
    def name(self) -> str | None:
        """The name that the user gave it."""
        return self._unsaved[0] if self._id is None else self._store.summary(self._id).name

    def rename(self, name: str | None) -> None:
        """Give it a name, by which `ChatStore.find_conversation` finds it."""
        if self._id is None:
            self._unsaved = (name, self._unsaved[1])
        else:
            identifier = self._id
            self._write(lambda: self._store.rename(identifier, name))

    @property
    def settings(self) -> dict[str, Any]:
        """What `save_settings` stored."""
        return self._unsaved[1] or {} if self._id is None else self._store.settings(self._id)

    def save_settings(self, settings: dict[str, Any]) -> None:
        """Store settings with the conversation: any JSON."""
        if self._id is None:
            self._unsaved = (self._unsaved[0], settings)
        else:
            identifier = self._id
            self._write(lambda: self._store.save_settings(identifier, settings))

    # Where it is

    @property
    def head(self) -> StoredMessage | None:
        """The message at which it stands; None before the first one."""
        return None if self._id is None else self._store.head(self._id)

    def messages(self) -> list[StoredMessage]:
        """The messages from the first one to the head."""
        head = self.head
        return [] if head is None else self._store.path_to(head.hash)

    def path_to(self, message: StoredMessage) -> list[StoredMessage]:
        """The messages from the first one to this one."""
        return self._store.path_to(message.hash)

    def all_messages(self) -> list[StoredMessage]:
        """The messages of all branches, in the order in which they came."""
        return [] if self._id is None else self._store.messages(self._id)

    def last(self, role: Role) -> StoredMessage | None:
        """The last message of this role on the way to the head."""
        return next((message for message in reversed(self.messages()) if message.role == role), None)

    def last_user(self) -> StoredMessage | None:
        """The last message of the user on the way to the head."""
        return self.last("user")

    def last_answer(self) -> StoredMessage | None:
        """The last message of the assistant on the way to the head."""
        return self.last("assistant")

    def children(self, message: StoredMessage | None) -> list[StoredMessage]:
        """The messages that follow a message, or that begin the conversation, the oldest first."""
        parent = None if message is None else message.hash
        return [other for other in self.all_messages() if other.parent == parent]

    def siblings(self, message: StoredMessage) -> list[StoredMessage]:
        """The messages in the place of this one, and itself."""
        return [other for other in self.all_messages() if other.parent == message.parent]

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
        return None if self._id is None else self._store.answer(message.hash, self._id)

    # What changes it

    @property
    def system(self) -> str | None:
        """The text of the system message; None without one."""
        messages = self.messages()
        if not messages:
            return self._system
        return messages[0].content if messages[0].role == "system" else None

    def set_system(self, text: str | None) -> None:
        """Put another system message, or none, before the messages on the way to the head.

        These become another branch: what comes first in a conversation is part of what a message is.
        """
        turns = [message for message in self.messages() if message.role != "system"]
        self._system = text
        if self._id is None:
            return
        identifier = self._id

        def put() -> None:
            parent = self._put_system()
            for turn in turns:
                parent = self._store.put_message(identifier, parent, turn.role, turn.content).hash
            if parent is None:
                self._store.move_head(identifier, None)

        self._write_in_transaction(put)

    def add_user(self, text: str) -> StoredMessage:
        """Add a message of the user behind the head, and stand there."""
        return self._add("user", text)

    def add_assistant(self, text: str) -> StoredMessage:
        """Add a message of the assistant that a person wrote, and stand there."""
        return self._add("assistant", text)

    def goto(self, target: str | None) -> StoredMessage | None:
        """Stand at the message whose hash begins like this; None: before the first one. Returns it."""
        if self._id is None:
            if target is not None:
                raise StoreError(f"there is no message {target!r} in this conversation")
            return None
        identifier, message = self._id, None if target is None else self.find(target)
        self._system = self.system
        self._write_in_transaction(
            lambda: self._store.move_head(identifier, None if message is None else message.hash)
        )
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
        if self._id is None:
            raise StoreError("there is no message to answer")
        identifier = self._id
        return AnswerWriter(
            self, lambda: GrowingAnswer(self._store, identifier, parent.hash, recipe, prompt_ids, beginning)
        )

    def _add(self, role: Role, text: str) -> StoredMessage:
        def add() -> StoredMessage:
            if self._id is None:
                self._id = self._store.new_conversation()
            head = self._store.head(self._id)
            parent = self._put_system() if head is None else head.hash
            return self._store.put_message(self._id, parent, role, text)

        began = self._id is None
        try:
            message = self._write_in_transaction(add)
        except StoreError:
            if began:
                self._id = None
            raise
        if began:
            name, settings = self._unsaved
            if name is not None:
                self.rename(name)
            if settings is not None:
                self.save_settings(settings)
        return message

    def _put_system(self) -> str | None:
        """Add the system message, if there is one; returns its hash. Called inside a transaction."""
        if self._system is None or self._id is None:
            return None
        return self._store.put_message(self._id, None, "system", self._system).hash

    # How it is stored

    def _write_in_transaction(self, action: Callable[[], _Result]) -> _Result:
        def write() -> _Result:
            with self._store.database.writing():
                return action()

        return self._write(write)

    def _write(self, action: Callable[[], _Result]) -> _Result:
        """Do what writes to the store; on a full disk in memory, which is stored when that is possible again."""
        self.store_again()
        before = self._id
        try:
            return action()
        except StoreWriteError as error:
            if self._store is not self._file_store or self._store.path is None:
                raise
            self._id = before
            self._go_on_in_memory(error)
            return action()

    def _go_on_in_memory(self, error: StoreWriteError) -> None:
        memory = ChatStore.in_memory()
        if self._id is not None:
            copy_conversation(self._file_store, memory, self._id)
        self._store = memory
        self._report(f"{error}; the chat goes on, and is stored once that is possible")

    def store_again(self) -> bool:
        """Store what had to stay in memory. Returns False if that is still not possible."""
        if self._store is self._file_store:
            return True
        if self._id is not None:
            try:
                copy_conversation(self._store, self._file_store, self._id)
            except StoreWriteError:
                return False
        self._store.close()
        self._store = self._file_store
        self._report("the chat is stored again")
        return True


class AnswerWriter:
    """Stores an answer of a conversation while it grows, wherever that conversation is stored by then."""

    def __init__(self, conversation: Conversation, begin: Callable[[], GrowingAnswer]) -> None:
        self._conversation = conversation
        self._begin = begin
        self._growing = conversation._write(begin)

    def grow(self, content: str, token_ids: list[int]) -> None:
        """Store what is there."""
        self._write(lambda growing: growing.grow(content, token_ids))

    def finish(self, content: str, token_ids: list[int], result: dict[str, Any]) -> StoredMessage:
        """Make it a message, at which the conversation then stands."""
        return self._write(lambda growing: growing.finish(content, token_ids, result))

    def discard(self) -> None:
        """Remove it: nothing came of it."""
        self._write(lambda growing: growing.discard())

    def _write(self, action: Callable[[GrowingAnswer], _Result]) -> _Result:
        def write() -> _Result:
            if not self._growing.is_in(self._conversation._store):
                self._growing = self._begin()
            return action(self._growing)

        return self._conversation._write(write)
