"""The errors of requests."""

from __future__ import annotations

from ..common.errors import LogitsmithError


class InvalidLineError(LogitsmithError):
    """A line of input is invalid. The message says why."""
