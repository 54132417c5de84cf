"""Server-sent events: how the OpenAI shapes are streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .json_encoder import encode_json

SERVER_SENT_DONE = "data: [DONE]\n\n"
"""What ends a stream."""


def server_sent(data: Mapping[str, Any]) -> str:
    """One event with JSON in it; a newline inside a text is escaped by JSON, so that an event is one line."""
    return f"data: {encode_json(data)}\n\n"
