"""A preset: its fields, their validation, and loading a preset by name or path."""

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
from ..common.seeds import RANDOM_SEED, SEED_MAX, SEED_MIN, SEED_VALUES
from ..common.text import short_repr, unknown_name
from ..samplers.base import Sampler
from ..samplers.building import make_sampler, parse_chain
from ..samplers.errors import SamplingError
from .errors import PresetError
from .search import find_preset
from .text_rules import check_bans, check_guidance, check_loop_guard, check_phases, last_chain
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

_TEXT = {"type": "string", "minLength": 1}
_Stop = Annotated[list[str], WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]})]


class Preset(BaseModel):
    """Settings for a generation. The fields are the keys of a preset file.

    The properties `name`, `source` and `origin` are not keys; they identify the file. For values that are not
    allowed, the constructor raises pydantic's ``ValidationError``, and `from_table` raises ``PresetError``.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title="logitsmith preset")

    allowed_values: ClassVar[Mapping[str, str]] = {
        "description": "a string",
        "chain": "a list of steps, or a string such as 'top_k40 > temp0.8'",
        "seed": SEED_VALUES,
        "max_tokens": "an integer ≥ 1, or -1 for no limit",
        "stop": "a string or a list of strings",
        "system": "a string",
        "grammar": "a string or a table",
        "bans": "a string, a table, or a list of them",
        "ban_retries": "an integer within 0..1000",
        "ban_then": "step_back, keep or stop",
        "loop_guard": "stop, end-thinking, rewind, or a table",
        "phases": "a list of tables",
        "heal": "true or false",
        "guidance": "a table",
    }
    """The allowed values of each key, as noun phrases for messages."""

    description: str = Field(default="", description="what the preset is for, in one line")
    chain: list[Any] | str = Field(
        default=list(DEFAULT_CHAIN), description="the samplers, in the order in which they are applied"
    )
    seed: int | None = Field(
        default=None,
        ge=SEED_MIN,
        le=SEED_MAX,
        description="seed of the random numbers; none or -1: a new seed for each run",
    )
    max_tokens: Annotated[int, Field(ge=1)] | Literal[-1] | None = Field(
        default=None, description="maximum number of tokens; -1: no limit"
    )
    stop: _Stop = Field(default=[], description="strings that end the generation; they are not part of the output")
    system: str | None = Field(default=None, description="system message of a chat")
    grammar: str | dict[str, Any] | None = Field(
        default=None, description="the grammar that the output must match: a name, GBNF text, or a table"
    )

    bans: list[Any] = Field(
        default=[], description="phrases and regular expressions that the output must not contain"
    )
    ban_retries: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="number of times that the text returns to one place; none: 20"
    )
    ban_then: Literal["step_back", "keep", "stop"] | None = Field(
        default=None, description="what happens then: return to the token before, keep the text, or stop"
    )
    loop_guard: str | dict[str, Any] | None = Field(
        default=None, description="what happens when the text repeats itself: an action, or a table of settings"
    )
    phases: list[dict[str, Any]] | None = Field(
        default=None, description="parts of the text with different chains, in place of chain"
    )

    heal: bool | None = Field(
        default=None, description="whether the first tokens may replace the last tokens of the prompt"
    )
    guidance: dict[str, Any] | None = Field(
        default=None, description="a scale, and a negative prompt or another model, that the text moves away from"
    )

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
        try:
            check_keys(cls, table)
            preset = cls.model_validate(dict(table))
        except ValidationError as error:
            raise PresetError(f"{origin}: {field_message(error, table, cls.allowed_values)}") from None
        except PresetError as error:
            raise PresetError(f"{origin}: {error}") from None
        preset._name, preset._source, preset._origin = name, source, origin
        return preset

    def samplers(self) -> list[Sampler]:
        """Return the samplers of `chain`, with validated parameters. They are not part of a chain yet."""
        return list(_default_samplers() if self._samplers is None else self._samplers)

    @model_validator(mode="after")
    def _parse_chain(self) -> Preset:
        chain_of_phase = last_chain(self.phases)
        if "chain" in self.model_fields_set:
            if chain_of_phase is not None:
                raise ValueError("phases: the last phase has a chain, and so has the preset; write one of them")
            self._samplers = tuple(parse_chain(self.chain))
        elif chain_of_phase is not None:
            self._samplers = tuple(parse_chain(chain_of_phase))
        return self

    @property
    def has_chain(self) -> bool:
        """True if the preset sets the chain, as a key or in its last phase."""
        return "chain" in self.model_fields_set or last_chain(self.phases) is not None

    @field_validator("seed")
    @classmethod
    def _without_random_seed(cls, seed: int | None) -> int | None:
        return None if seed == RANDOM_SEED else seed

    @field_validator("bans", mode="before")
    @classmethod
    def _check_bans(cls, value: object) -> object:
        return check_bans(value)

    @field_validator("loop_guard", mode="before")
    @classmethod
    def _check_loop_guard(cls, value: object) -> object:
        return check_loop_guard(value)

    @field_validator("guidance", mode="before")
    @classmethod
    def _check_guidance(cls, value: object) -> object:
        return check_guidance(value)

    @field_validator("phases", mode="before")
    @classmethod
    def _check_phases(cls, value: object) -> object:
        return check_phases(value)

    @field_validator("chain", mode="before")
    @classmethod
    def _check_chain_type(cls, value: object) -> object:
        if not isinstance(value, (list, str)):
            raise ValueError(f"chain: {short_repr(value)} is not {cls.allowed_values['chain']}")
        return value

    @field_validator("stop", mode="before")
    @classmethod
    def _check_stop(cls, value: object) -> object:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list):
            raise ValueError(f"stop: {short_repr(value)} is not {cls.allowed_values['stop']}")
        for number, text in enumerate(texts):
            origin = "stop" if isinstance(value, str) else f"stop[{number}]"
            if not isinstance(text, str):
                raise ValueError(f"{origin}: {short_repr(text)} is not a string")
            if not text:
                raise ValueError(f"{origin}: '' is empty; a stop string has at least one character")
        return texts


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
    # ``origin``: the flag or key that set one of the parameters, or that inserted the sampler. ``parameter``: the
    # parameter that it set; None if it set none.
    try:
        return make_sampler({name: dict(params)}, origin="")
    except SamplingError as error:
        # The origin replaces the names of sampler and parameter; the rest, such as the key of a table, is kept.
        message = str(error).removeprefix(f".{name}").removeprefix(f".{parameter}")
        raise PresetError(f"{origin}{message}") from None


def check_keys(model: type[BaseModel], table: Mapping[Any, Any]) -> None:
    """Raise ``PresetError`` for the first key that is not a field of the model; suggest the most similar field."""
    for key in table:
        if key not in model.model_fields:
            raise PresetError(unknown_name("key", key, model.model_fields))


def field_message(error: ValidationError, table: Mapping[str, Any], allowed_values: Mapping[str, str]) -> str:
    """Return a sentence for the first problem that pydantic found."""
    # If a validator of this package raised the error, its message is the whole sentence. ``allowed_values``: of
    # each key, as noun phrases
    first = error.errors()[0]
    if first["type"] == "value_error":
        return problem_message(first)
    key = str(first["loc"][0])
    return f"{key}: {wrong_value(table[key], allowed_values[key])}"
