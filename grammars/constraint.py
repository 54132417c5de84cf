"""What the engine's loop asks of a grammar, or of anything else that forbids tokens."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """One generation's state: which tokens may come next, moved on by each token that came."""

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,)."""
        ...

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        ...

    def accept(self, token: int) -> None:
        """Move on by one token. Raises if the mask would have refused it."""

    @property
    def is_complete(self) -> bool:
        """Is the text so far whole?"""
        ...
