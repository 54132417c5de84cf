"""Messages in one sentence: values, near names and refused fields in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from reprlib import Repr
from typing import Any

from pydantic import BaseModel, ValidationError

from ..common import nearest_name, problem_message
from ..samplers import Sampler, SamplingError, make_sampler
from .errors import PresetError

_MAX_VALUE_CHARACTERS = 60
_SIMILARITY = 0.5
"""From this similarity on, a known name is suggested (see `difflib`)."""

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _MAX_VALUE_CHARACTERS


def shorten(value: Any) -> str:
    """Return the value as Python writes it, cut to a length that fits into a sentence."""
    return _REPR.repr(value)


def name_hint(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean X?`` if a known name is similar, else ``known: A, B``."""
    names = list(known)
    near = nearest_name(name.lower(), names, _SIMILARITY)
    return f"did you mean {near}?" if near else f"known: {', '.join(names) or 'none'}"


def check_keys(model: type[BaseModel], table: Mapping[Any, Any]) -> None:
    """Raise ``PresetError`` for the first key that is no field of the model, with the nearest that is."""
    for key in table:
        if key not in model.model_fields:
            raise PresetError(f"unknown key {shorten(key)}; {name_hint(str(key), model.model_fields)}")


def field_message(error: ValidationError, table: Mapping[str, Any], needed: Mapping[str, str]) -> str:
    """Return one sentence for the first problem that pydantic found; ``needed``: what each field takes, in words.

    A validator of this room writes the whole sentence itself.
    """
    first = error.errors()[0]
    if first["type"] == "value_error":
        return problem_message(first)
    key = str(first["loc"][0])
    return f"{key}: {shorten(table[key])} is not {needed[key]}"


def make_step(name: str, params: Mapping[str, Any], origin: str, parameter: str | None = None) -> Sampler:
    """Return a sampler with these parameters.

    Args:
        name: the sampler.
        params: its parameters.
        origin: the flag or key that gave one of them, or asked for the sampler.
        parameter: the one that it gave; None: none of them.

    Raises ``PresetError`` that begins with the origin: ``--top-p: 1.5 is not within 0..1``.
    """
    try:
        return make_sampler({name: dict(params)}, origin="")
    except SamplingError as error:
        # The origin stands for sampler and parameter; what follows them (a key of a table) stays.
        message = str(error).removeprefix(f".{name}").removeprefix(f".{parameter}")
        raise PresetError(f"{origin}{message}") from None
