"""The one exception of this room, and what errors of Ray's say."""

from __future__ import annotations

from ..common.errors import LogitsmithError


class ClusterError(LogitsmithError, RuntimeError):
    """A cluster that cannot be joined, or cannot do the work. The message says what, where and what to do."""


def first_line(error: Exception) -> str:
    """Return the kind and the first line of an error of Ray's, which may have a page."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".rstrip(": ")
