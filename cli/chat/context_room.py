"""How much of the context a conversation takes, and what is left out when it does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...common.text import count_noun
from .errors import ContextFullError
from .store.records import StoredMessage

_WARNING_SHARE = 0.75
"""From this share of the context on, there is a warning."""
_ANSWER_SHARE = 4
"""For an answer of any length, one part in so many of the context is kept free."""

PromptLength = Callable[[Sequence[StoredMessage]], int]
"""How many tokens the prompt of some messages has."""


class ContextUse(NamedTuple):
    """How many tokens the conversation has, and how many the context holds."""

    tokens: int
    length: int


@dataclass(frozen=True)
class FittedMessages:
    """The messages that fit. ``dropped``: how many after the system message are left out."""

    messages: list[StoredMessage]
    dropped: int = 0


def ways_out(is_resumable: bool) -> str:
    """Return what the user can do about a full context. ``is_resumable``: True if the chat is stored."""
    start = "gen chat --resume" if is_resumable else "another chat"
    return f"go back with /undo or /goto, or start {start} with a larger -c or with --on-full drop"


def full_sentence(use: ContextUse, next_step: str) -> str:
    """A sentence on a context that is full. ``next_step``: what happens then, or what the user can do."""
    held = f"the chat has {use.tokens:,} tokens, and the context holds {use.length:,}"
    return f"the context is full: {held}; {next_step}"


def warning_of(use: ContextUse, drops: bool, is_resumable: bool = True) -> str | None:
    """A sentence on a context that is nearly full, or full; None while there is room.

    Args:
        use: the tokens of the conversation, and those that the context holds.
        drops: True if the oldest turns are left out then.
        is_resumable: True if the chat is stored.
    """
    if use.tokens < use.length * _WARNING_SHARE:
        return None
    if use.tokens >= use.length:
        dropped = "the oldest turns are left out of the next prompt"
        return full_sentence(use, dropped if drops else ways_out(is_resumable))
    what = "the oldest turns are left out" if drops else "it ends; --on-full drop leaves out the oldest turns then"
    return (
        f"the chat has {use.tokens:,} of the {use.length:,} tokens of the context; when it is full, {what},"
        " and -c makes it larger"
    )


def answer_room(length: int, max_tokens: int | None) -> int:
    """How many tokens are kept free for an answer when turns are left out."""
    most = length // _ANSWER_SHARE
    return max(1, most if max_tokens is None else min(max_tokens, most))


def fit_messages(
    messages: list[StoredMessage], prompt_length: PromptLength, length: int, room: int, dropped: int
) -> FittedMessages:
    """Leave out the oldest turns after the system message, until the rest and an answer fit.

    A turn begins with a message of the user, and is left out as a whole; the last one stays.

    Args:
        messages: the conversation, from the first message to the one that is to be answered.
        prompt_length: tells the tokens of the prompt of some messages.
        length: how many tokens the context holds.
        room: how many of these are for the answer, if anything has to be left out.
        dropped: how many messages after the system message were left out before; these stay left out.

    Raises ``ContextFullError`` if the last turn alone does not fit.
    """
    system = messages[:1] if messages[:1] and messages[0].role == "system" else []
    turns = messages[len(system) :]
    starts = [number for number, message in enumerate(turns) if message.role == "user"]
    kept_from = [start for start in (starts or [0]) if start >= dropped] or starts[-1:] or [0]
    for number, start in enumerate(kept_from):
        kept = [*system, *turns[start:]]
        needed = 1 if number == len(kept_from) - 1 or (number == 0 and start == dropped) else room
        tokens = prompt_length(kept)
        if tokens + needed <= length:
            return FittedMessages(kept, start)
    raise ContextFullError(long_message_sentence(ContextUse(tokens, length)))


def long_message_sentence(use: ContextUse) -> str:
    """A sentence on a message that does not fit even without the turns before it."""
    return (
        f"the last message does not fit: the prompt has {count_noun(use.tokens, 'token')}, and the context holds"
        f" {use.length:,}; shorten it, or give a larger -c"
    )
