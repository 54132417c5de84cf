"""Sums as a loop in C makes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def in_order(values: NDArray[np.float32]) -> np.float32:
    """The sum in float32, from the first value to the last; of none it is 0. Equal to llama.cpp's loops.

    NumPy adds in pairs, but what it subtracts it takes away one after the other; that is five times as fast as the
    last of its running sums, and the same to the last bit.
    """
    total: np.float32 = np.float32(0) - np.subtract.reduce(values, initial=np.float32(0))
    return total
