"""The exception of this package, and checks of numbers that raise it."""

from __future__ import annotations

from math import inf

from ..common.errors import LogitsmithError


class RecoverError(LogitsmithError, RuntimeError):
    """An endpoint cannot be queried, or its responses cannot be used.

    The message names the place, the problem and the way out. It contains no secrets.

    Attributes:
        status: the HTTP status of the response, if the status is the reason; None otherwise.
    """

    status: int | None = None


def require_at_least(minimum: int, **counts: int | None) -> None:
    """Raise ``RecoverError`` for the first count below ``minimum``, with its name. None is always allowed."""
    for name, count in counts.items():
        if count is not None and count < minimum:
            raise RecoverError(f"{name}: {count} is not ≥ {minimum}")


def require_positive(**numbers: float | None) -> None:
    """Raise ``RecoverError`` for the first number that is not finite and > 0, with its name. None is allowed."""
    for name, number in numbers.items():
        if number is not None and not 0 < number < inf:
            raise RecoverError(f"{name}: {number} is not a number > 0")
