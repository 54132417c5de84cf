"""The errors of requests."""

from __future__ import annotations

from ..common.errors import LogitsmithError, Place


class InvalidLineError(LogitsmithError):
    """A line of input is invalid. The message says why."""


class InvalidFieldError(LogitsmithError):
    """A field of a request is invalid, or the request as a whole.

    Attributes:
        field: the field at fault; None: the whole request.
    """

    def __init__(self, problem: str, place: Place = (), field: str | None = None) -> None:
        super().__init__(problem, place=place)  # the place is empty if the problem names the fields itself
        self.field = field or (str(place[0]) if place else None)
