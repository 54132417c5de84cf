"""The failures of a chat."""

from __future__ import annotations

from ...common.errors import LogitsmithError


class ChatError(LogitsmithError):
    """Something that cannot be done at this place of a conversation."""


class ContextFullError(ChatError):
    """The conversation does not fit into the context."""


class ReplayError(ChatError):
    """An answer that cannot be made again here."""
