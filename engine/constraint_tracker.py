"""A constraint with its current mask and the time that is spent in it."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ..grammars.constraint import Constraint, as_closable, as_guide
from ..grammars.errors import GrammarError
from .vocabulary import Vocabulary


class ConstraintTracker:
    """Asks a constraint at most once per token for its mask, and measures how long the constraint takes.

    ``seconds``: the time spent in the constraint so far. Some constraints only have masks; forced tokens and
    complete sentences are known only by a `Guide`.
    """

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary) -> None:
        self._constraint = constraint
        self._guide = as_guide(constraint)
        self._eog = np.array(sorted(vocabulary.eog) if self._guide else (), dtype=np.intp)
        self._mask: NDArray[np.bool_] | None = None
        self.seconds = 0.0

    @property
    def is_complete(self) -> bool | None:
        """True if the text is a complete sentence; None if the constraint cannot tell."""
        return None if self._guide is None else self._guide.is_complete

    def mask(self) -> NDArray[np.bool_]:
        """The tokens that are allowed next, bool (V,)."""
        if self._mask is None:
            began = perf_counter()
            self._mask = self._constraint.mask()
            self.seconds += perf_counter() - began
        return self._mask

    def accept(self, token: int) -> None:
        """Advance by one token. Raises ``GrammarError`` if the mask does not allow it."""
        began = perf_counter()
        self._constraint.accept(token)
        self._mask = None
        self.seconds += perf_counter() - began

    def forced(self) -> list[int]:
        """The tokens that must come next, possibly none."""
        if self._guide is None:
            return []
        began = perf_counter()
        tokens = self._guide.forced()
        self.seconds += perf_counter() - began
        return tokens

    def is_exhausted(self) -> bool:
        """True if the text is a complete sentence and no text can follow, only an end-of-generation token."""
        if self._guide is None or not self._guide.is_complete:
            return False
        mask = self.mask()
        return bool(mask.sum() == mask[self._eog].sum())

    def completion(self) -> list[int]:
        """The tokens that complete the sentence; none if it is complete or cannot be completed."""
        closable = as_closable(self._constraint)
        if closable is None or closable.is_complete:
            return []
        try:
            return closable.closing()
        except GrammarError:
            return []
