"""A conversation as the lines of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .store.records import StoredMessage

if TYPE_CHECKING:
    from .conversation import Conversation


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
