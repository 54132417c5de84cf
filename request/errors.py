"""The errors of requests."""

from ..common.errors import LogitsmithError


class InvalidLineError(LogitsmithError):
    """A line of input is invalid. The message says why."""


class InvalidFieldError(LogitsmithError):
    """A field of a request is invalid, or the request as a whole.

    Attributes:
        field: the name of the field; None: the whole request.
    """

    def __init__(self, problem: str, field: str | None = None, *, advice: str = "") -> None:
        super().__init__(problem, advice=advice)
        self.field = field
