"""What the engine's loop asks of a grammar, or of anything else that forbids tokens."""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """One generation's state: which tokens may come next, moved on by each token that came.

    A constraint may also have what `Guide` and `Closable` add.
    """

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,)."""
        ...

    def accept(self, token: int) -> None:
        """Move on by one token. Raises if the mask would have refused it."""


class Guide(Constraint, Protocol):
    """A constraint that knows what must come, and when the text is whole."""

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        ...

    @property
    def is_complete(self) -> bool:
        """Is the text so far whole?"""
        ...


class Closable(Guide, Protocol):
    """A constraint that knows a way to the end."""

    def closing(self) -> list[int]:
        """The tokens that make the text so far whole."""
        ...


def as_guide(constraint: Constraint | None) -> Guide | None:
    """The constraint if it is a `Guide`; its class is asked, since the text may not be ready to be asked yet."""
    kind = type(constraint)
    return cast(Guide, constraint) if hasattr(kind, "forced") and hasattr(kind, "is_complete") else None


def as_closable(constraint: Constraint | None) -> Closable | None:
    """The constraint if it is `Closable`."""
    known = as_guide(constraint)
    return cast(Closable, known) if hasattr(type(known), "closing") else None
