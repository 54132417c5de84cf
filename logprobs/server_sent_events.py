"""Server-sent events, in which OpenAI's formats are streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..common.strict_json import encode_json

SERVER_SENT_DONE = "data: [DONE]\n\n"
"""The end of a stream."""


def server_sent(data: Mapping[str, Any]) -> str:
    """One event that holds JSON. JSON escapes the newlines of a text, so that the event is one line."""
    return f"data: {encode_json(data)}\n\n"
