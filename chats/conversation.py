"""Conversations: trees of messages, one of which is the current message.

Each method changes the tree in memory and writes the change to the store before it returns. While the store cannot
be written, for example because the disk is full, the changes are kept in memory and written later.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..common.files import deferred_interrupts
from ..common.text import count_noun
from .records import (
    AnswerRecipe,
    Changes,
    ConversationFields,
    Role,
    StoredAnswer,
    StoredMessage,
    StoreError,
    StoreWriteError,
)
from .store import ChatStore

if TYPE_CHECKING:
    from ..logprobs.events import Done, Event

ReportMessage = Callable[[str], object]

_SECONDS_BETWEEN_WRITES = 0.1  # minimum time between two writes of an answer while it is generated
# Time until the next attempt to write a store that could not be written. If another program has locked the store,
# an attempt takes seconds.
_SECONDS_BETWEEN_RETRIES = 2.0


class Conversation:
    """A conversation, whose current message is where it continues. Made with `new` or `resume`."""

    # If the store cannot be written, for example because the disk is full, ``report`` is called with a message.
    # The conversation continues, and the changes are kept until a later write succeeds. If the store rejects a
    # change, the method raises ``StoreError`` and the conversation is unchanged. Ctrl-C takes effect only between
    # changes, so that store and conversation always agree.

    def __init__(self, store: ChatStore, identifier: str | None, report: ReportMessage) -> None:
        self._store = store
        self._report = report
        self.id = identifier  # id of the conversation in the store; None before its first message
        self.name: str | None = None  # name that the user gave to the conversation; None if it has none
        self.settings: dict[str, Any] = {}  # the settings stored with `save_settings`
        # The system message that will precede the first message, if the current message is None; or None
        self._system_text: str | None = None
        self._messages: dict[str, StoredMessage] = {}  # the messages of all branches by hash, oldest first
        self._current_message: StoredMessage | None = None
        # for each answer that was started, by its number: the hash of the message that is answered
        self._parent_hash_of_answer: dict[int, str] = {}
        self._unsaved_changes = Changes()  # the changes that have not been written to the store
        self._next_retry_time = 0.0
        if identifier is not None:
            self.name = store.summary(identifier).name
            self.settings = store.settings(identifier)
            current_hash = store.current_message_hash(identifier)
            self._messages = {message.hash: message for message in store.messages(identifier)}
            self._current_message = None if current_hash is None else self._messages.get(current_hash)
            self._parent_hash_of_answer = store.answer_parents(identifier)

    @classmethod
    def new(cls, store: ChatStore, report: ReportMessage) -> Conversation:
        """Return a new conversation, which is stored with its first message."""
        return cls(store, None, report)

    @classmethod
    def resume(cls, store: ChatStore, identifier: str, report: ReportMessage) -> Conversation:
        """Return the conversation with this id. Changes that another process makes later are not seen."""
        # If gen was killed while it generated an answer, the stored part of the answer becomes a message.
        try:
            for message in store.recover_abandoned_answers(identifier):
                stored_size = f"{len(message.content):,} characters of it are stored"
                report(f"the answer {message.hash[:8]} was cut off when gen was killed; {stored_size}")
        except StoreWriteError as error:
            report(f"{error}; the answer that was cut off will be shown once the store can be written")
        return cls(store, identifier, report)

    # Reading the tree

    @property
    def current_message(self) -> StoredMessage | None:
        """The message where the conversation continues; None before the first message."""
        return self._current_message

    def messages(self) -> list[StoredMessage]:
        """Return the messages from the first one to the current one."""
        return [] if self._current_message is None else self.path_to(self._current_message)

    def path_to(self, message: StoredMessage) -> list[StoredMessage]:
        """Return the messages from the first one to this one."""
        path = [message]
        while path[-1].parent_hash in self._messages:
            path.append(self._messages[path[-1].parent_hash])
        path.reverse()
        return path

    def all_messages(self) -> list[StoredMessage]:
        """Return the messages of all branches, in the order in which they were added."""
        return list(self._messages.values())

    def last_user_message(self) -> StoredMessage | None:
        """Return the last message of the user on the path to the current message; None if there is none."""
        return self._last_message_of("user")

    def last_assistant_message(self) -> StoredMessage | None:
        """Return the last message of the assistant on the path to the current message; None if there is none."""
        return self._last_message_of("assistant")

    def _last_message_of(self, role: Role) -> StoredMessage | None:
        return next((message for message in reversed(self.messages()) if message.role == role), None)

    def unanswered_message(self) -> StoredMessage | None:
        """Return the current message if the user wrote it; None if the assistant did, or if there is none."""
        message = self._current_message
        return message if message is not None and message.role == "user" else None

    def children(self, message: StoredMessage | None) -> list[StoredMessage]:
        """Return the messages that follow a message, oldest first; None means the place before the first one."""
        parent_hash = None if message is None else message.hash
        return [other for other in self._messages.values() if other.parent_hash == parent_hash]

    def siblings(self, message: StoredMessage) -> list[StoredMessage]:
        """Return all messages that follow the same message as this one does, including this one."""
        return [other for other in self._messages.values() if other.parent_hash == message.parent_hash]

    def find_message(self, hash_prefix: str) -> StoredMessage:
        """Return the message whose hash begins with this prefix. Raises ``StoreError``."""
        prefix = hash_prefix.lower()
        matching_messages = [message for message in self._messages.values() if message.hash.startswith(prefix)]
        if not matching_messages or not hash_prefix:
            raise StoreError(f"there is no message {hash_prefix!r} in this conversation")
        if len(matching_messages) > 1:
            raise StoreError(f"{len(matching_messages)} messages begin with {hash_prefix!r}; give more characters")
        return matching_messages[0]

    def answer_count(self, message: StoredMessage) -> int:
        """Return the number of answers generated for a message, including answers with the same text."""
        started_count = sum(parent_hash == message.hash for parent_hash in self._parent_hash_of_answer.values())
        return max(started_count, len(self.children(message)))

    def answer_record(self, message: StoredMessage) -> StoredAnswer | None:
        """Return how a message of the assistant was generated; None if a person wrote it."""
        for answer in reversed(self._unsaved_changes.answers.values()):
            if answer.message_hash == message.hash:
                return answer
        return None if self.id is None else self._store.answer(message.hash, self.id)

    # Changing the tree

    @property
    def system(self) -> str | None:
        messages = self.messages()
        if not messages:
            return self._system_text
        return messages[0].content if messages[0].role == "system" else None

    @deferred_interrupts()
    def set_system(self, text: str | None) -> None:
        """Replace the system message before the current branch; None removes the system message."""
        # The branch is copied: the hash of a message depends on all messages before it.
        if self.id is not None:
            new_branch = [] if text is None else [StoredMessage.new(None, "system", text)]
            for message in self.messages():
                if message.role != "system":
                    parent_hash = new_branch[-1].hash if new_branch else None
                    new_branch.append(StoredMessage.new(parent_hash, message.role, message.content))
            self._make_last_current(new_branch)
        self._system_text = text

    def add_user_message(self, text: str, replaced: StoredMessage | None = None) -> StoredMessage:
        """Add a message of the user, and make it the current message. For the arguments see `messages_with`."""
        messages = self.messages_with("user", text, replaced)
        self._make_last_current(messages)
        return messages[-1]

    def add_answer_version(self, text: str) -> StoredMessage | None:
        """Add an answer to the last message of the user that a person wrote; None if there is no such message."""
        user_message = self.last_user_message()
        if user_message is None:
            return None
        message = StoredMessage.new(user_message.hash, "assistant", text)
        self._make_last_current([message])
        return message

    def messages_with(self, role: Role, text: str, replaced: StoredMessage | None = None) -> list[StoredMessage]:
        """Return the messages up to a new one, which is not added to the conversation."""
        # The new message is a sibling of ``replaced``; None: it follows the current message.
        path = self.messages() if replaced is None else self.path_to(replaced)[:-1]
        if self._current_message is None and self._system_text is not None:
            path = [StoredMessage.new(None, "system", self._system_text)]
        parent_hash = path[-1].hash if path else None
        return [*path, StoredMessage.new(parent_hash, role, text)]

    @deferred_interrupts()
    def goto(self, hash_prefix: str | None) -> StoredMessage | None:
        """Set the current message by a prefix of its hash, and return it. None moves before the first message."""
        message = None if hash_prefix is None else self.find_message(hash_prefix)
        self._system_text = self.system
        self._make_last_current([] if message is None else [message])
        return message

    def undo(self) -> StoredMessage | None:
        """Move before the last message of the user, and return this message; None if there is none."""
        user_message = self.last_user_message()
        if user_message is not None:
            self.goto(user_message.parent_hash)
        return user_message

    def rename(self, name: str | None) -> None:
        """Set the name, which `ChatStore.find_conversation` finds. Raises ``StoreError`` if the name is in use."""
        self._store.check_name(self.id, name)
        self._change(Changes(fields={"name": name}))

    def save_settings(self, settings: dict[str, Any]) -> None:
        self._change(Changes(fields={"settings": settings}))

    def record_answer(
        self,
        events: Iterable[Event],
        parent: StoredMessage,
        recipe: AnswerRecipe,
        prompt_ids: tuple[int, ...],
        beginning: str,
    ) -> Generator[Event, None, None]:
        """Yield the events of an answer, and store the answer periodically from its first token on."""
        # Before the last event is yielded, the answer becomes a message, which is then the current message. If the
        # caller stops earlier, the tokens so far become the message, without text that was held back because a
        # stop string may have begun. An answer without tokens is not stored.
        from ..logprobs.events import Done, Start, Token

        # The store must not choose the number: after a failed write, it would give the same number to another
        # answer.
        answer_number = time.time_ns()
        content = beginning
        token_ids: list[int] = []
        cached_token_count = 0
        next_write_time = 0.0
        is_finished = False

        def answer_so_far(message_hash: str | None = None, result: dict[str, Any] | None = None) -> StoredAnswer:
            return StoredAnswer(
                number=answer_number,
                message_hash=message_hash,
                parent_hash=parent.hash,
                recipe=recipe,
                prompt_ids=prompt_ids,
                beginning=beginning,
                content=content,
                token_ids=tuple(token_ids),
                result=result,
            )

        def finish(result: dict[str, Any]) -> None:
            nonlocal is_finished
            if token_ids and not is_finished:
                message = StoredMessage.new(parent.hash, "assistant", content)
                self._make_last_current([message], answer_so_far(message.hash, result))
                is_finished = True

        try:
            for event in events:
                if isinstance(event, Token):
                    token_ids.append(event.id)
                    content += event.text
                    if time.monotonic() >= next_write_time:
                        self._change(Changes(answers={answer_number: answer_so_far()}), is_durable=False)
                        next_write_time = time.monotonic() + _SECONDS_BETWEEN_WRITES
                elif isinstance(event, Done):
                    content += event.rest
                    finish(_answer_result(event, cached_token_count))
                elif isinstance(event, Start):
                    cached_token_count = event.cached_tokens
                yield event
        finally:
            finish({"finish_reason": "interrupted"})

    def _make_last_current(self, messages: list[StoredMessage], answer: StoredAnswer | None = None) -> None:
        """Add those of these messages that are missing, and make the last one the current message."""
        # Without messages, the conversation has no current message then.
        self._change(
            Changes(
                messages={message.hash: message for message in messages},
                answers={} if answer is None else {answer.number: answer},
                fields={"current_message": messages[-1].hash if messages else None},
            )
        )

    # Writing to the store

    @property
    def is_stored(self) -> bool:
        """True if all changes are written to a file; always False for a store in memory."""
        return self._store.path is not None and not self._unsaved_changes

    def save_unsaved_changes(self) -> bool:
        """Try to write unsaved changes now. Return whether all changes are written."""
        if self._unsaved_changes:
            self._next_retry_time = 0.0
            self._change(Changes())
        return not self._unsaved_changes

    def save_before_exit(self) -> None:
        """Try to write unsaved changes for the last time, and report how much is lost if that fails."""
        reason = ""
        try:
            self.save_unsaved_changes()
        except StoreError as error:  # another process has deleted the chat
            reason = f": {error}"
        if self._unsaved_changes:
            message_count = len(self._unsaved_changes.messages)
            lost_changes = count_noun(message_count, "message") if message_count else "the last changes"
            self._report(f"{self._store.path}: {lost_changes} of this chat could not be stored{reason}")

    @deferred_interrupts()
    def _change(self, changes: Changes, *, is_durable: bool = True) -> None:
        """Write changes to the store if possible, and apply them in memory."""
        # If the store rejects the changes, raises ``StoreError`` and applies nothing.
        new_messages = {key: message for key, message in changes.messages.items() if key not in self._messages}
        has_new_name = self.id is None or "name" in (self._unsaved_changes | changes).fields
        should_store = bool(new_messages) or self.id is not None  # a conversation is stored with its first message
        message_for_user = None
        if should_store:
            message_for_user = self._write(replace(changes, messages=new_messages), is_durable)
        self._messages |= new_messages
        self._parent_hash_of_answer |= {answer.number: answer.parent_hash for answer in changes.answers.values()}
        self.name = changes.fields.get("name", self.name)
        self.settings = changes.fields.get("settings", self.settings)
        if "current_message" in changes.fields:
            current_hash = changes.fields["current_message"]
            self._current_message = None if current_hash is None else self._messages[current_hash]
        if message_for_user is not None:
            self._report(message_for_user)
        if has_new_name:
            self._check_stored_name()

    def _check_stored_name(self) -> None:
        """Report and drop the name if another chat has got the same name before this one was stored."""
        if self.name is None or self.id is None or self._unsaved_changes:
            return
        if self._store.summary(self.id).name != self.name:
            self._report(f"another chat is already called {self.name!r}; this chat has no name now")
            self.name = None

    def _write(self, changes: Changes, is_durable: bool) -> str | None:
        """Write changes and the unsaved changes, or keep all of them as unsaved. Return a message for the user."""
        earlier_write_failed = bool(self._unsaved_changes)
        identifier = self.id
        if identifier is None:
            identifier = secrets.token_hex(6)
            fields = ConversationFields(created=time.time(), name=self.name, settings=self.settings)
            changes = Changes(fields=fields) | changes
        unsaved_changes = self._unsaved_changes | changes
        message_for_user = None
        if time.monotonic() >= self._next_retry_time:
            try:
                self._store.save(identifier, unsaved_changes, is_durable=is_durable or earlier_write_failed)
            except StoreWriteError as error:
                if self._store.path is None:
                    raise
                self._next_retry_time = time.monotonic() + _SECONDS_BETWEEN_RETRIES
                if not earlier_write_failed:
                    message_for_user = f"{error}; the chat continues, and is saved once that is possible"
            else:
                unsaved_changes = Changes()
                if earlier_write_failed:
                    message_for_user = "the chat is saved again"
        self.id = identifier
        self._unsaved_changes = unsaved_changes
        return message_for_user


def _answer_result(done_event: Done, cached_token_count: int) -> dict[str, Any]:
    """Return the ``result`` of a `StoredAnswer` from the last event of the generation."""
    usage = {
        "prompt_tokens": done_event.prompt_tokens,
        "cached_tokens": cached_token_count,
        "completion_tokens": done_event.completion_tokens,
    }
    if done_event.drafted_tokens is not None:
        usage["draft_tokens"] = done_event.drafted_tokens
    if done_event.accepted_tokens is not None:
        usage["accepted_tokens"] = done_event.accepted_tokens
    return {
        "finish_reason": done_event.finish_reason,
        "stop": done_event.stop,
        "complete": done_event.complete,
        "usage": usage,
        "timings": asdict(done_event.timings),
    }


@dataclass(frozen=True)
class TreeLine:
    """A message in a listing of the tree."""

    message: StoredMessage
    depth: int  # number of messages with siblings on the path to this message, including this one
    is_on_path: bool  # whether the message is on the path to the current message
    is_current: bool


def tree_lines(conversation: Conversation) -> Iterator[TreeLine]:
    """Yield all messages, each before those that follow it. Siblings are sorted by age, oldest first."""
    children_of: dict[str | None, list[StoredMessage]] = {}
    for message in conversation.all_messages():
        children_of.setdefault(message.parent_hash, []).append(message)
    path_hashes = {message.hash for message in conversation.messages()}
    # A recursion would be as deep as the conversation is long. The message that comes next is last in the stack.
    stack = _with_depth(children_of.get(None, []), parent_depth=0)
    while stack:
        message, depth = stack.pop()
        yield TreeLine(
            message,
            depth,
            is_on_path=message.hash in path_hashes,
            is_current=message == conversation.current_message,
        )
        stack += _with_depth(children_of.get(message.hash, []), parent_depth=depth)


def _with_depth(siblings: list[StoredMessage], parent_depth: int) -> list[tuple[StoredMessage, int]]:
    """Return siblings with their `TreeLine.depth`, the youngest first."""
    depth = parent_depth + 1 if len(siblings) > 1 else parent_depth
    return [(message, depth) for message in reversed(siblings)]
