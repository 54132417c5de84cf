"""The arguments of the batch sampler, and their checks.

`SamplingData` has the tokens of each row, `SamplingParam` the sampling parameters of each row. A `RowPlan` has the
parameters of a `SamplingParam` in full, for logits of a certain shape.
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
    """The tokens of a batch so far, one row per request. `from_numpy` describes the arguments."""

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
        _check_row_counts({**token_ids, "request_ids": requests})
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
        """Check the tokens of a batch. The arrays are not copied.

        Args:
            all_input_ids: the tokens of prompt and output, integers (B, L), for `repetition_penalty`. Ids outside
                0..V-1 are padding, at any position. None if there are none.
            output_ids: the tokens of the output, integers (B, L'), for `frequency_penalty` and `presence_penalty`.
                Ids outside 0..V-1 are padding. If a row has n tokens here, it draws with number n of its seed's
                sequence of random numbers. None if there are none.
            to_tensor: converts an array to a tensor of the logits' library; required with any of these arrays.
            is_prefill: whether the first token of each request is sampled.
            request_ids: distinct integers (B,). With ids, the tokens of a request are counted once, and a later
                step (``is_prefill=False``) counts only new tokens. Such a step deletes the counts of requests that
                it does not name. None counts all tokens at each step.

        Raises ``SamplingError``, whose message names the argument and the row.
        """
        return cls(all_input_ids, output_ids, to_tensor, is_prefill, request_ids)


def _check_token_ids(name: str, ids: object) -> Ids | None:
    if ids is None:
        return None
    if not _is_int_array(ids, 2):
        raise SamplingError(f"{name}: expected integers of shape (B, L), got {describe(ids)}")
    return ids


def _check_request_ids(ids: object) -> Ints | None:
    if ids is None:
        return None
    if not _is_int_array(ids, 1):
        raise SamplingError(f"request_ids: expected integers of shape (B,), got {describe(ids)}")
    _, first_row_of_distinct_id, index_of_distinct_id = np.unique(ids, return_index=True, return_inverse=True)
    first_row_with_same_id = first_row_of_distinct_id[index_of_distinct_id]
    repeated_rows = (first_row_with_same_id != np.arange(ids.size)).nonzero()[0]
    if repeated_rows.size:
        row = repeated_rows[0]
        raise SamplingError(
            f"request_ids: row {row}: {ids[row]} is also the id of row {first_row_with_same_id[row]}"
        )
    return ids.astype(np.int64)


def _is_int_array(ids: object, dimensions: int) -> TypeGuard[Ids]:
    """Return True for an array of integers. Masked arrays are rejected, since their mask would be ignored."""
    if not isinstance(ids, np.ndarray) or isinstance(ids, np.ma.MaskedArray):
        return False
    return ids.ndim == dimensions and ids.dtype.kind in "iu"


class _ColumnType(NamedTuple):
    """The type of a parameter's values."""

    kinds: str  # the accepted kinds of dtypes, as NumPy's letters
    name: str  # the accepted dtypes in words, for messages
    dtype: type[np.generic]  # the dtype to which the values are converted


_FLOATS = _ColumnType("f", "floats", np.float32)
_INTEGERS = _ColumnType("iu", "integers", np.int64)
_BOOLEANS = _ColumnType("b", "booleans", np.bool_)


class _ColumnRule(NamedTuple):
    """The rule for the values of a parameter, which is an array with one value per row: a column of the batch."""

    type: _ColumnType
    allowed: str  # the allowed values in words, for messages
    are_allowed: Callable[[NDArray[Any]], Mask]  # returns for each value whether it is allowed; False for NaN
    off_value: float  # the value for a row without the parameter, for seed and top_k not an allowed value


def _are_finite(values: NDArray[Any]) -> Mask:
    return np.abs(values) <= FLOAT32_MAX


def _are_positive_and_finite(values: NDArray[Any]) -> Mask:
    return (values > 0) & _are_finite(values)


_COLUMN_RULES: Mapping[str, _ColumnRule] = {
    "repetition_penalty": _ColumnRule(_FLOATS, "> 0 and finite", _are_positive_and_finite, off_value=1.0),
    "frequency_penalty": _ColumnRule(_FLOATS, "a finite float32", _are_finite, off_value=0.0),
    "presence_penalty": _ColumnRule(_FLOATS, "a finite float32", _are_finite, off_value=0.0),
    "temperature": _ColumnRule(_FLOATS, "> 0 and finite", _are_positive_and_finite, off_value=1.0),
    "top_k": _ColumnRule(_INTEGERS, "> 0 and < the vocabulary", lambda values: values > 0, off_value=0),
    "top_p": _ColumnRule(_FLOATS, "> 0 and ≤ 1", lambda values: (values > 0) & (values <= 1), off_value=1.0),
    "seed": _ColumnRule(_INTEGERS, "≥ 0", lambda values: values >= 0, off_value=-1),
    "do_sample": _ColumnRule(
        _BOOLEANS, "true or false", lambda values: np.ones(values.shape, np.bool_), off_value=False
    ),
}


@dataclass(frozen=True, eq=False)
class SamplingParam:
    """The sampling parameters of each row. `from_numpy` describes the arguments.

    An array is None if no row has the parameter. If only some rows have it, the entries of the other rows are 1 in
    ``repetition_penalty``, ``temperature`` and ``top_p``, 0 in ``frequency_penalty``, ``presence_penalty`` and
    ``top_k``, and -1 in ``seed``. If any array is passed, ``do_sample`` is computed for every row.
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
        arrays = {name: getattr(self, name) for name in _COLUMN_RULES if getattr(self, name) is not None}
        _check_to_tensor(self.to_tensor, arrays)
        columns = {name: _check_column(name, array) for name, array in arrays.items()}
        values = {name: column.values for name, column in columns.items()}
        _check_row_counts(values)
        if values:  # without do_sample, rows with a temperature would be greedy
            values["do_sample"] = _rows_to_sample(columns)
        for name, array in values.items():
            object.__setattr__(self, name, array)

    @classmethod
    def from_numpy(  # noqa: PLR0913, PLR0917 - the interface defines these arguments
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
        """Check the parameters of a batch: each is an array with one value per row, (B,), or None.

        If only some rows have a parameter, the entries of the other rows are masked (``numpy.ma``).

        Args:
            repetition_penalty: > 0; 1 = off.
            frequency_penalty: the amount subtracted per occurrence; 0 = off, below 0 rewards repetition.
            presence_penalty: the amount subtracted from tokens that occur; 0 = off, below 0 rewards repetition.
            temperature: > 0.
            top_k: number of tokens to keep, > 0 and < V.
            top_p: probability mass to keep, > 0 and ≤ 1; 1 = off.
            seed: ≥ 0, of which the low 32 bits are used. A row without a seed draws differently each time.
            do_sample: whether the row draws randomly; otherwise it takes the most likely token. A row with a
                top_k, a top_p below 1 or a temperature other than 1 always draws randomly. If this array is None,
                rows with a temperature, top_k, top_p or seed draw randomly.
            to_tensor: converts an array to a tensor of the logits' library; required with any parameter.

        Raises ``SamplingError``, whose message names the argument, the row, the rejected value and the allowed
        values.
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


class _Column(NamedTuple):
    """The checked values of a parameter."""

    values: NDArray[Any]  # the value of each row, (B,); a row without the parameter has its off value
    has_value: Mask  # for each row, whether it has the parameter because its entry is not masked, (B,)


def _check_column(name: str, array: object) -> _Column:
    rule = _COLUMN_RULES[name]
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in rule.type.kinds:
        raise SamplingError(f"{name}: expected {rule.type.name} of shape (B,), got {describe(array)}")
    has_value = ~np.ma.getmaskarray(array)
    values = np.ma.getdata(array)
    comparable_values = values.astype(np.float64) if rule.type is _FLOATS else values
    wrong_rows = (has_value & ~rule.are_allowed(comparable_values)).nonzero()[0]
    if wrong_rows.size:
        row = wrong_rows[0]
        raise SamplingError(f"{name}: row {row}: {values[row]} is not {rule.allowed}")
    if name == "seed":
        values = _low_32_bits(values)
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):  # masked entries may have any value
        converted_values = values.astype(rule.type.dtype)
    off_value = rule.type.dtype(rule.off_value)
    return _Column(np.where(has_value, converted_values, off_value), has_value)


def _low_32_bits(seeds: NDArray[Any]) -> NDArray[Any]:
    """Return the low 32 bits of the seeds, which the random generator uses, as in llama.cpp."""
    if seeds.dtype.itemsize <= 4:
        return seeds
    return seeds & seeds.dtype.type(0xFFFFFFFF)


def _rows_to_sample(columns: Mapping[str, _Column]) -> Mask:
    """Return for each row whether it draws its token randomly."""
    height = len(next(iter(columns.values())).values)
    is_randomness_implied = np.zeros(height, np.bool_)  # the row has a parameter of a draw
    is_randomness_needed = np.zeros(height, np.bool_)  # such a parameter would have no effect in a greedy row
    for name in ("temperature", "top_k", "top_p", "seed"):
        if name in columns:
            values, has_value = columns[name]
            is_randomness_implied |= has_value
            if name != "seed":
                is_randomness_needed |= has_value & (values != _COLUMN_RULES[name].off_value)
    if "do_sample" not in columns:
        return is_randomness_implied
    do_sample, is_set = columns["do_sample"]
    return np.where(is_set, do_sample | is_randomness_needed, is_randomness_implied)


def _check_to_tensor(to_tensor: object, arrays: Mapping[str, object]) -> None:
    """Raise ``SamplingError`` unless `to_tensor` can be called, or is None and there are no ``arrays``."""
    names = [name for name, array in arrays.items() if array is not None]
    if to_tensor is None and names:
        raise SamplingError(f"to_tensor: required with {names[0]}")
    if to_tensor is not None and not callable(to_tensor):
        raise SamplingError(f"to_tensor: expected a function, got {describe(to_tensor)}")


def _check_row_counts(arrays: Mapping[str, NDArray[Any] | None]) -> None:
    """Raise ``SamplingError`` if two arrays have different numbers of rows."""
    heights = {name: len(array) for name, array in arrays.items() if array is not None}
    first_name = next(iter(heights), "")
    for name, height in heights.items():
        if height != heights[first_name]:
            raise SamplingError(f"{name}: {height} rows, while {first_name} has {heights[first_name]}")


@dataclass(eq=False)
class RowPlan:
    """The parameters of every row, each array (B,)."""

    # Rows without a parameter have the value that switches it off.

    repetition_penalty: Floats
    frequency_penalty: Floats
    presence_penalty: Floats
    temperature: Floats
    top_k: Ints  # Number of tokens to keep; 0 = off. Greedy rows have 1.
    top_p: Floats
    seed: Ints  # the seed; -1 = none
    do_sample: Mask

    @classmethod
    def from_param(cls, param: SamplingParam, height: int, width: int) -> RowPlan:
        """Return the plan for logits of a certain shape."""
        # Raises ``SamplingError`` if the parameters have another number of rows, or a top_k is too large.
        values: dict[str, NDArray[Any]] = {}
        for field in fields(cls):
            array = getattr(param, field.name)
            if array is None:
                rule = _COLUMN_RULES[field.name]
                values[field.name] = np.full(height, rule.off_value, rule.type.dtype)
            elif array.size == height:
                values[field.name] = array.copy()
            else:
                raise SamplingError(f"{field.name}: {array.size} rows, while logits has {height}")
        plan = cls(**values)
        too_large_rows = (plan.top_k >= width).nonzero()[0]
        if too_large_rows.size:
            row = too_large_rows[0]
            raise SamplingError(f"top_k: row {row}: {plan.top_k[row]} is not > 0 and < {width}, the vocabulary")
        # A temperature that is 0 in float32 leaves only the most likely token, as in the sampler `temperature`.
        is_greedy = ~plan.do_sample | (plan.temperature == 0)
        plan.keep_only_best(is_greedy.nonzero()[0])
        return plan

    @property
    def has_penalty(self) -> Mask:
        """For each row, whether it has a penalty, (B,)."""
        has_additive_penalty = (self.frequency_penalty != 0) | (self.presence_penalty != 0)
        return (self.repetition_penalty != 1) | has_additive_penalty

    def keep_only_best(self, rows: Ints) -> None:
        """Make some rows greedy: only the most likely token remains, with an unchanged logit."""
        self.temperature[rows] = 1
        self.top_k[rows] = 1
        self.top_p[rows] = 1


def is_token(ids: Ids, width: int) -> Mask:
    """Return for each entry whether it is a token id below ``width``, and not padding; in the shape of ``ids``."""
    # One comparison suffices, since a negative integer read as unsigned is very large.
    unsigned_dtype = ids.dtype.str.replace("i", "u")
    is_below_width: Mask = ids.view(unsigned_dtype) < width
    return is_below_width


def row_lengths(ids: Ids, width: int) -> Ints:
    """Return the number of tokens in each row of ``ids``, (B, L), without padding: int64 (B,)."""
    return np.count_nonzero(is_token(ids, width), axis=1).astype(np.int64)
