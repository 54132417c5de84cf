"""Constraints: what the engine requires of a grammar, or of anything else that forbids tokens.

`BackgroundConstraint` is a constraint that is compiled in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """The state of one generation: which tokens may come next. It may also be a `Guide` or `Closable`."""

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,)."""
        ...

    def accept(self, token: int) -> None:
        """Append one token. Raises if the mask would have refused it."""


class Guide(Constraint, Protocol):
    """A constraint that knows which tokens must come, and when the text is complete."""

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        ...

    @property
    def is_complete(self) -> bool:
        """True if the text so far is a whole sentence."""
        ...


class Closable(Guide, Protocol):
    """A constraint that can complete the text."""

    def closing(self) -> list[int]:
        """The tokens that make the text so far a whole sentence."""
        ...


def as_guide(constraint: Constraint | None) -> Guide | None:
    """The constraint if it is a `Guide`, else None.

    Looks at the class: ``isinstance`` with a runtime-checkable Protocol would read the object's ``is_complete``,
    which may wait for a grammar that is still being compiled; ``issubclass`` refuses a Protocol with a property.
    """
    kind = type(constraint)
    return cast(Guide, constraint) if hasattr(kind, "forced") and hasattr(kind, "is_complete") else None


def as_closable(constraint: Constraint | None) -> Closable | None:
    """The constraint if it is `Closable`, else None."""
    guide = as_guide(constraint)
    return cast(Closable, guide) if hasattr(type(guide), "closing") else None


class BackgroundConstraint:
    """Makes a constraint in a thread, and waits for it at its first use. A `Constraint`.

    Reading a vocabulary and making a tokenizer of it takes as long as reading a short prompt; so both happen at
    once. What ``make`` raises is raised at the first use.

    Args:
        make: makes the constraint.
        description: what the grammar is, for a record of the run.
    """

    def __init__(self, make: Callable[[], Closable], description: dict[str, str]) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 5 ms, and most runs have no grammar

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
