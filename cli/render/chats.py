"""Stored chats, and what a search found in them, as tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from .run import terminal_safe
from .tables import table

if TYPE_CHECKING:
    from ..chats.records import ConversationSummary, SearchHit

_SPEAKERS = {"system": "system", "user": "you", "assistant": "model"}


def show_chats(chats: Sequence[ConversationSummary]) -> None:
    """Print a row for each chat, the latest one first."""
    if not chats:
        print("no chats are stored")
        return
    rows = [
        (
            each.id,
            _when(each.updated),
            str(each.messages),
            _safe(each.name or each.title),
            _safe(each.model or "-"),
        )
        for each in chats
    ]
    table(("chat", "last used", "messages", "name, or how it begins", "model"), rows, less_needed=4)


def show_hits(hits: Sequence[SearchHit]) -> None:
    """Print a row for each message that was found."""
    if not hits:
        print("no message has this")
        return
    rows = [
        (hit.conversation.id, hit.message.hash[:8], _SPEAKERS[hit.message.role], _safe(hit.excerpt))
        for hit in hits
    ]
    table(("chat", "message", "by", "place"), rows)


def _when(seconds: float) -> str:
    """A moment of the store in local time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def _safe(text: str) -> str:
    return terminal_safe(text, sys.stdout)
