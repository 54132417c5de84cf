"""The exception of this room."""

from __future__ import annotations

from ..common import LogitsmithError


class ModelError(LogitsmithError, RuntimeError):
    """A model that cannot be found, loaded or run. The message says what, where and what to do."""
