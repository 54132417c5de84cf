"""Protocols of constraints: what the engine requires of a grammar, or of any other object that forbids tokens.

`BackgroundConstraint` compiles a constraint in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """The state of one generated text, which decides the allowed next tokens.

    A constraint may also be a `ForcingConstraint` or a `CompletableConstraint`.
    """

    def mask(self) -> NDArray[np.bool_]:
        """Return the mask of the allowed next tokens, bool (V,)."""
        ...

    def accept(self, token: int) -> None:
        """Append one token. Raises if the mask does not allow the token."""


class ForcingConstraint(Constraint, Protocol):
    """A constraint that knows the tokens that must come next, and whether the text is complete."""

    def forced_tokens(self) -> list[int]:
        """Return the ids of the tokens that must come next, in order; often none."""
        ...

    @property
    def is_complete(self) -> bool:
        """True if the text so far is a complete sentence."""
        ...


class CompletableConstraint(ForcingConstraint, Protocol):
    """A constraint that can return the tokens that complete the text."""

    def completion_tokens(self) -> list[int]:
        """Return the ids of tokens that make the text so far a complete sentence."""
        ...


class ReversibleConstraint(Constraint, Protocol):
    """A constraint that can return to an earlier token."""

    def roll_back(self, count: int) -> None:
        """Remove the last ``count`` tokens."""


class CopyableConstraint(Constraint, Protocol):
    """A constraint of which a text can be continued in several ways."""

    def copy(self) -> CopyableConstraint:
        """Return an independent copy of the state."""
        ...


def as_copyable(constraint: Constraint) -> CopyableConstraint | None:
    is_copyable = callable(getattr(constraint, "copy", None))
    return cast(CopyableConstraint, constraint) if is_copyable else None


def as_reversible(constraint: Constraint) -> ReversibleConstraint | None:
    is_reversible = callable(getattr(constraint, "roll_back", None))
    return cast(ReversibleConstraint, constraint) if is_reversible else None


def as_forcing(constraint: Constraint | None) -> ForcingConstraint | None:
    # The methods are looked up in the class. ``isinstance`` with a runtime-checkable Protocol would read the
    # object's ``is_complete``, which may wait for a grammar that is still being compiled. ``issubclass`` rejects
    # Protocols that have a property.
    is_forcing = hasattr(type(constraint), "is_complete") and hasattr(type(constraint), "forced_tokens")
    return cast(ForcingConstraint, constraint) if is_forcing else None


def as_completable(constraint: Constraint | None) -> CompletableConstraint | None:
    is_completable = as_forcing(constraint) is not None and hasattr(type(constraint), "completion_tokens")
    return cast(CompletableConstraint, constraint) if is_completable else None


class BackgroundConstraint:
    """A `CompletableConstraint` that is created in a thread. Its first use waits for the thread."""

    # Reading a vocabulary and building its tokenizer takes as long as processing a short prompt, so the thread
    # runs while the prompt is processed. An exception in ``make`` is raised at the first use. ``description``: the
    # grammar's kind, root and source, for the record of the run.

    def __init__(self, make: Callable[[], CompletableConstraint], description: dict[str, str]) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 5 ms, and most runs have no grammar

        self.description = description
        pool = ThreadPoolExecutor(1, "grammar")
        self._constraint_future = pool.submit(make)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until the constraint exists. Raises what ``make`` raised."""
        self._constraint_future.result()

    def mask(self) -> NDArray[np.bool_]:
        return self._constraint_future.result().mask()

    def forced_tokens(self) -> list[int]:
        return self._constraint_future.result().forced_tokens()

    def accept(self, token: int) -> None:
        self._constraint_future.result().accept(token)

    def roll_back(self, count: int) -> None:
        constraint = self._constraint_future.result()
        reversible_constraint = as_reversible(constraint)
        if reversible_constraint is None:
            raise TypeError(f"{type(constraint).__name__} has no method roll_back")
        reversible_constraint.roll_back(count)

    def copy(self) -> CopyableConstraint:
        """Return a copy of the constraint's state, without the thread."""
        constraint = self._constraint_future.result()
        copyable_constraint = as_copyable(constraint)
        if copyable_constraint is None:
            raise TypeError(f"{type(constraint).__name__} has no method copy")
        return copyable_constraint.copy()

    @property
    def is_complete(self) -> bool:
        return self._constraint_future.result().is_complete

    def completion_tokens(self) -> list[int]:
        return self._constraint_future.result().completion_tokens()
