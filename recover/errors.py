"""The one exception of this room."""

from __future__ import annotations

from ..common import LogitsmithError


class RecoverError(LogitsmithError, RuntimeError):
    """An endpoint that cannot be asked, or whose answers cannot be used.

    The message says what, where and what to do; it holds no secrets. ``status``: that of the API's answer, if one
    is behind it. ``kept``: the endpoint failed behind answers that a checkpoint keeps: trying again goes on.
    """

    status: int | None = None
    kept: bool = False
