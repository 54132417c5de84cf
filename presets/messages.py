"""Messages in one sentence: refused keys, fields and parameters in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from ..common.errors import problem_message
from ..common.text import shorten
from ..samplers.base import Sampler
from ..samplers.building import make_sampler
from ..samplers.errors import SamplingError
from .errors import PresetError
from .hints import name_hint


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
