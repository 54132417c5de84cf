"""The tokens so far of each row, as the batch sampler is told of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..arrays import describe
from ..errors import SamplingError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Ids = NDArray[np.integer]
ToTensor = Callable[[NDArray[Any]], Any]


@dataclass(frozen=True, eq=False)
class SamplingData:
    """The tokens so far, a row a request; made by `from_numpy`."""

    all_input_ids: Ids | None = None
    output_ids: Ids | None = None
    to_tensor: ToTensor | None = None
    is_prefill: bool = True
    request_ids: Ints | None = None

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

        ``all_input_ids``: whole numbers (B, L), the tokens of the prompt and of the output, which
        `repetition_penalty` looks at. ``output_ids``: whole numbers (B, L'), those of the output, which
        `frequency_penalty` and `presence_penalty` look at, and whose number says which draw of its seed a row is
        at. Both are padded, anywhere, with ids outside 0..V-1. ``to_tensor``: makes a tensor of the logits' kind
        from an array; needed if one of the two is given. ``is_prefill``: is the first token being generated?
        ``request_ids``: whole numbers (B,), no two alike; with them the tokens of a request are counted once, at
        the first token or when it is new, and later steps (``is_prefill=False``) only add what came since.
        Requests that such a step does not name are finished, and forgotten.

        Raises ``SamplingError`` that names the argument and the row.
        """
        if not isinstance(is_prefill, (bool, np.bool_)):
            raise SamplingError(f"is_prefill: expected true or false, got {describe(is_prefill)}")
        everything, output = _texts("all_input_ids", all_input_ids), _texts("output_ids", output_ids)
        requests = _requests(request_ids)
        check_to_tensor(to_tensor, {"all_input_ids": everything, "output_ids": output})
        check_heights({"all_input_ids": everything, "output_ids": output, "request_ids": requests})
        return cls(everything, output, to_tensor, bool(is_prefill), requests)


def tokens(ids: Ids, width: int) -> Mask:
    """Which entries are tokens of a vocabulary of ``width``, and not padding; in the shape of ``ids``."""
    # One comparison instead of two: as an unsigned number, what is below zero is very large.
    unsigned: Mask = ids.view(ids.dtype.str.replace("i", "u")) < width
    return unsigned


def lengths(ids: Ids, width: int) -> Ints:
    """The number of tokens in each row of (B, L), padding not counted, (B,)."""
    return np.count_nonzero(tokens(ids, width), axis=1).astype(np.int64)


def check_to_tensor(to_tensor: object, given: Mapping[str, object]) -> None:
    """Raise ``SamplingError`` unless `to_tensor` can be called; only where nothing is given it may be None."""
    names = [name for name, value in given.items() if value is not None]
    if to_tensor is None and names:
        raise SamplingError(f"to_tensor: it is needed where {names[0]} is given")
    if to_tensor is not None and not callable(to_tensor):
        raise SamplingError(f"to_tensor: expected a function, got {describe(to_tensor)}")


def check_heights(arrays: Mapping[str, NDArray[Any] | None]) -> None:
    """Raise ``SamplingError`` that names two arrays with another number of rows, if there are any."""
    known = [(name, len(array)) for name, array in arrays.items() if array is not None]
    for name, height in known:
        if height != known[0][1]:
            raise SamplingError(f"{name}: {height} rows, while {known[0][0]} has {known[0][1]}")


def _whole(ids: object, dimensions: int) -> TypeGuard[Ids]:
    """Is it an array of whole numbers? Not a masked one, whose mask would be overlooked."""
    if not isinstance(ids, np.ndarray) or isinstance(ids, np.ma.MaskedArray):
        return False
    return ids.ndim == dimensions and ids.dtype.kind in "iu"


def _texts(name: str, ids: object) -> Ids | None:
    if ids is None:
        return None
    if not _whole(ids, 2):
        raise SamplingError(f"{name}: expected whole numbers of shape (B, L), got {describe(ids)}")
    return ids


def _requests(ids: object) -> Ints | None:
    if ids is None:
        return None
    if not _whole(ids, 1):
        raise SamplingError(f"request_ids: expected whole numbers of shape (B,), got {describe(ids)}")
    _, first, of = np.unique(ids, return_index=True, return_inverse=True)
    twice = (first[of] != np.arange(ids.size)).nonzero()[0]
    if twice.size:
        row = twice[0]
        raise SamplingError(f"request_ids: row {row}: {ids[row]} is also the id of row {first[of[row]]}")
    return ids.astype(np.int64)
