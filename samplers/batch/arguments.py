"""The arguments of the batch sampler, checked and made into arrays.

`SamplingData` has the tokens so far of each row, `SamplingParam` how each row is sampled. A `RowPlan` is made of a
`SamplingParam` for logits of a certain shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..base import FLOAT32_MAX
from ..errors import SamplingError
from ..kernels import Floats, describe

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
        _check_to_tensor(self.to_tensor, token_ids)
        _check_heights({**token_ids, "request_ids": requests})
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


def _is_int_array(ids: object, dimensions: int) -> TypeGuard[Ids]:
    """True for an array of whole numbers. A masked array is none: its mask would be ignored."""
    if not isinstance(ids, np.ndarray) or isinstance(ids, np.ma.MaskedArray):
        return False
    return ids.ndim == dimensions and ids.dtype.kind in "iu"


class _Rule(NamedTuple):
    """What one array may hold, one value a row."""

    kinds: str
    """NumPy's letters for the accepted dtypes."""
    values: str
    """The accepted dtypes in words."""
    allowed: str
    """The range in words."""
    test: Callable[[NDArray[Any]], Mask]
    """Tests which values are in range; a NaN is not."""
    neutral: float
    """The value of a row without the parameter; for a seed and top_k it is out of range."""
    dtype: type[np.generic]


def _finite(values: NDArray[Any]) -> Mask:
    return np.abs(values) <= FLOAT32_MAX


_RULES: Mapping[str, _Rule] = {
    "repetition_penalty": _Rule("f", "floats", "> 0 and finite", lambda v: (v > 0) & _finite(v), 1.0, np.float32),
    "frequency_penalty": _Rule("f", "floats", "a finite float32", _finite, 0.0, np.float32),
    "presence_penalty": _Rule("f", "floats", "a finite float32", _finite, 0.0, np.float32),
    "temperature": _Rule("f", "floats", "> 0 and finite", lambda v: (v > 0) & _finite(v), 1.0, np.float32),
    "top_k": _Rule("iu", "whole numbers", "> 0 and < the vocabulary", lambda v: v > 0, 0, np.int64),
    "top_p": _Rule("f", "floats", "> 0 and ≤ 1", lambda v: (v > 0) & (v <= 1), 1.0, np.float32),
    "seed": _Rule("iu", "whole numbers", "≥ 0", lambda v: v >= 0, -1, np.int64),
    "do_sample": _Rule("b", "booleans", "true or false", lambda v: np.ones(v.shape, np.bool_), False, np.bool_),
}


@dataclass(frozen=True, eq=False)
class SamplingParam:
    """Sampling parameters of each row; for the arguments see `from_numpy`, which checks the same.

    An array is None if no row has the parameter. A row without a parameter holds: penalties 1, 0, 0;
    temperature 1; top_k 0; top_p 1; seed -1. ``do_sample`` is computed if any parameter is given.
    """

    repetition_penalty: Floats | None = None
    frequency_penalty: Floats | None = None
    presence_penalty: Floats | None = None
    temperature: Floats | None = None
    top_k: Ids | None = None
    top_p: Floats | None = None
    seed: Ids | None = None
    do_sample: Mask | None = None
    to_tensor: ToTensor | None = None

    def __post_init__(self) -> None:
        given = {name: array for name in _RULES if (array := getattr(self, name)) is not None}
        _check_to_tensor(self.to_tensor, given)
        checked = {name: _check_column(name, array) for name, array in given.items()}
        values = {name: array for name, (array, _) in checked.items()}
        _check_heights(values)
        if values:  # without do_sample a temperature would be ignored: the row would be greedy
            values["do_sample"] = _rows_to_sample(checked)
        for name, array in values.items():
            object.__setattr__(self, name, array)

    @classmethod
    def from_numpy(  # noqa: PLR0913, PLR0917 - the contract's own names
        cls,
        repetition_penalty: NDArray[np.floating] | None = None,
        frequency_penalty: NDArray[np.floating] | None = None,
        presence_penalty: NDArray[np.floating] | None = None,
        temperature: NDArray[np.floating] | None = None,
        top_k: NDArray[np.integer] | None = None,
        top_p: NDArray[np.floating] | None = None,
        seed: NDArray[np.integer] | None = None,
        do_sample: Mask | None = None,
        to_tensor: ToTensor | None = None,
    ) -> SamplingParam:
        """Check and hold the parameters of a batch, each an array of one value a row, (B,), or None.

        If only some rows have a parameter, the others are masked (``numpy.ma``).

        Args:
            repetition_penalty: > 0; 1 is off.
            frequency_penalty: 0 is off; below 0 rewards.
            presence_penalty: 0 is off; below 0 rewards.
            temperature: > 0.
            top_k: > 0 and < V.
            top_p: > 0 and ≤ 1.
            seed: ≥ 0; its low 32 bits count. A row without a seed is drawn differently each time.
            do_sample: True draws, False takes the likeliest token. False becomes True in a row with a top_k, a
                top_p below 1 or a temperature other than 1. Without this array, a row is drawn if it has a
                temperature, a top_k, a top_p or a seed.
            to_tensor: makes a tensor of the logits' library from an array; needed if any parameter is given.

        Raises ``SamplingError`` that names the argument, the row, what is allowed and what came.
        """
        return cls(
            repetition_penalty,
            frequency_penalty,
            presence_penalty,
            temperature,
            top_k,
            top_p,
            seed,
            do_sample,
            to_tensor,
        )


def _check_column(name: str, values: object) -> tuple[NDArray[Any], Mask]:
    """Return one value a row, (B,), and which rows have one: all but the masked entries of a masked array."""
    rule = _RULES[name]
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in rule.kinds:
        raise SamplingError(f"{name}: expected {rule.values} of shape (B,), got {describe(values)}")
    given = ~np.ma.getmaskarray(values)
    plain = np.ma.getdata(values)
    wide = plain.astype(np.float64) if rule.kinds == "f" else plain
    bad = (given & ~rule.test(wide)).nonzero()[0]
    if bad.size:
        raise SamplingError(f"{name}: row {bad[0]}: {plain[bad[0]]} is not {rule.allowed}")
    if name == "seed" and plain.dtype.itemsize > 4:  # the generator takes 32 bits, as in llama.cpp
        plain = plain & plain.dtype.type(0xFFFFFFFF)
    if plain.dtype == np.uint64:
        plain = np.minimum(plain, np.uint64(np.iinfo(np.int64).max))
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):  # masked entries may hold anything
        return np.where(given, plain.astype(rule.dtype), rule.dtype(rule.neutral)), given


def _rows_to_sample(checked: Mapping[str, tuple[NDArray[Any], Mask]]) -> Mask:
    """Return which rows draw their token."""
    nowhere = np.zeros(len(next(iter(checked.values()))[0]), np.bool_)
    has_any, has_effect = nowhere.copy(), nowhere.copy()
    for name in ("temperature", "top_k", "top_p", "seed"):
        if name in checked:
            values, given = checked[name]
            has_any |= given
            has_effect |= given & (values != _RULES[name].neutral) & (name != "seed")
    do_sample, is_set = checked.get("do_sample", (nowhere, nowhere))
    return np.where(is_set, do_sample | has_effect, has_any)


def _check_to_tensor(to_tensor: object, given: Mapping[str, object]) -> None:
    """Raise ``SamplingError`` unless `to_tensor` can be called; it may be None if no array is given."""
    names = [name for name, value in given.items() if value is not None]
    if to_tensor is None and names:
        raise SamplingError(f"to_tensor: it is needed where {names[0]} is given")
    if to_tensor is not None and not callable(to_tensor):
        raise SamplingError(f"to_tensor: expected a function, got {describe(to_tensor)}")


def _check_heights(arrays: Mapping[str, NDArray[Any] | None]) -> None:
    """Raise ``SamplingError`` if two arrays have different numbers of rows."""
    heights = [(name, len(array)) for name, array in arrays.items() if array is not None]
    for name, height in heights:
        if height != heights[0][1]:
            raise SamplingError(f"{name}: {height} rows, while {heights[0][0]} has {heights[0][1]}")


@dataclass(eq=False)
class RowPlan:
    """The parameters of each row, (B,); a row without a parameter has its neutral value."""

    repetition_penalty: Floats
    frequency_penalty: Floats
    presence_penalty: Floats
    temperature: Floats
    top_k: Ints
    """0: off. A greedy row has top_k 1."""
    top_p: Floats
    seed: Ints
    """-1: no seed."""
    do_sample: Mask

    @classmethod
    def from_param(cls, param: SamplingParam, height: int, width: int) -> RowPlan:
        """Make the plan for logits (``height``, ``width``). Raises ``SamplingError`` if it does not fit them."""
        values: dict[str, NDArray[Any]] = {}
        for field in fields(cls):
            array, rule = getattr(param, field.name), _RULES[field.name]
            if array is not None and array.size != height:
                raise SamplingError(f"{field.name}: {array.size} rows, while logits has {height}")
            values[field.name] = np.full(height, rule.neutral, rule.dtype) if array is None else array.copy()
        plan = cls(**values)
        too_large = (plan.top_k >= width).nonzero()[0]
        if too_large.size:
            row = too_large[0]
            raise SamplingError(f"top_k: row {row}: {plan.top_k[row]} is not > 0 and < {width}, the vocabulary")
        # A temperature that is 0 in float32 leaves only the likeliest token, as in the sampler.
        plan.keep_only_best((~plan.do_sample | (plan.temperature == 0)).nonzero()[0])
        return plan

    @property
    def penalized(self) -> Mask:
        """Which rows have a penalty, (B,)."""
        added = (self.frequency_penalty != 0) | (self.presence_penalty != 0)
        return (self.repetition_penalty != 1) | added

    def keep_only_best(self, rows: Ints) -> None:
        """Leave only the likeliest token of these rows, at its logit."""
        self.temperature[rows] = self.top_p[rows] = 1
        self.top_k[rows] = 1


def is_token(ids: Ids, width: int) -> Mask:
    """Return which entries are tokens of a vocabulary of ``width``, and not padding, in the shape of ``ids``."""
    # One comparison instead of two: a negative number, read as unsigned, is very large.
    unsigned: Mask = ids.view(ids.dtype.str.replace("i", "u")) < width
    return unsigned


def row_lengths(ids: Ids, width: int) -> Ints:
    """Return the number of tokens in each row of (B, L), without padding: int64 (B,)."""
    return np.count_nonzero(is_token(ids, width), axis=1).astype(np.int64)
