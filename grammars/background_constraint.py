"""A constraint that is compiled in a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from .constraint import Closable


class BackgroundConstraint:
    """Makes a constraint in a thread, and waits for it at its first use. A `Constraint`.

    Reading a vocabulary and making a tokenizer of it takes as long as reading a short prompt; so both happen at
    once. What ``make`` raises is raised at the first use.

    Args:
        make: makes the constraint.
        description: what the grammar is, for a record of the run.
    """

    def __init__(self, make: Callable[[], Closable], description: dict[str, str]) -> None:
        self.description = description
        pool = ThreadPoolExecutor(1, "grammar")
        self._constraint = pool.submit(make)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until the constraint is made. Raises what ``make`` raised."""
        self._constraint.result()

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,)."""
        return self._constraint.result().mask()

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        return self._constraint.result().forced()

    def accept(self, token: int) -> None:
        """Append one token. Raises ``GrammarError`` if the mask would have refused it."""
        self._constraint.result().accept(token)

    @property
    def is_complete(self) -> bool:
        """True if the text so far is a whole sentence."""
        return self._constraint.result().is_complete

    def closing(self) -> list[int]:
        """The tokens that make the text so far a whole sentence."""
        return self._constraint.result().closing()
