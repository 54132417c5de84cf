"""Errors of a line of input, and of results that cannot be stored."""

from ..common.errors import LogitsmithError


class InvalidLineError(LogitsmithError):
    """A line of input is invalid. The message says why."""


class JournalError(LogitsmithError):
    """Results cannot be stored, or existing results cannot be continued. The message says why, and what to do."""
