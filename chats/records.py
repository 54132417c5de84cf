"""Records of a chat store: messages, answers and summaries of conversations; and the errors of chats."""

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
# names of the roles in lists of messages
SPEAKERS: dict[Role, str] = {"system": "system", "user": "you", "assistant": "model"}


@dataclass(frozen=True)
class StoredMessage:
    """A message of a conversation."""

    # The hash depends on all messages before this one, because it depends on their last hash.

    hash: str  # SHA-256 of ``parent_hash``, role and content, in hexadecimal
    parent_hash: str | None  # hash of the message before this one; None for the first message
    role: Role
    content: str  # text of the message
    # time of creation, in seconds since 1970. If a message is stored twice, the earlier time is kept.
    created: float = field(compare=False)

    @classmethod
    def new(cls, parent_hash: str | None, role: Role, content: str) -> StoredMessage:
        content = clean_text(content)
        return cls(compute_message_hash(parent_hash, role, content), parent_hash, role, content, time.time())


def compute_message_hash(parent_hash: str | None, role: str, content: str) -> str:
    """Return SHA-256 of the parent's hash, the role and the content, in hexadecimal."""
    return hashlib.sha256(f"{parent_hash or ''}\0{role}\0{content}".encode()).hexdigest()


def clean_text(text: str) -> str:
    """Replace each half of a surrogate pair by U+FFFD, because it cannot be encoded as UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class AnswerRecipe:
    """Everything that is needed to regenerate an answer. The names of the fields are stored."""

    # ``name``, ``path``, ``fingerprint``, ``lora``, and everything else that changes the model's logits
    model: dict[str, Any]
    chain: list[Any]  # the steps with their parameters, as a preset contains them
    seed: int
    grammar: dict[str, Any] | None = None  # fields of the `GrammarSpec`; None without a grammar
    stop: list[str] = field(default_factory=list)  # the stop strings
    max_tokens: int | None = None  # maximum number of tokens; None for no limit
    # versions of logitsmith and of the binding to llama.cpp
    versions: dict[str, str] = field(default_factory=dict)
    dropped: int = 0  # number of messages after the system message that were left out because the context was full
    options: dict[str, Any] = field(default_factory=dict)  # other fields of the `GenerationRequest`, by name


@dataclass(frozen=True)
class StoredAnswer:
    """An answer that a model has generated or is generating."""

    number: int  # number of the answer in the store. Later answers have greater numbers.
    message_hash: str | None  # hash of the answer's message; None while the answer is in progress
    parent_hash: str  # hash of the message that is answered
    recipe: AnswerRecipe  # everything that is needed to regenerate the answer
    prompt_ids: tuple[int, ...]  # tokens of the prompt
    beginning: str  # text that the user gave and the model continued; it is part of the prompt and of the answer
    content: str  # text of the answer, including ``beginning``
    token_ids: tuple[int, ...]  # tokens that the model has generated
    # ``finish_reason``, ``usage`` and ``timings``; None while the answer is in progress, or if its process was
    # killed
    result: dict[str, Any] | None


class ConversationFields(TypedDict, total=False):
    """Changed fields of a conversation."""

    created: float  # time of creation, in seconds since 1970
    current_message: str | None  # hash of the current message; None before the first message
    name: str | None
    settings: dict[str, Any]  # settings of the chat; any JSON


@dataclass(frozen=True)
class Changes:
    """Changes to a conversation, which the store writes in one transaction."""

    # new messages by hash, each after the message that it follows
    messages: dict[str, StoredMessage] = field(default_factory=dict)
    # answers that were started, continued or finished, by number
    answers: dict[int, StoredAnswer] = field(default_factory=dict)
    # changed fields; ``created`` marks a conversation that is not in the store yet
    fields: ConversationFields = field(default_factory=ConversationFields)

    def __bool__(self) -> bool:
        """Return whether there is any change."""
        return bool(self.messages or self.answers or self.fields)

    def __or__(self, later: Changes) -> Changes:
        return Changes(
            messages=self.messages | later.messages,
            answers=self.answers | later.answers,
            fields={**self.fields, **later.fields},
        )


def pack_tokens(ids: Iterable[int]) -> bytes:
    """Return token ids as compressed little-endian 32-bit integers."""
    id_array = array("I", ids)
    if sys.byteorder == "big":
        id_array.byteswap()
    return zlib.compress(id_array.tobytes(), 1)


def unpack_tokens(data: bytes) -> tuple[int, ...]:
    """Return the token ids that `pack_tokens` has packed. Raises ``ValueError`` for other bytes."""
    id_array = array("I")
    try:
        id_array.frombytes(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if sys.byteorder == "big":
        id_array.byteswap()
    return tuple(id_array)


@dataclass(frozen=True)
class ConversationSummary:
    """The facts about a conversation that `gen chat --list` shows."""

    id: str
    name: str | None
    title: str  # beginning of the user's first message
    created: float  # time of creation, in seconds since 1970
    updated: float  # time of the last change, in seconds since 1970
    message_count: int  # number of messages in all branches
    model: str | None  # name of the model that generated the last answer; None if there is no answer


@dataclass(frozen=True)
class SearchHit:
    """A message that contains the searched words."""

    conversation: ConversationSummary  # a conversation that contains the message
    message: StoredMessage
    excerpt: str  # the text of the message around the first of the words, on one line


class StoreError(LogitsmithError):
    """A chat store cannot be opened, or does not contain what was requested. The message says what and where."""


class StoreWriteError(StoreError):
    """Data could not be written, for example because the disk is full. Stored data are unchanged."""


class ChatError(LogitsmithError):
    """An action is not possible at the current message of a conversation."""


class ContextFullError(ChatError):
    """The conversation does not fit into the context."""


class ReplayError(ChatError):
    """A stored answer cannot be regenerated here."""
