"""A preset: its fields, their validation, and loading a preset by name or path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from ..common.errors import place_suffix, wrong_value
from ..common.text import unknown_name
from ..samplers.base import Sampler
from ..samplers.building import make_sampler, parse_chain
from ..samplers.errors import SamplingError
from .errors import PresetError
from .search import find_preset
from .setting_table import SETTINGS, Setting
from .text_rules import last_chain
from .yaml_reader import read_table

# llama.cpp's default chain, without the steps that are off in it
DEFAULT_CHAIN: tuple[Any, ...] = (
    {"penalties": {"last_n": 64, "repeat": 1.0}},
    {"top_k": 40},
    {"top_p": 0.95},
    {"min_p": 0.05},
    {"temperature": 0.8},
    "dist",
)

_CHAIN_VALUES = "a list of steps, or a string such as 'top_k40 > temp0.8'"


class _ChainFields(BaseModel):
    """The fields of a preset that are not in the table of settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    description: str = Field(default="", description="what the preset is for, in one line")
    chain: list[Any] | str = Field(
        default=list(DEFAULT_CHAIN), description="the samplers, in the order in which they are applied"
    )


def _field(setting: Setting) -> Any:
    """Return the type and the default of a setting's field, as pydantic reads them."""
    kind = setting.kind
    annotation = kind.type
    if kind.minimum is not None or kind.maximum is not None:
        annotation = Annotated[annotation, Field(ge=kind.minimum, le=kind.maximum)]
    if kind.other is not None:
        annotation |= Literal[kind.other]
    if kind.empty is None:
        annotation |= None
    if kind.check is not None:
        annotation = Annotated[annotation, BeforeValidator(kind.check)]
    if kind.schema is not None:
        annotation = Annotated[annotation, WithJsonSchema(kind.schema)]
    return annotation, Field(default=kind.empty, description=setting.help)


_SettingFields: Any = create_model(
    "_SettingFields", __base__=_ChainFields, **{name: _field(setting) for name, setting in SETTINGS.items()}
)


class Preset(_SettingFields):
    """Settings for a generation. The fields are the keys of a preset file: description, chain, all other settings.

    The properties `name`, `source` and `origin` are not keys; they identify the file. For values that are not
    allowed, the constructor raises pydantic's ``ValidationError``, and `from_table` raises ``PresetError``.
    """

    model_config = ConfigDict(title="logitsmith preset")

    allowed_values: ClassVar[Mapping[str, str]] = {
        "description": "a string",
        "chain": _CHAIN_VALUES,
        **{name: setting.kind.allowed for name, setting in SETTINGS.items()},
    }
    """The allowed values of each key, as noun phrases for messages."""

    _name: str = PrivateAttr(default="")
    _source: str = PrivateAttr(default="")
    _origin: str = PrivateAttr(default="")
    _samplers: tuple[Sampler, ...] | None = PrivateAttr(default=None)

    @property
    def name(self) -> str:
        """The name of the preset; empty if the preset does not come from a file."""
        return self._name

    @property
    def source(self) -> str:
        """The path of the file as a string, or ``built-in``; empty if the preset does not come from a file."""
        return self._source

    @property
    def origin(self) -> str:
        """The start of messages about the preset, such as ``mine.yaml``; empty if it does not come from a file."""
        return self._origin

    @classmethod
    def from_table(
        cls, table: Mapping[Any, Any], origin: str = "preset", name: str = "", source: str = ""
    ) -> Preset:
        """Return the preset with these keys and values.

        Args:
            table: the keys and values.
            origin: the start of messages, such as ``mine.yaml``.
            name: name of the preset, for `name`.
            source: the path of the file, or ``built-in``, for `source`.

        Raises ``PresetError`` that names the key, the value and the allowed values.
        """
        for key in table:
            if key not in cls.model_fields:
                raise PresetError(unknown_name("key", key, cls.model_fields), origin=origin)
        try:
            preset = cls.model_validate(dict(table))
        except ValidationError as error:
            first_error = error.errors()[0]
            if first_error["type"] == "value_error":  # an error that a validator of this package raised
                raise PresetError.of(first_error["ctx"]["error"]).within(origin) from None
            key = str(first_error["loc"][0])
            problem = wrong_value(table[key], cls.allowed_values[key])
            raise PresetError(problem, origin=origin, place=(key,)) from None
        preset._name = name
        preset._source = source
        preset._origin = origin
        return preset

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the preset sets, by name."""
        values = {name: getattr(self, name) for name in SETTINGS if name in self.model_fields_set}
        return {name: value for name, value in values.items() if value is not None}

    def samplers(self) -> list[Sampler]:
        """Return the samplers of `chain`, with validated parameters. They are not part of a chain yet."""
        return list(_default_samplers() if self._samplers is None else self._samplers)

    @model_validator(mode="after")
    def _parse_chain(self) -> Preset:
        chain_of_phase = last_chain(self.settings.get("phases"))
        if "chain" in self.model_fields_set:
            if chain_of_phase is not None:
                problem = "the last phase has a chain, and so has the preset"
                raise PresetError(problem, place=("phases",), advice="write one of them")
            self._samplers = tuple(parse_chain(self.chain))
        elif chain_of_phase is not None:
            self._samplers = tuple(parse_chain(chain_of_phase))
        return self

    @property
    def has_chain(self) -> bool:
        """True if the preset sets the chain, as a key or in its last phase."""
        return "chain" in self.model_fields_set or last_chain(self.settings.get("phases")) is not None

    @field_validator("chain", mode="before")
    @classmethod
    def _check_chain_type(cls, value: object) -> object:
        if not isinstance(value, (list, str)):
            raise PresetError(wrong_value(value, _CHAIN_VALUES), place=("chain",))
        return value


@cache
def _default_samplers() -> tuple[Sampler, ...]:
    return tuple(parse_chain(DEFAULT_CHAIN))


def load_preset(name_or_path: str) -> Preset:
    """Load a preset by its name on the search path, or by the path of its file.

    Raises ``PresetError`` that names the file, the place in it, the value and the allowed values.
    """
    entry = find_preset(name_or_path)
    origin = name_or_path if entry.origin == "path" else entry.path.name
    source = "built-in" if entry.origin == "built-in" else str(entry.path)
    return Preset.from_table(read_table(entry.path, origin), origin=origin, name=entry.name, source=source)


def make_step(name: str, params: Mapping[str, Any], origin: str, parameter: str | None = None) -> Sampler:
    """Return a sampler. Messages begin with ``origin``, as ``--top-p: 1.5 is not within 0..1`` does."""
    # ``origin``: the flag or key that set one of the parameters, or that inserted the sampler.
    # ``parameter``: the parameter that the origin set; None if it set none.
    try:
        return make_sampler({name: dict(params)}, origin="")
    except SamplingError as error:
        # The origin stands for the sampler and the parameter. The rest of the place, such as the key of a table,
        # follows it.
        place = error.place[1:]
        if place and place[0] == parameter:
            place = place[1:]
        raise PresetError.of(error.at(origin + place_suffix(place))) from None
