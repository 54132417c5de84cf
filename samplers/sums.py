"""Sums as a loop in C makes them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Float = TypeVar("_Float", np.float32, np.float64)


def in_order(values: NDArray[_Float]) -> _Float:
    """The sum in the values' own precision, from the first to the last; of none it is 0. Equal to loops in C.

    NumPy adds in pairs, but what it subtracts it takes away one after the other; that is five times as fast as the
    last of its running sums, and the same to the last bit.
    """
    zero = values.dtype.type(0)
    total: _Float = zero - np.subtract.reduce(values, initial=zero)
    return total
