"""A conversation: a tree of messages, and the place where the conversation stands in the tree.

What is said is stored before a method returns. While the store cannot be written, such as on a full disk, the
conversation continues in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from ...common.files import deferred_interrupts
from ...common.text import count_noun
from .records import AnswerRecipe, Role, StoredAnswer, StoredMessage, StoreError, StoreWriteError
from .store import ChatStore, GrowingAnswer, copy_conversation, discard_growing, finish_abandoned

Report = Callable[[str], object]
"""Called with a sentence that the user should see."""


_Result = TypeVar("_Result")


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


@dataclass(frozen=True)
class TreeLine:
    """A message in the tree.

    Attributes:
        message: the message.
        depth: how many branchings there are above it: a conversation without branches has only depth 0.
        version: its number among the messages in its place, from 1.
        versions: how many there are.
        is_on_path: True if it is on the way to the head.
        is_head: True if the conversation stands there.
    """

    message: StoredMessage
    depth: int
    version: int
    versions: int
    is_on_path: bool
    is_head: bool


def tree_lines(conversation: Conversation) -> Iterator[TreeLine]:
    """Yield all messages, each before those that follow it; of several in one place, the oldest first."""
    children: dict[str | None, list[StoredMessage]] = {}
    for message in conversation.all_messages():
        children.setdefault(message.parent, []).append(message)
    path = [message.hash for message in conversation.messages()]
    on_path, head = set(path), path[-1] if path else None
    waiting = _with_numbers(children.get(None, []), 0)
    while waiting:  # not by recursion: a long conversation is as deep as it is long
        message, depth, version, versions = waiting.pop()
        yield TreeLine(message, depth, version, versions, message.hash in on_path, message.hash == head)
        waiting += _with_numbers(children.get(message.hash, []), depth)


def _with_numbers(messages: list[StoredMessage], depth: int) -> list[tuple[StoredMessage, int, int, int]]:
    """Messages in one place, the first one last: with their depth, their number and how many there are."""
    count = len(messages)
    numbered = [(message, depth + (count > 1), number, count) for number, message in enumerate(messages, 1)]
    return numbered[::-1]
