"""A constraint that is made while something else goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from .constraint import Closable


class BackgroundConstraint:
    """Makes a constraint in a thread, and waits for it when it is needed. A `Constraint`.

    Reading a vocabulary and making a tokenizer of it takes as long as reading a short prompt, so that both can be
    done at once. ``description`` says what the grammar is, for a record of the run. What ``make`` raises is
    raised by whatever is asked first.
    """

    def __init__(self, make: Callable[[], Closable], description: dict[str, str]) -> None:
        self.description = description
        pool = ThreadPoolExecutor(1, "grammar")
        self._made = pool.submit(make)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until the constraint is made; raises what ``make`` raised."""
        self._made.result()

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,)."""
        return self._made.result().mask()

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        return self._made.result().forced()

    def accept(self, token: int) -> None:
        """Move on by one token."""
        self._made.result().accept(token)

    @property
    def is_complete(self) -> bool:
        """Is the text so far whole?"""
        return self._made.result().is_complete

    def closing(self) -> list[int]:
        """The tokens that make the text so far whole."""
        return self._made.result().closing()
