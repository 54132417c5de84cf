"""pydantic's errors as sentences for the user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def problem_message(problem: ErrorDetails) -> str:
    """Return what is wrong, without the field; a message of our own validators comes without pydantic's prefix."""
    return problem["msg"].removeprefix("Value error, ")


def problem_sentence(path: Iterable[object], message: str) -> str:
    """Return ``field.of.a.field: message``; without a path, the message alone."""
    field = ".".join(map(str, path))
    return f"{field}: {message}" if field else message
