"""The error of a line of input."""

from ..common.errors import LogitsmithError


class InvalidLineError(LogitsmithError):
    """A line of input is invalid. The message says why."""
