"""The records that the store of chats returns, and the errors of a chat."""

from __future__ import annotations

import hashlib
import sys
import time
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ..common.errors import LogitsmithError

Role = Literal["system", "user", "assistant"]
SPEAKERS: dict[Role, str] = {"system": "system", "user": "you", "assistant": "model"}
"""The speaker of a message, as lists of messages name them."""


@dataclass(frozen=True)
class StoredMessage:
    """A message in its place: what came before it is part of what it is.

    Attributes: ``hash``, over the hash of the message before it, role and content; ``parent``, that message's
    hash, None for the first one; ``created``, in seconds since 1970, of which a store keeps the earliest.
    """

    hash: str
    parent_hash: str | None
    role: Role
    content: str
    created: float = field(compare=False)

    @classmethod
    def new(cls, parent_hash: str | None, role: Role, content: str) -> StoredMessage:
        """Return a message of now. ``parent``: the hash of the message before it; None: it is the first one."""
        content = clean_text(content)
        return cls(compute_message_hash(parent_hash, role, content), parent_hash, role, content, time.time())


def compute_message_hash(parent_hash: str | None, role: str, content: str) -> str:
    """SHA-256 of the parent's hash, the role and the content, in hexadecimal."""
    return hashlib.sha256(f"{parent_hash or ''}\0{role}\0{content}".encode()).hexdigest()


def clean_text(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, which is no character and no UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class AnswerRecipe:
    """What an answer was made with, and all that it takes to make it again.

    Attributes:
        model: ``name``, ``path``, ``fingerprint``, ``lora``, and what else changes its logits.
        chain: the steps with their parameters, as a preset writes them.
        seed: the seed.
        grammar: the fields of its `GrammarSpec`; None without one.
        stop: the stop texts.
        max_tokens: None: no limit.
        versions: of this package, and of the binding to llama.cpp.
        dropped: how many messages after the system message were left out for lack of room.
        options: further arguments of `generate`, by name.
    """

    model: dict[str, Any]
    chain: list[Any]
    seed: int
    grammar: dict[str, Any] | None = None
    stop: list[str] = field(default_factory=list)
    max_tokens: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    dropped: int = 0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredAnswer:
    """An answer as a model made it, or began to.

    Attributes:
        number: its number in the store; of two answers, the later one has the greater number.
        message: the hash of its message; None while it grows.
        parent: the hash of the message that it answers.
        recipe: what it was made with.
        prompt_ids: the tokens that the model read.
        beginning: the text that the model was made to go on from, which is part of the prompt.
        content: the whole text, ``beginning`` included.
        token_ids: the tokens that the model made.
        result: ``finish_reason``, ``usage`` and ``timings``; None while it grows, or if its process was killed.
    """

    number: int
    message_hash: str | None
    parent_hash: str
    recipe: AnswerRecipe
    prompt_ids: tuple[int, ...]
    beginning: str
    content: str
    token_ids: tuple[int, ...]
    result: dict[str, Any] | None


class ConversationFields(TypedDict, total=False):
    """Columns of a conversation in the store.

    Attributes: ``created``, in seconds since 1970; ``head``, the hash of the message at which it stands, None
    before the first one; ``name``; ``settings``, any JSON.
    """

    created: float
    current_message: str | None
    name: str | None
    settings: dict[str, Any]


@dataclass(frozen=True)
class Changes:
    """Changes of a conversation, of which the store takes all or none.

    Attributes:
        messages: added messages by hash, each after the one before it.
        answers: answers that were begun, grew or ended, by number.
        fields: what else changed; ``created`` for a conversation that is not in the store yet.
    """

    messages: dict[str, StoredMessage] = field(default_factory=dict)
    answers: dict[int, StoredAnswer] = field(default_factory=dict)
    fields: ConversationFields = field(default_factory=ConversationFields)

    def __bool__(self) -> bool:
        """False if nothing changed."""
        return bool(self.messages or self.answers or self.fields)

    def __or__(self, later: Changes) -> Changes:
        """These changes and later ones, of each thing the latest."""
        return Changes(
            self.messages | later.messages, self.answers | later.answers, {**self.fields, **later.fields}
        )


def pack_tokens(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian 32-bit numbers, compressed."""
    numbers = array("I", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return zlib.compress(numbers.tobytes(), 1)


def unpack_tokens(data: bytes) -> tuple[int, ...]:
    """The token ids that `pack_tokens` packed. Raises ``ValueError`` for other bytes."""
    numbers = array("I")
    try:
        numbers.frombytes(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)


@dataclass(frozen=True)
class ConversationSummary:
    """A line of `gen chat --list`.

    Attributes: ``id``; ``name``, which the user gave it, or None; ``title``, the first words of the user;
    ``created``, ``updated``, in seconds since 1970; ``messages``, how many there are, of all branches; ``model``,
    the name of the model that answered last, or None.
    """

    id: str
    name: str | None
    title: str
    created: float
    updated: float
    message_count: int
    model: str | None


@dataclass(frozen=True)
class SearchHit:
    """A message that contains what was searched for; ``excerpt``: the place, on one line."""

    conversation: ConversationSummary
    message: StoredMessage
    excerpt: str


class StoreError(LogitsmithError):
    """A chat store that cannot be opened, or something that is not in it. The message says what and where."""


class StoreWriteError(StoreError):
    """Something that could not be stored, such as on a full disk. What was stored before is as it was."""


class ChatError(LogitsmithError):
    """Something that cannot be done at this place of a conversation."""


class ContextFullError(ChatError):
    """The conversation does not fit into the context."""


class ReplayError(ChatError):
    """An answer that cannot be made again here."""
