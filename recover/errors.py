"""The one exception of this room."""

from __future__ import annotations

from ..common.errors import LogitsmithError


class RecoverError(LogitsmithError, RuntimeError):
    """An endpoint that cannot be asked, or whose answers cannot be used.

    The message says what, where and what to do; it holds no secrets. ``status``: the HTTP status of the API's
    answer, if that is the reason. ``kept``: a checkpoint keeps the answers before the failure, so a new try
    continues. ``is_absent``: nobody answers at the URL.
    """

    status: int | None = None
    kept: bool = False
    is_absent: bool = False
