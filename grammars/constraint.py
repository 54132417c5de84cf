"""Protocols of constraints: what the engine requires of a grammar, or of any other object that forbids tokens.

`BackgroundConstraint` compiles a constraint in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..common.renamed import find_by_old_name, supports_old_names, warn_of_old_name


class Constraint(Protocol):
    """The state of one generated text, which decides the allowed next tokens.

    A constraint may also be a `ForcingConstraint` or a `CompletableConstraint`.
    """

    def mask(self) -> NDArray[np.bool_]:
        """Return the mask of the allowed next tokens, bool (V,)."""
        ...

    def accept(self, token: int) -> None:
        """Append one token. Raises if the mask does not allow the token."""


@supports_old_names
class ForcingConstraint(Constraint, Protocol):
    """A constraint that knows the tokens that must come next, and whether the text is complete."""

    def forced_tokens(self) -> list[int]:
        """Return the ids of the tokens that must come next, in order; often none."""
        ...

    @property
    def is_complete(self) -> bool:
        """True if the text so far is a complete sentence."""
        ...


@supports_old_names
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
    """Return the constraint if it is a `CopyableConstraint`, otherwise None."""
    return cast(CopyableConstraint, constraint) if callable(getattr(constraint, "copy", None)) else None


def as_reversible(constraint: Constraint) -> ReversibleConstraint | None:
    """Return the constraint if it is a `ReversibleConstraint`, otherwise None."""
    return cast(ReversibleConstraint, constraint) if callable(getattr(constraint, "roll_back", None)) else None


def as_forcing(constraint: Constraint | None) -> ForcingConstraint | None:
    """Return the constraint if it is a `ForcingConstraint`, otherwise None.

    The methods are looked up in the class. ``isinstance`` with a runtime-checkable Protocol would read the
    object's ``is_complete``, which may wait for a grammar that is still being compiled. ``issubclass`` rejects
    Protocols that have a property.
    """
    if not hasattr(type(constraint), "is_complete"):
        return None
    return _find_by_method(constraint, "forced_tokens", "forced")


def as_completable(constraint: Constraint | None) -> CompletableConstraint | None:
    """Return the constraint if it is a `CompletableConstraint`, otherwise None."""
    forcing_constraint = as_forcing(constraint)
    if forcing_constraint is None:
        return None
    completable_constraint = _find_by_method(constraint, "completion_tokens", "closing")
    # A constraint that has the new name of this method may still need the adapter for the other method.
    return (
        cast(CompletableConstraint, forcing_constraint)
        if completable_constraint is constraint
        else completable_constraint
    )


def _find_by_method(constraint: object, new_name: str, old_name: str) -> CompletableConstraint | None:
    """Return the constraint if its class has the method; an adapter if only by its old name; otherwise None."""
    constraint_class = type(constraint)
    if hasattr(constraint_class, new_name):
        return cast(CompletableConstraint, constraint)
    if hasattr(constraint_class, old_name):
        warn_of_old_name(constraint_class.__qualname__, old_name, new_name)
        return _OldNamesAdapter(constraint)
    return None


class _OldNamesAdapter:
    """An adapter of a user's constraint that has the method names of version 0.1: ``forced``, ``closing``."""

    def __init__(self, constraint: object) -> None:
        self._constraint = cast("CompletableConstraint", constraint)

    def mask(self) -> NDArray[np.bool_]:
        return self._constraint.mask()

    def accept(self, token: int) -> None:
        self._constraint.accept(token)

    def forced_tokens(self) -> list[int]:
        return self._call_by_either_name("forced_tokens", "forced")

    @property
    def is_complete(self) -> bool:
        return self._constraint.is_complete

    def completion_tokens(self) -> list[int]:
        return self._call_by_either_name("completion_tokens", "closing")

    def __getattr__(self, name: str) -> object:
        return getattr(
            self._constraint, name
        )  # users of `as_guide` call the constraint's methods by the old names

    def _call_by_either_name(self, new_name: str, old_name: str) -> list[int]:
        has_new_name = hasattr(type(self._constraint), new_name)
        tokens: list[int] = getattr(self._constraint, new_name if has_new_name else old_name)()
        return tokens


@supports_old_names
class BackgroundConstraint:
    """A `CompletableConstraint` that is created in a thread. Its first use waits for the thread.

    Reading a vocabulary and building its tokenizer takes as long as processing a short prompt, so the thread runs
    while the prompt is processed. An exception in ``make`` is raised at the first use.

    Args:
        make: function that creates the constraint.
        description: the grammar's kind, root and source, for the record of the run.

    Attributes:
        description: the argument ``description``.
    """

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
        """Return the mask of the allowed next tokens, bool (V,)."""
        return self._constraint_future.result().mask()

    def forced_tokens(self) -> list[int]:
        """Return the ids of the tokens that must come next, in order; often none."""
        return self._constraint_future.result().forced_tokens()

    def accept(self, token: int) -> None:
        """Append one token. Raises ``GrammarError`` if the mask does not allow the token."""
        self._constraint_future.result().accept(token)

    def roll_back(self, count: int) -> None:
        """Remove the last ``count`` tokens."""
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
        """True if the text so far is a complete sentence."""
        return self._constraint_future.result().is_complete

    def completion_tokens(self) -> list[int]:
        """Return the ids of tokens that make the text so far a complete sentence."""
        return self._constraint_future.result().completion_tokens()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return the object that had this name in version 0.1, with a warning."""
        return find_by_old_name(__name__, name)
