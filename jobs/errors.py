"""What can be wrong with a line of input, and with results that are to be kept."""

from ..common.errors import LogitsmithError


class InvalidLineError(LogitsmithError):
    """A line that cannot be used. The message says what is wrong with it."""


class JournalError(LogitsmithError):
    """Results that cannot be kept. The message says why, and what to do."""
