"""A preset: its fields, what is wrong with one, and reading one by name or path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ..common.errors import problem_message, wrong_value
from ..common.machine import SEED_MAX
from ..common.text import short_repr
from ..samplers.base import Sampler
from ..samplers.building import make_sampler, parse_chain
from ..samplers.errors import SamplingError
from .errors import PresetError, name_hint
from .search import find_preset
from .yaml_reader import read_table

DEFAULT_CHAIN: tuple[Any, ...] = (
    {"penalties": {"last_n": 64, "repeat": 1.0}},
    {"top_k": 40},
    {"top_p": 0.95},
    {"min_p": 0.05},
    {"temperature": 0.8},
    "dist",
)
"""llama.cpp's own chain, with its defaults."""

_TEXT = {"type": "string", "minLength": 1}
_Stop = Annotated[list[str], WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]})]


class Preset(BaseModel):
    """Settings for a generation, as a preset file holds them; its fields are the keys of the file.

    `name` and `source` say where it came from; they are not keys. The constructor raises pydantic's
    ``ValidationError`` for a preset that is wrong; `from_table` raises ``PresetError`` instead.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title="logitsmith preset")

    needed: ClassVar[Mapping[str, str]] = {
        "description": "a text",
        "chain": "a list of steps, or a text such as 'top_k40 > temp0.8'",
        "seed": f"a whole number within 0..{SEED_MAX}",
        "max_tokens": "a whole number ≥ 1, or -1 for no limit",
        "stop": "a text or a list of texts",
        "system": "a text",
        "grammar": "a text or an object",
    }
    """What each key takes, in words."""

    description: str = Field(default="", description="what the preset is for, in one line")
    chain: list[Any] | str = Field(
        default=list(DEFAULT_CHAIN), description="the samplers, in the order in which they work"
    )
    seed: int | None = Field(
        default=None, ge=0, le=SEED_MAX, description="seed of the random numbers; none: a new one each run"
    )
    max_tokens: Annotated[int, Field(ge=1)] | Literal[-1] | None = Field(
        default=None, description="tokens to make at most; -1: no limit"
    )
    stop: _Stop = Field(default=[], description="texts that end the generation; they are not part of it")
    system: str | None = Field(default=None, description="system message of a chat")
    grammar: str | dict[str, Any] | None = Field(
        default=None, description="what the text must match: a grammar as text, or a table"
    )

    _name: str = PrivateAttr(default="")
    _source: str = PrivateAttr(default="")
    _origin: str = PrivateAttr(default="")
    _samplers: tuple[Sampler, ...] | None = PrivateAttr(default=None)

    @property
    def name(self) -> str:
        """The name that it was found by; empty if it comes from no file."""
        return self._name

    @property
    def source(self) -> str:
        """The path of its file as text, or ``built-in``; empty if it comes from no file."""
        return self._source

    @property
    def origin(self) -> str:
        """What a message about it begins with, such as ``mine.yaml``; empty if it comes from no file."""
        return self._origin

    @classmethod
    def from_table(
        cls, table: Mapping[Any, Any], origin: str = "preset", name: str = "", source: str = ""
    ) -> Preset:
        """Return the preset of a table of keys.

        Args:
            table: the keys and values.
            origin: what a message begins with, such as ``mine.yaml``.
            name: the name that it was found by.
            source: the path of its file, or ``built-in``.

        Raises ``PresetError`` that names the key, what is allowed and what came.
        """
        try:
            check_keys(cls, table)
            preset = cls.model_validate(dict(table))
        except ValidationError as error:
            raise PresetError(f"{origin}: {field_message(error, table, cls.needed)}") from None
        except PresetError as error:
            raise PresetError(f"{origin}: {error}") from None
        preset._name, preset._source, preset._origin = name, source, origin
        return preset

    def samplers(self) -> list[Sampler]:
        """Return the samplers that `chain` names, not yet part of a chain. They were checked with the preset."""
        return list(_default_samplers() if self._samplers is None else self._samplers)

    @model_validator(mode="after")
    def _parse_chain(self) -> Preset:
        if "chain" in self.model_fields_set:
            self._samplers = tuple(parse_chain(self.chain))
        return self

    @field_validator("chain", mode="before")
    @classmethod
    def _check_chain_type(cls, value: object) -> object:
        if not isinstance(value, (list, str)):
            raise ValueError(f"chain: {short_repr(value)} is not {cls.needed['chain']}")
        return value

    @field_validator("stop", mode="before")
    @classmethod
    def _check_stop(cls, value: object) -> object:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list):
            raise ValueError(f"stop: {short_repr(value)} is not {cls.needed['stop']}")
        for number, text in enumerate(texts):
            origin = "stop" if isinstance(value, str) else f"stop[{number}]"
            if not isinstance(text, str):
                raise ValueError(f"{origin}: {short_repr(text)} is not a text")
            if not text:
                raise ValueError(f"{origin}: '' is empty, and would stop at once")
        return texts


@cache
def _default_samplers() -> tuple[Sampler, ...]:
    return tuple(parse_chain(DEFAULT_CHAIN))


def load_preset(name_or_path: str) -> Preset:
    """Return the preset of a name on the search path, or of a path.

    Raises ``PresetError`` that names the file, the place in it, what is allowed and what came.
    """
    entry = find_preset(name_or_path)
    origin = name_or_path if entry.origin == "path" else entry.path.name
    source = "built-in" if entry.origin == "built-in" else str(entry.path)
    return Preset.from_table(read_table(entry.path, origin), origin=origin, name=entry.name, source=source)


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


def check_keys(model: type[BaseModel], table: Mapping[Any, Any]) -> None:
    """Raise ``PresetError`` for the first key that is no field of the model, with the nearest that is."""
    for key in table:
        if key not in model.model_fields:
            raise PresetError(f"unknown key {short_repr(key)}; {name_hint(str(key), model.model_fields)}")


def field_message(error: ValidationError, table: Mapping[str, Any], needed: Mapping[str, str]) -> str:
    """Return one sentence for the first problem that pydantic found; ``needed``: what each field takes, in words.

    A validator of this room writes the whole sentence itself.
    """
    first = error.errors()[0]
    if first["type"] == "value_error":
        return problem_message(first)
    key = str(first["loc"][0])
    return f"{key}: {wrong_value(table[key], needed[key])}"
