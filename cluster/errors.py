"""The one exception of this room."""

from __future__ import annotations

from ..common import LogitsmithError


class ClusterError(LogitsmithError, RuntimeError):
    """A cluster that cannot be joined, or cannot do the work. The message says what, where and what to do."""
