"""How each row is to be sampled: what the batch sampler is told, its rules, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import describe
from ..base import FLOAT32_MAX
from ..errors import SamplingError
from .data import Floats, Ints, Mask, ToTensor, check_heights, check_to_tensor


class _Rule(NamedTuple):
    """What one array holds, a value a row."""

    kinds: str
    """NumPy's letters for the dtypes that are taken."""
    values: str
    """Them in words."""
    allowed: str
    """The range in words."""
    test: Callable[[NDArray[Any]], Mask]
    """Which values are in range; a NaN is not."""
    neutral: float
    """What stands for a row that does not have the parameter; for a seed and top_k, a value out of range."""
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
    """How each row is to be sampled; made by `from_numpy`. An array is None if no row has the parameter.

    Where a row does not have it: penalties 1, 0, 0; temperature 1; top_k 0; top_p 1; seed -1.
    """

    repetition_penalty: Floats | None = None
    frequency_penalty: Floats | None = None
    presence_penalty: Floats | None = None
    temperature: Floats | None = None
    top_k: Ints | None = None
    top_p: Floats | None = None
    seed: Ints | None = None
    do_sample: Mask | None = None
    to_tensor: ToTensor | None = None

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

        ``repetition_penalty`` > 0, 1 is none; ``frequency_penalty`` and ``presence_penalty``: 0 is none, below 0
        rewards; ``temperature`` > 0; ``top_k`` > 0 and < V; ``top_p`` > 0 and ≤ 1; ``seed`` ≥ 0, of which the
        low 32 bits count, without one no draw is like another. ``to_tensor``: needed if anything is given.
        ``do_sample``: draw, or take the most likely token? False becomes True in a row with a temperature that is
        not 1, a top_p below 1 or a top_k. Without the array a row is sampled if it has a temperature, top_k, top_p
        or seed. In a batch where only some rows have a parameter, the others are masked (``numpy.ma``).
        Raises ``SamplingError`` that names the argument, the row, what is allowed and what came.
        """
        came = {
            "repetition_penalty": repetition_penalty,
            "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "do_sample": do_sample,
        }
        check_to_tensor(to_tensor, came)
        checked = {name: _vector(name, array) for name, array in came.items() if array is not None}
        values = {name: array for name, (array, _) in checked.items()}
        check_heights(values)
        if values:
            values["do_sample"] = _sampled(checked)
        return cls(**values, to_tensor=to_tensor)


def _vector(name: str, values: object) -> tuple[NDArray[Any], Mask]:
    """One value a row, (B,), and which rows have one: all, but for the masked entries of a masked array."""
    rule = _RULES[name]
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in rule.kinds:
        raise SamplingError(f"{name}: expected {rule.values} of shape (B,), got {describe(values)}")
    given = ~np.ma.getmaskarray(values)
    plain = np.ma.getdata(values)
    wide = plain.astype(np.float64) if rule.kinds == "f" else plain
    wrong = (given & ~rule.test(wide)).nonzero()[0]
    if wrong.size:
        raise SamplingError(f"{name}: row {wrong[0]}: {plain[wrong[0]]} is not {rule.allowed}")
    if name == "seed" and plain.dtype.itemsize > 4:  # the generator's seeds have 32 bits, as llama.cpp's have
        plain = plain & plain.dtype.type(0xFFFFFFFF)
    if plain.dtype == np.uint64:
        plain = np.minimum(plain, np.uint64(np.iinfo(np.int64).max))
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):  # what is not given may hold anything
        return np.where(given, plain.astype(rule.dtype), rule.dtype(rule.neutral)), given


def _sampled(checked: Mapping[str, tuple[NDArray[Any], Mask]]) -> Mask:
    """Which rows draw their token."""
    nowhere = np.zeros(len(next(iter(checked.values()))[0]), np.bool_)
    has_any, has_effect = nowhere.copy(), nowhere.copy()
    for name in ("temperature", "top_k", "top_p", "seed"):
        if name in checked:
            values, given = checked[name]
            has_any |= given
            has_effect |= given & (values != _RULES[name].neutral) & (name != "seed")
    wanted, said = checked.get("do_sample", (nowhere, nowhere))
    return np.where(said, wanted | has_effect, has_any)


@dataclass(eq=False)
class Plan:
    """What is to be done with each row, (B,); a row without a parameter has what leaves it alone."""

    repetition_penalty: Floats
    frequency_penalty: Floats
    presence_penalty: Floats
    temperature: Floats
    top_k: Ints
    """0: off. A greedy row is one with top_k 1."""
    top_p: Floats
    seed: Ints
    """-1: none."""
    do_sample: Mask

    @classmethod
    def of(cls, param: SamplingParam, height: int, width: int) -> Plan:
        """Lay out the parameters for logits (``height``, ``width``); raise ``SamplingError`` if they don't fit."""
        values: dict[str, NDArray[Any]] = {}
        for field in fields(cls):
            array, rule = getattr(param, field.name), _RULES[field.name]
            if array is not None and array.size != height:
                raise SamplingError(f"{field.name}: {array.size} rows, while logits has {height}")
            values[field.name] = np.full(height, rule.neutral, rule.dtype) if array is None else array.copy()
        plan = cls(**values)
        beyond = (plan.top_k >= width).nonzero()[0]
        if beyond.size:
            row = beyond[0]
            raise SamplingError(f"top_k: row {row}: {plan.top_k[row]} is not > 0 and < {width}, the vocabulary")
        # A temperature that float32 holds as 0 leaves the most likely token only, as in the sampler.
        plan.only_best((~plan.do_sample | (plan.temperature == 0)).nonzero()[0])
        return plan

    @property
    def penalised(self) -> Mask:
        """Which rows have a penalty."""
        added = (self.frequency_penalty != 0) | (self.presence_penalty != 0)
        return (self.repetition_penalty != 1) | added

    def only_best(self, rows: Ints) -> None:
        """Leave these rows their most likely token, at its logit."""
        self.temperature[rows] = self.top_p[rows] = 1
        self.top_k[rows] = 1
