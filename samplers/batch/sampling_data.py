"""The tokens so far of each row: an argument of the batch sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..array_types import describe
from ..errors import SamplingError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Ids = NDArray[np.integer]
ToTensor = Callable[[NDArray[Any]], Any]


@dataclass(frozen=True, eq=False)
class SamplingData:
    """The tokens so far, one row a request; for the arguments see `from_numpy`, which checks the same."""

    all_input_ids: Ids | None = None
    output_ids: Ids | None = None
    to_tensor: ToTensor | None = None
    is_prefill: bool = True
    request_ids: Ids | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.is_prefill, (bool, np.bool_)):
            raise SamplingError(f"is_prefill: expected true or false, got {describe(self.is_prefill)}")
        token_ids = {name: _check_token_ids(name, getattr(self, name)) for name in ("all_input_ids", "output_ids")}
        requests = _check_request_ids(self.request_ids)
        check_to_tensor(self.to_tensor, token_ids)
        check_heights({**token_ids, "request_ids": requests})
        object.__setattr__(self, "is_prefill", bool(self.is_prefill))
        object.__setattr__(self, "request_ids", requests)

    @classmethod
    def from_numpy(
        cls,
        all_input_ids: Ids | None = None,
        output_ids: Ids | None = None,
        to_tensor: ToTensor | None = None,
        is_prefill: bool = True,
        request_ids: Ids | None = None,
    ) -> SamplingData:
        """Check and hold the tokens of a batch; the arrays are not copied.

        Args:
            all_input_ids: whole numbers (B, L): the tokens of prompt and output, for `repetition_penalty`. Padding
                is any id outside 0..V-1, at any place.
            output_ids: whole numbers (B, L'), padded likewise: the tokens of the output, for `frequency_penalty`
                and `presence_penalty`. Their number says which draw of its seed a row is at.
            to_tensor: makes a tensor of the logits' library from an array; needed if tokens are given.
            is_prefill: whether this is the first token.
            request_ids: distinct whole numbers (B,). With them the tokens of a request are counted once, and a
                later step (``is_prefill=False``) adds only its new tokens. Such a step forgets the requests that
                it does not name.

        Raises ``SamplingError`` that names the argument and the row.
        """
        return cls(all_input_ids, output_ids, to_tensor, is_prefill, request_ids)


def is_token(ids: Ids, width: int) -> Mask:
    """Return which entries are tokens of a vocabulary of ``width``, and not padding, in the shape of ``ids``."""
    # One comparison instead of two: a negative number, read as unsigned, is very large.
    unsigned: Mask = ids.view(ids.dtype.str.replace("i", "u")) < width
    return unsigned


def row_lengths(ids: Ids, width: int) -> Ints:
    """Return the number of tokens in each row of (B, L), without padding: int64 (B,)."""
    return np.count_nonzero(is_token(ids, width), axis=1).astype(np.int64)


def check_to_tensor(to_tensor: object, given: Mapping[str, object]) -> None:
    """Raise ``SamplingError`` unless `to_tensor` can be called; it may be None if no array is given."""
    names = [name for name, value in given.items() if value is not None]
    if to_tensor is None and names:
        raise SamplingError(f"to_tensor: it is needed where {names[0]} is given")
    if to_tensor is not None and not callable(to_tensor):
        raise SamplingError(f"to_tensor: expected a function, got {describe(to_tensor)}")


def check_heights(arrays: Mapping[str, NDArray[Any] | None]) -> None:
    """Raise ``SamplingError`` if two arrays have different numbers of rows."""
    heights = [(name, len(array)) for name, array in arrays.items() if array is not None]
    for name, height in heights:
        if height != heights[0][1]:
            raise SamplingError(f"{name}: {height} rows, while {heights[0][0]} has {heights[0][1]}")


def _is_int_array(ids: object, dimensions: int) -> TypeGuard[Ids]:
    """True for an array of whole numbers. A masked array is none: its mask would be ignored."""
    if not isinstance(ids, np.ndarray) or isinstance(ids, np.ma.MaskedArray):
        return False
    return ids.ndim == dimensions and ids.dtype.kind in "iu"


def _check_token_ids(name: str, ids: object) -> Ids | None:
    if ids is None:
        return None
    if not _is_int_array(ids, 2):
        raise SamplingError(f"{name}: expected whole numbers of shape (B, L), got {describe(ids)}")
    return ids


def _check_request_ids(ids: object) -> Ints | None:
    if ids is None:
        return None
    if not _is_int_array(ids, 1):
        raise SamplingError(f"request_ids: expected whole numbers of shape (B,), got {describe(ids)}")
    _, first, of = np.unique(ids, return_index=True, return_inverse=True)
    repeated = (first[of] != np.arange(ids.size)).nonzero()[0]
    if repeated.size:
        row = repeated[0]
        raise SamplingError(f"request_ids: row {row}: {ids[row]} is also the id of row {first[of[row]]}")
    return ids.astype(np.int64)
