"""Rows that a step dropped here while llama.cpp's sampler keeps them at -inf."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .array_types import Ids

NO_IDS: Ids = np.empty(0, dtype=np.int32)


class MaskedRows(NamedTuple):
    """Which rows are masked. Only references are kept; the ids are computed when `ids` is called."""

    before: NDArray[np.integer] | None
    """The ids before the step that masked them; None: all."""
    kept: Ids
    """The ids after that step."""
    earlier: MaskedRows | None = None
    """The rows that had been masked before that step."""
    earlier_count: int = 0
    """How many of these were still held."""

    def ids(self, count: int, vocabulary: int) -> NDArray[np.intp]:
        """Return the ids of the first ``count`` masked rows, ascending, for a ``vocabulary`` of this size.

        Where llama.cpp erased some of them, it is its unstable sort that decides which; here the lowest ids stay.
        """
        is_masked = np.zeros(vocabulary, dtype=np.bool_)
        if self.before is None:
            is_masked[:] = True
        else:
            is_masked[self.before] = True
        is_masked[self.kept] = False
        if self.earlier is not None:
            is_masked[self.earlier.ids(self.earlier_count, vocabulary)] = True
        return is_masked.nonzero()[0][:count]
