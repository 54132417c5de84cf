"""The failures of the chat store."""

from __future__ import annotations

from ....common.errors import LogitsmithError


class StoreError(LogitsmithError):
    """A chat store that cannot be opened, or something that is not in it. The message says what and where."""


class StoreWriteError(StoreError):
    """Something that could not be stored, such as on a full disk. What was stored before is as it was."""
