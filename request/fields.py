"""The bodies of requests, and what they ask for, whichever client wrote them.

Clients say one thing under several names. Every name is accepted on every route. Fields that have no effect here
are named in the answer, see `fields_without_effect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator

from ..common.strict_json import encode_exact_json, without_whole_floats
from ..common.text import short_repr
from ..presets.errors import PresetError
from ..presets.foreign import lists
from ..presets.overrides import Override
from ..presets.parameter_names import request_names
from ..presets.setting_table import SETTINGS
from ..presets.text_rules import check_bans
from .errors import InvalidFieldError
from .grammar_fields import GRAMMAR_FIELDS, ResponseFormat, StructuredOutputs
from .messages import ChatMessage, TemplateVariables
from .sampler_fields import SamplerFields, banned_texts, first_given
from .strict_model import Json, StrictModel, setting_fields, validated
from .unknown_fields import TooManyFieldsError, UnknownFieldError, fields_without_effect

MAX_CHOICES = 128  # the maximum of ``n``, as in OpenAI's API


class ToolChoice(StrictModel):
    """Whether the answer has to call a tool. It never does, so only a request that does not insist is taken."""

    tool_choice: Any = None
    function_call: Any = None

    @field_validator("tool_choice", "function_call")
    @classmethod
    def _check_is_optional(cls, value: object) -> object:
        kind = value
        if isinstance(kind, dict):
            tools = kind.get("allowed_tools")
            kind = tools.get("mode") if isinstance(tools, dict) else kind.get("type", "function")
        if kind and kind not in ("none", "auto"):
            raise ValueError(f"{short_repr(value)} is not none or auto; no tools are called")
        return value


# Limit of the tokens that a request lets the draft model guess at a time. Other requests wait meanwhile.
MAX_DRAFT_TOKENS = 64


class StreamOptions(StrictModel):
    """OpenAI's ``stream_options``."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


# The settings whose other names hold only a part of them, or another form; functions below read these. The system
# message of a request is one of its messages.
_READ_BY_FUNCTIONS = ("grammar", "bans", "guidance", "system")
_FIELDS_OF_SETTING = {
    name: names if name in (names := request_names(setting.names)) else (name, *names)
    for name, setting in SETTINGS.items()
    if name not in _READ_BY_FUNCTIONS
}

if TYPE_CHECKING:

    class _SettingFields(StrictModel):
        bans: Any = None
        guidance: Json | None = None
        stop_sequence: str | list[str] | None = None
else:
    _SettingFields = setting_fields(
        {field: name for name, fields in _FIELDS_OF_SETTING.items() for field in fields}
        | {name: name for name in ("grammar", "bans", "guidance")}
    )


class GenerationFields(ToolChoice, SamplerFields, _SettingFields):
    """The fields that every route for text has."""

    model: str | None = None
    preset: str | None = None
    chain: str | None = None
    set_: list[str] | Json | None = Field(default=None, alias="set")
    stop_token_ids: list[int] | None = None
    grammar_string: str | None = None
    json_schema: Json | bool | str | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Json | bool | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = Field(default=None, min_length=1)
    guided_grammar: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    speculative: bool | None = None
    speculative_n_max: Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)] | None = Field(
        default=None, alias="speculative.n_max"
    )
    speculative_n_min: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="speculative.n_min")
    speculative_p_min: Annotated[float, Field(ge=0, le=1)] | None = Field(default=None, alias="speculative.p_min")
    guidance_scale: float | None = None
    cfg_scale: float | None = None
    negative_prompt: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    cache_prompt: bool | None = None
    n_cmpl: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0)] | bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    n_probs: Annotated[int, Field(ge=0)] | None = None
    post_sampling_probs: bool | None = None
    logprobs_from: Literal["model", "chain", "both"] | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0)] | bool | None = None
    return_tokens_as_token_ids: bool | None = None
    return_tokens: bool | None = None
    trace: Annotated[int, Field(ge=1)] | None = None
    echo: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: TemplateVariables | None = None

    @field_validator("stopping_strings", "custom_stopping_strings", mode="before")
    @classmethod
    def _read_strings(cls, value: Any) -> Any:
        """Return the strings of text-generation-webui's text ``"a", "b"``; another text is one string."""
        is_list = isinstance(value, str) and (lists.is_quoted_list(value) or value.lstrip().startswith("["))
        return _read_or_keep(lists.read_strings, value) if is_list else value

    @field_validator("stop_token_ids", "logprob_token_ids", mode="before")
    @classmethod
    def _read_ids(cls, value: Any) -> Any:
        """Return the ids of a text with commas."""
        return _read_or_keep(lists.read_token_ids, value) if isinstance(value, str) else value


def _read_or_keep(reader: Callable[[Any], Any], value: Any) -> Any:
    """Return what a reader makes of a value; the value itself, which is then reported, if it is a wrong one."""
    try:
        return reader(value)
    except ValueError:
        return value


class PromptFields(GenerationFields):
    """A text to be continued, or several.

    ``beginning``: the end of the prompt that belongs to the answer already, so that a grammar reads it first.
    """

    prompt: str | list[int] | list[str] | list[list[int]]
    beginning: str | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _check_prompt(cls, prompt: Any) -> Any:
        if isinstance(prompt, list) and not prompt:
            raise ValueError("the list is empty")
        return prompt

    def logged(self) -> Sequence[Any]:
        """Return what a log of prompts contains."""
        return self.prompts()

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts, each a text or token ids."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if all(isinstance(item, int) for item in prompt):
            return [prompt]  # type: ignore[list-item]
        return list(prompt)  # type: ignore[arg-type]


class ChatFields(GenerationFields):
    """The messages of a chat."""

    messages: list[ChatMessage] = Field(min_length=1)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    def logged(self) -> Sequence[Any]:
        """Return what a log of prompts contains."""
        return [message.template_message() for message in self.messages]


_Fields = TypeVar("_Fields", bound=StrictModel)


def read_body(fields_type: type[_Fields], record: object, *, is_strict: bool) -> tuple[_Fields, list[str]]:
    """Return the fields of a request, and the paths of those without effect."""
    # ``is_strict``: whether every unknown field is an error; otherwise only one whose name looks like a mistake.
    # Raises ``InvalidFieldError`` for such a field, or for a value that is not allowed.
    if not isinstance(record, dict):
        raise InvalidFieldError(f"the body is {short_repr(record)}, not a JSON object")
    try:
        ignored = fields_without_effect(fields_type, record, is_strict=is_strict)
        return validated(fields_type, record), ignored
    except UnknownFieldError as error:
        raise InvalidFieldError(error.problem, field=error.path) from None
    except TooManyFieldsError as error:
        raise InvalidFieldError(error.problem) from None


def fields_without_place(
    fields: GenerationFields, names: Sequence[str], *, has_both_sources: bool = False, has_usage: bool = False
) -> list[str]:
    """Return the names of given fields that an API's answers have no place for."""
    # ``has_both_sources``: whether the answers have a place for a second source of logprobs; ``has_usage``:
    # whether a stream can end with its usage, as ``stream_options`` asks for.
    known = type(fields).model_fields
    given = [known[name].alias or name for name in names if getattr(fields, name)]
    if fields.logprobs_from == "both" and not has_both_sources:
        given.append("logprobs_from")
    options = fields.stream_options
    if options is not None:
        if options.include_usage and not (has_usage and fields.stream):
            given.append("stream_options")
        elif options.continuous_usage_stats:
            given.append("stream_options.continuous_usage_stats")
    return given


def read_settings(fields: GenerationFields, unused: list[str]) -> list[Override]:
    """Return the settings of a request other than those of the chain. Raises ``InvalidFieldError``."""
    overrides = list(_settings_by_name(fields, unused))
    grammars = list(_grammars(fields))
    if len(grammars) > 1 and any(grammar != grammars[0][1] for _, grammar in grammars):
        names = " and ".join(name for name, _ in grammars)
        raise InvalidFieldError(f"{names} both set a grammar; use one of them", field=grammars[1][0])
    if grammars:
        overrides.append(Override(grammars[0][0], "grammar", grammars[0][1]))
    overrides += _bans(fields)
    overrides += _guidance(fields, unused)
    return overrides


def _settings_by_name(fields: GenerationFields, unused: list[str]) -> Iterator[Override]:
    """Yield the settings that fields set under any name. Names with another value are added to ``unused``."""
    for setting, names in _FIELDS_OF_SETTING.items():
        name, value = first_given(fields, names, unused)
        if setting == "stop" and value is not None:  # clients send empty strings, which stop nothing
            value = [text for text in ([value] if isinstance(value, str) else value) if text]
        has_no_limit = name == "rewind_count_max" and value <= 0
        if value is not None and not has_no_limit:
            yield Override(name, setting, without_whole_floats(value))


def _guidance(fields: GenerationFields, unused: list[str]) -> Iterator[Override]:
    """Yield the settings of guidance. Names of values that ``guidance`` sets otherwise are added to ``unused``."""
    table = fields.guidance or {}
    if fields.guidance is not None:
        yield Override("guidance", "guidance", without_whole_floats(table))
    scale_name, scale = first_given(fields, ("guidance_scale", "cfg_scale"), unused)
    # Clients send an empty negative prompt if their user wrote none.
    values = ((scale_name, "scale", scale), ("negative_prompt", "negative_prompt", fields.negative_prompt or None))
    for name, key, value in values:
        if value is not None and key not in table:
            yield Override(name, "guidance", {key: value})
        elif value is not None and table[key] != value:
            unused.append(name)


def _bans(fields: GenerationFields) -> Iterator[Override]:
    """Yield the bans of all fields, which add up."""
    bans = banned_texts(fields) if fields.bans is None else {"bans": fields.bans, **banned_texts(fields)}
    bans = {name: without_whole_floats(value) for name, value in bans.items()}
    if len(bans) == 1:
        ((name, value),) = bans.items()
        yield Override(name, "bans", value)
    elif bans:
        checked = [ban for name, value in bans.items() for ban in _checked_bans(name, value)]
        yield Override(next(iter(bans)), "bans", checked)


def _checked_bans(name: str, value: Any) -> list[Any]:
    """Return the bans of one field of several. Raises ``InvalidFieldError``."""
    try:
        return check_bans(value)
    except PresetError as error:
        raise InvalidFieldError(error.problem, (name, *error.place[1:])) from None  # instead of the setting's name


def _grammars(fields: GenerationFields) -> Iterator[tuple[str, str | Json]]:
    """Yield the grammars of a request, as a preset writes them, each with the name of its field."""
    for name, read in GRAMMAR_FIELDS.items():
        value = getattr(fields, name)
        if value is not None and (grammar := read(name, value)) is not None:
            yield name, grammar


def set_arguments(values: list[str] | Json) -> list[str]:
    """Return settings as ``--set`` accepts them; ``values``: the same, or values by the names of settings."""
    if isinstance(values, list):
        return values
    return [f"{name}={encode_exact_json(setting_value(name, value))}" for name, value in values.items()]


def setting_value(name: str, value: Any) -> Any:
    """Return a setting with whole floats as integers, except in a grammar: a JSON Schema has numbers as given."""
    return value if name == "grammar" else without_whole_floats(value)
