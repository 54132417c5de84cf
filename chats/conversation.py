"""A conversation: a tree of messages, and the place where the conversation stands in the tree.

The tree in memory is the truth, and the store its log: each change is handed to the store before a method returns.
While the store cannot be written, such as on a full disk, the changes are kept, and written later.
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
    from ..logprobs.events import Done, Event, Token

Report = Callable[[str], object]
"""Called with a sentence that the user should see."""

_SECONDS_BETWEEN_WRITES = 0.1
"""An answer is stored at most this often while it is made."""
_SECONDS_BETWEEN_RETRIES = 2.0
"""A store that could not be written is tried again after this time: each trial of a locked one takes seconds."""


class Conversation:
    """A conversation, which stands at one of its messages. Make one with `new` or `resume`.

    If the store cannot be written, as on a full disk, ``report`` is called with a sentence. The conversation
    continues, and the changes are kept until a later write succeeds. If the store refuses a change, methods raise
    ``StoreError``, and the conversation is as before. Ctrl-C waits until store and conversation agree.

    Attributes:
        id: its id in the store; None before its first message.
        name: the name that the user gave it; None: it has no name.
        settings: what `save_settings` stored.
    """

    def __init__(self, store: ChatStore, identifier: str | None, report: Report) -> None:
        self._store, self._report = store, report
        self.id = identifier
        self.name: str | None = None
        self.settings: dict[str, Any] = {}
        self._system: str | None = None
        """The system message that precedes the next first message of the user."""
        self._messages: dict[str, StoredMessage] = {}
        """The messages of all branches by hash, the oldest first."""
        self._current_message: StoredMessage | None = None
        self._answers: dict[int, str] = {}
        """The answers that were begun, by number: of each the hash of the message that it answers."""
        self._unsaved = Changes()
        """The changes that the store does not have yet."""
        self._next_retry = 0.0
        if identifier is not None:
            self.name, self.settings = store.summary(identifier).name, store.settings(identifier)
            head = store.current_message_hash(identifier)
            self._messages = {message.hash: message for message in store.messages(identifier)}
            self._current_message = None if head is None else self._messages.get(head)
            self._answers = store.answer_parents(identifier)

    @classmethod
    def new(cls, store: ChatStore, report: Report) -> Conversation:
        """Begin a conversation. It is stored with its first message."""
        return cls(store, None, report)

    @classmethod
    def resume(cls, store: ChatStore, identifier: str, report: Report) -> Conversation:
        """Continue the conversation of exactly this id. What another process adds later is not seen.

        What was written of answers whose process was killed becomes messages.
        """
        try:
            for message in store.recover_abandoned_answers(identifier):
                size = f"{len(message.content):,} characters"
                report(f"the answer {message.hash[:8]} was cut off when gen was killed; {size} of it are stored")
        except StoreWriteError as error:
            report(f"{error}; an answer that was cut off is shown once that is possible")
        return cls(store, identifier, report)

    # The tree

    @property
    def current_message(self) -> StoredMessage | None:
        """The message at which it stands; None before the first one."""
        return self._current_message

    def messages(self) -> list[StoredMessage]:
        """The messages from the first one to the head."""
        return [] if self._current_message is None else self.path_to(self._current_message)

    def path_to(self, message: StoredMessage) -> list[StoredMessage]:
        """The messages from the first one to this one."""
        path = [message]
        while (parent := path[-1].parent_hash) is not None and parent in self._messages:
            path.append(self._messages[parent])
        return path[::-1]

    def all_messages(self) -> list[StoredMessage]:
        """The messages of all branches, in the order in which they came."""
        return list(self._messages.values())

    def last_user_message(self) -> StoredMessage | None:
        """The last message of the user on the way to the head."""
        return self._last("user")

    def last_assistant_message(self) -> StoredMessage | None:
        """The last message of the assistant on the way to the head."""
        return self._last("assistant")

    def _last(self, role: Role) -> StoredMessage | None:
        return next((message for message in reversed(self.messages()) if message.role == role), None)

    def unanswered_message(self) -> StoredMessage | None:
        """The message of the user at the head, which has no answer behind it yet; None at another one."""
        return (
            self._current_message
            if self._current_message is not None and self._current_message.role == "user"
            else None
        )

    def children(self, message: StoredMessage | None) -> list[StoredMessage]:
        """The messages that follow a message, or that begin the conversation, the oldest first."""
        parent = None if message is None else message.hash
        return [other for other in self._messages.values() if other.parent_hash == parent]

    def siblings(self, message: StoredMessage) -> list[StoredMessage]:
        """The messages in the place of this one, and itself."""
        return [other for other in self._messages.values() if other.parent_hash == message.parent_hash]

    def find(self, prefix: str) -> StoredMessage:
        """The message whose hash begins like this."""
        found = [message for name, message in self._messages.items() if name.startswith(prefix.lower())]
        if not found or not prefix:
            raise StoreError(f"there is no message {prefix!r} in this conversation")
        if len(found) > 1:
            raise StoreError(f"{len(found)} messages begin with {prefix!r}; give more of it")
        return found[0]

    def answer_count(self, message: StoredMessage) -> int:
        """Return the number of answers made to a message, including those with the same text."""
        begun = sum(parent == message.hash for parent in self._answers.values())
        return max(begun, len(self.children(message)))

    def answer_record(self, message: StoredMessage) -> StoredAnswer | None:
        """How a message of the assistant was made; None for one that a person wrote."""
        for answer in reversed(self._unsaved.answers.values()):
            if answer.message_hash == message.hash:
                return answer
        return None if self.id is None else self._store.answer(message.hash, self.id)

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
        if self.id is not None:
            path = [] if text is None else [StoredMessage.new(None, "system", text)]
            for turn in self.messages():
                if turn.role != "system":
                    path.append(StoredMessage.new(path[-1].hash if path else None, turn.role, turn.content))
            self._move_to(path)
        self._system = text

    def add_user_message(self, text: str, replaced: StoredMessage | None = None) -> StoredMessage:
        """Add a message of the user, and stand there. For the arguments see `messages_with`."""
        path = self.messages_with("user", text, replaced)
        self._move_to(path)
        return path[-1]

    def add_assistant_message(self, text: str) -> StoredMessage:
        """Add a message of the assistant that a person wrote, and stand there."""
        path = self.messages_with("assistant", text)
        self._move_to(path)
        return path[-1]

    def messages_with(self, role: Role, text: str, replaced: StoredMessage | None = None) -> list[StoredMessage]:
        """The messages from the first one to a further one, which is not added.

        Args:
            role: whose message it is.
            text: the message.
            replaced: the message in whose place it is put: both then follow the same one; None: after the head.
        """
        path = self.messages() if replaced is None else self.path_to(replaced)[:-1]
        if self._current_message is None and self._system is not None:
            path = [StoredMessage.new(None, "system", self._system)]
        return [*path, StoredMessage.new(path[-1].hash if path else None, role, text)]

    @deferred_interrupts()
    def goto(self, target: str | None) -> StoredMessage | None:
        """Stand at the message whose hash begins like this; None: before the first one. Returns it."""
        message = None if target is None else self.find(target)
        self._system = self.system
        self._move_to([] if message is None else [message])
        return message

    def undo(self) -> StoredMessage | None:
        """Stand before the last message of the user, and return that; None if there is none to take back."""
        last = self.last_user_message()
        if last is not None:
            self.goto(last.parent_hash)
        return last

    def rename(self, name: str | None) -> None:
        """Give it a name, by which `ChatStore.find_conversation` finds it. A name belongs to one conversation."""
        self._store.check_name(self.id, name)
        self._change(Changes(fields={"name": name}))

    def save_settings(self, settings: dict[str, Any]) -> None:
        """Store settings with the conversation: any JSON."""
        self._change(Changes(fields={"settings": settings}))

    def record_answer(
        self,
        events: Iterable[Event],
        parent: StoredMessage,
        recipe: AnswerRecipe,
        prompt_ids: tuple[int, ...],
        beginning: str,
        text_of: Callable[[Token], str],
    ) -> Generator[Event, None, None]:
        """Yield the events of an answer, which is stored from its first token on, again and again.

        Before the last event is yielded, the answer becomes a message, at which the conversation stands. If the
        caller stops early, the tokens so far become the message. Without any token, nothing is stored.

        Args:
            events: the events, as `generate` yields them.
            parent: the message that is answered.
            recipe: what the answer is made with.
            prompt_ids: the tokens that the model reads.
            beginning: the text from which the model continues; the message begins with it.
            text_of: returns the text that a token adds to the message.
        """
        from ..logprobs.events import Done, Start, Token

        # Not the store's to choose: a number that it gave in a write that was undone would be another answer's.
        number, is_finished = time.time_ns(), False
        content, token_ids = beginning, list[int]()
        cached_tokens, next_write = 0, 0.0

        def made(message: str | None, result: dict[str, Any] | None) -> StoredAnswer:
            return StoredAnswer(
                number, message, parent.hash, recipe, prompt_ids, beginning, content, tuple(token_ids), result
            )

        def finish(result: dict[str, Any]) -> None:
            nonlocal is_finished
            if token_ids and not is_finished:
                message = StoredMessage.new(parent.hash, "assistant", content)
                self._move_to([message], made(message.hash, result))
                is_finished = True

        try:
            for event in events:
                if isinstance(event, Token):
                    token_ids.append(event.id)
                    content += text_of(event)
                    if time.monotonic() >= next_write:
                        self._change(Changes(answers={number: made(None, None)}), is_durable=False)
                        next_write = time.monotonic() + _SECONDS_BETWEEN_WRITES
                elif isinstance(event, Done):
                    content += event.rest
                    finish(_result_of(event, cached_tokens))
                elif isinstance(event, Start):
                    cached_tokens = event.cached_tokens
                yield event
        finally:
            finish({"finish_reason": "interrupted"})

    def _move_to(self, path: list[StoredMessage], answer: StoredAnswer | None = None) -> None:
        """Stand at the last message of a path, and add those of its messages that are new.

        ``answer``: how the last one was made.
        """
        self._change(
            Changes(
                {message.hash: message for message in path},
                {} if answer is None else {answer.number: answer},
                {"current_message": path[-1].hash if path else None},
            )
        )

    # How it is stored

    @property
    def is_stored(self) -> bool:
        """False while the store cannot be written, and if it is in memory anyway."""
        return self._store.path is not None and not self._unsaved

    def save_unsaved_changes(self) -> bool:
        """Store what could not be written, now. Returns False if that is still not possible."""
        if self._unsaved:
            self._next_retry = 0.0
            self._change(Changes())
        return not self._unsaved

    def save_before_exit(self) -> None:
        """Store what could not be written, for the last time; reports how much of it is lost."""
        if not self.save_unsaved_changes():
            messages = len(self._unsaved.messages)
            lost = count_noun(messages, "message") if messages else "the last changes"
            self._report(f"{self._store.path}: {lost} of this chat could not be stored")

    @deferred_interrupts()
    def _change(self, changes: Changes, *, is_durable: bool = True) -> None:
        """Write changes to the store, and make them in memory, also if the store cannot be written.

        If the store refuses them, nothing changes.
        """
        added = {name: message for name, message in changes.messages.items() if name not in self._messages}
        sentence = None
        if added or self.id is not None:  # a conversation is stored with its first message
            sentence = self._write(replace(changes, messages=added), is_durable)
        self._messages |= added
        self._answers |= {answer.number: answer.parent_hash for answer in changes.answers.values()}
        self.name = changes.fields.get("name", self.name)
        self.settings = changes.fields.get("settings", self.settings)
        if "current_message" in changes.fields:
            head = changes.fields["current_message"]
            self._current_message = None if head is None else self._messages[head]
        if sentence is not None:
            self._report(sentence)

    def _write(self, changes: Changes, is_durable: bool) -> str | None:
        """Write changes with the unsaved ones, or add them to these; returns what the user should see."""
        identifier, was_saved = self.id, not self._unsaved
        if identifier is None:
            identifier = secrets.token_hex(6)
            fields = ConversationFields(created=time.time(), name=self.name, settings=self.settings)
            changes = Changes(fields=fields) | changes
        waiting, sentence = self._unsaved | changes, None
        if time.monotonic() >= self._next_retry:
            try:
                self._store.save(identifier, waiting, is_durable=is_durable or not was_saved)
            except StoreWriteError as error:
                if self._store.path is None:
                    raise
                self._next_retry = time.monotonic() + _SECONDS_BETWEEN_RETRIES
                sentence = f"{error}; the chat goes on, and is stored once that is possible" if was_saved else None
            else:
                waiting, sentence = Changes(), None if was_saved else "the chat is stored again"
        self.id, self._unsaved = identifier, waiting
        return sentence


def _result_of(done: Done, cached_tokens: int) -> dict[str, Any]:
    return {
        "finish_reason": done.finish_reason,
        "stop": done.stop,
        "complete": done.complete,
        "usage": {
            "prompt_tokens": done.prompt_tokens,
            "cached_tokens": cached_tokens,
            "completion_tokens": done.completion_tokens,
        },
        "timings": asdict(done.timings),
    }


@dataclass(frozen=True)
class TreeLine:
    """A message in the tree.

    Attributes:
        message: the message.
        depth: how many branchings there are above it: a conversation without branches has only depth 0.
        version: its number among the messages in its place, from 1.
        versions: how many there are.
        is_on_path: True if it is on the way to the head.
        is_current: True if the conversation stands there.
    """

    message: StoredMessage
    depth: int
    sibling_number: int
    sibling_count: int
    is_on_path: bool
    is_current: bool


def tree_lines(conversation: Conversation) -> Iterator[TreeLine]:
    """Yield all messages, each before those that follow it; of several in one place, the oldest first."""
    children: dict[str | None, list[StoredMessage]] = {}
    for message in conversation.all_messages():
        children.setdefault(message.parent_hash, []).append(message)
    path = [message.hash for message in conversation.messages()]
    on_path, head = set(path), path[-1] if path else None
    waiting = _number_siblings(children.get(None, []), 0)
    while waiting:  # not by recursion: a long conversation is as deep as it is long
        message, depth, version, versions = waiting.pop()
        yield TreeLine(message, depth, version, versions, message.hash in on_path, message.hash == head)
        waiting += _number_siblings(children.get(message.hash, []), depth)


def _number_siblings(messages: list[StoredMessage], depth: int) -> list[tuple[StoredMessage, int, int, int]]:
    """Messages in one place, the first one last: with their depth, their number and how many there are."""
    count = len(messages)
    numbered = [(message, depth + (count > 1), number, count) for number, message in enumerate(messages, 1)]
    return numbered[::-1]
