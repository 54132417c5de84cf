"""The exception of this package."""

from __future__ import annotations

from ..common.errors import LogitsmithError


class RecoverError(LogitsmithError, RuntimeError):
    """An endpoint cannot be queried, or its responses cannot be used.

    The message names the place, the problem and the way out. It contains no secrets.

    Attributes:
        status: the HTTP status of the response, if the status is the reason; None otherwise.
        has_checkpoint: whether a checkpoint holds the responses before the failure, so that the run can be
            resumed.
        is_unreachable: whether no server accepts connections at the URL.
    """

    status: int | None = None
    has_checkpoint: bool = False
    is_unreachable: bool = False
