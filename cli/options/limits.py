"""The numbers that a flag allows."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Limit:
    """Allowed numbers: ``least`` to ``most``, and -1 if that has a meaning of its own.

    Attributes: ``allowed``, the same in words; ``is_open``: ``least`` and ``most`` themselves are not allowed.
    """

    allowed: str
    least: float
    most: float = inf
    minus_one: str | None = None
    is_open: bool = False

    def complaint(self, value: float) -> str | None:
        """What is wrong with the number, None if it is allowed."""
        if self.is_open:
            is_allowed = self.least < value < self.most
        else:
            is_allowed = self.least <= value <= self.most or (value == -1 and self.minus_one is not None)
        if is_allowed:
            return None
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        minus_one = "" if self.minus_one is None else f", nor -1 for {self.minus_one}"
        return f"{shown} is not {self.allowed}{minus_one}"


def within(least: int, most: int, minus_one: str | None = None) -> Limit:
    """Numbers from ``least`` to ``most``, both allowed; ``minus_one``: what -1 stands for, None: it is refused."""
    return Limit(f"within {least}..{most}", least, most, minus_one)


def at_least(least: int, minus_one: str | None = None) -> Limit:
    """Numbers from ``least`` on; ``minus_one`` as in `within`."""
    return Limit(f"≥ {least}", least, minus_one=minus_one)


POSITIVE = Limit("a number > 0", 0.0, is_open=True)
"""Finite numbers above 0."""
