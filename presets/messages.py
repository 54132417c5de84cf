"""Complaints in one sentence: how values, near names and failed checks are put into words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from reprlib import Repr
from typing import Any

from pydantic import BaseModel, ValidationError

from ..samplers import Sampler, SamplingError, make_sampler
from .errors import PresetError

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = 60


def shown(value: Any) -> str:
    """The value as Python writes it, cut to a length that fits into a sentence."""
    return _REPR.repr(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """``did you mean X?`` if a known name is near, else ``known: A, B``."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none'}"


def check_keys(model: type[BaseModel], table: Mapping[Any, Any]) -> None:
    """Raise ``PresetError`` for the first key that is no field of the model, with the nearest that is."""
    for key in table:
        if key not in model.model_fields:
            raise PresetError(f"unknown key {shown(key)}; {nearest(str(key), model.model_fields)}")


def field_complaint(error: ValidationError, table: Mapping[str, Any], needed: Mapping[str, str]) -> str:
    """One sentence for the first thing that pydantic found; ``needed`` says in words what a field takes.

    A validator of ours already wrote a whole sentence, with the key in front.
    """
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    key = str(first["loc"][0])
    return f"{key}: {shown(table[key])} is not {needed[key]}"


def make_step(name: str, params: Mapping[str, Any], origin: str, parameter: str | None = None) -> Sampler:
    """Return a sampler with these parameters; ``parameter`` is the one that ``origin`` gave.

    Raises ``PresetError`` with the origin in front of the complaint: ``--top-p: 1.5 is not within 0..1``.
    """
    try:
        return make_sampler({name: dict(params)}, place="")
    except SamplingError as error:
        # The origin stands for sampler and parameter; what follows them (a key of a table) stays.
        rest = str(error).removeprefix(f".{name}").removeprefix(f".{parameter}")
        raise PresetError(f"{origin}{rest}") from None
