"""The one exception of this room."""

from __future__ import annotations

from ..common.errors import LogitsmithError
from ..common.renamed import supports_old_names


@supports_old_names
class RecoverError(LogitsmithError, RuntimeError):
    """An endpoint that cannot be asked, or whose answers cannot be used.

    The message says what, where and what to do; it holds no secrets. ``status``: the HTTP status of the API's
    answer, if that is the reason. ``has_checkpoint``: a checkpoint keeps the answers before the failure, so a
    new try
    continues. ``is_unreachable``: nobody answers at the URL.
    """

    status: int | None = None
    has_checkpoint: bool = False
    is_unreachable: bool = False
