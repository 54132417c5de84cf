"""The errors of requests."""

from __future__ import annotations

import re

from ..common.errors import LogitsmithError


class InvalidLineError(LogitsmithError):
    """A line of input is invalid. The message says why."""


class InvalidFieldError(LogitsmithError):
    """A field of a request is invalid, or the request as a whole."""

    def __init__(self, problem: str, path: str = "", field: str | None = None) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self._reason, self._path = problem, path  # the path is empty if the reason names the fields itself
        # the field at fault; None: the whole request
        self.field = field or re.split(r"[.\[]", path)[0] or None

    def within(self, table: str) -> InvalidFieldError:
        """Return the error of a table that is itself a field, such as ``body``."""
        return InvalidFieldError(self._reason, f"{table}.{self._path}" if self._path else table, self.field)
