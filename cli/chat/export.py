"""A conversation as a file for others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .chat_prompt import template_messages
from .store.records import StoredMessage

if TYPE_CHECKING:
    from ...engine.templates import ChatTemplate

_TITLES = {"system": "System", "user": "User", "assistant": "Assistant"}


def markdown_of(messages: Sequence[StoredMessage]) -> str:
    """The messages in Markdown, each under the name of its role."""
    return "\n".join(f"## {_TITLES[message.role]}\n\n{message.content.strip()}\n" for message in messages)


def jsonl_of(messages: Sequence[StoredMessage], template: ChatTemplate) -> str:
    """The messages as one line of JSON, with the key ``messages``: what `gen batch` answers.

    ``template``: the chat template, which may want answers without their reasoning.
    """
    return json.dumps({"messages": template_messages(messages, template)}, ensure_ascii=False) + "\n"
