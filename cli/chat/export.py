"""A conversation as a file for others."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .store import StoredMessage

_TITLES = {"system": "System", "user": "User", "assistant": "Assistant"}


def markdown_of(messages: Sequence[StoredMessage]) -> str:
    """The messages in Markdown, each under the name of its role."""
    return "\n".join(f"## {_TITLES[message.role]}\n\n{message.content.strip()}\n" for message in messages)


def jsonl_of(messages: Sequence[StoredMessage]) -> str:
    """The messages as one line of JSON, with the key ``messages``: what `gen batch` answers."""
    return json.dumps({"messages": [message.for_template() for message in messages]}, ensure_ascii=False) + "\n"
