"""The bodies of requests, and what they ask for, whichever client wrote them.

Clients have several names for one thing. Each route accepts all of these names. The answer names the fields that
have no effect, see `fields_without_effect`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, field_validator

from ..common.errors import InvalidFieldError
from ..common.strict_json import encode_exact_json, without_whole_floats
from ..common.strict_model import Json, StrictModel, validated
from ..common.text import short_repr
from ..logprobs.openai import ReasoningFormat
from ..presets.errors import PresetError
from ..presets.foreign import lists
from ..presets.overrides import Override
from ..presets.parameter_names import request_names
from ..presets.setting_table import SETTINGS
from ..presets.text_rules import check_bans
from ..presets.world_info import read_world_info
from .grammar_fields import GRAMMAR_FIELDS, ResponseFormat, StructuredOutputs, TextOptions
from .messages import ChatMessage, PlacedMessage, placed_messages
from .sampler_fields import SamplerFields, banned_texts, first_given
from .setting_fields import setting_fields
from .thinking import ThinkingFields, read_thinking
from .unknown_fields import TooManyFieldsError, UnknownFieldError, fields_without_effect

MAX_CHOICES = 128  # the maximum of ``n``, as in OpenAI's API


class ToolChoice(StrictModel):
    """Whether the answer has to call a tool. No answer does, so a request that requires it is an error."""

    tool_choice: Any = None
    function_call: Any = None

    @field_validator("tool_choice", "function_call")
    @classmethod
    def _check_is_optional(cls, value: object) -> object:
        mode = _tool_mode(value) if isinstance(value, dict) else value
        if mode and mode not in ("none", "auto"):
            raise ValueError(f"{short_repr(value)} is not none or auto; no tools are called")
        return value


def _tool_mode(choice: Mapping[str, Any]) -> object:
    """Return the mode of a choice that is a table, such as ``{"type": "function", "function": …}``."""
    allowed_tools = choice.get("allowed_tools")
    if isinstance(allowed_tools, dict):
        return allowed_tools.get("mode")
    return choice.get("type", "function")


# A draft has at most as many tokens, because other requests wait while the draft model computes them.
MAX_DRAFT_TOKENS = 64


class StreamOptions(StrictModel):
    """OpenAI's ``stream_options``."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


# Settings that have fields for a part of their value, or for another form of it. `_grammar`, `_bans` and
# `_guidance` read these fields. The system message of a request is one of its messages.
_READ_BY_FUNCTIONS = ("grammar", "bans", "guidance", "phases", "system", "world_info")


def _fields_of_setting(name: str) -> tuple[str, ...]:
    """Return the fields that set a setting: its own name, and the names of other tools."""
    names = request_names(SETTINGS[name].names)
    return names if name in names else (name, *names)


_FIELDS_OF_SETTING = {name: _fields_of_setting(name) for name in SETTINGS if name not in _READ_BY_FUNCTIONS}
_SETTING_OF_FIELD = {field: name for name, fields in _FIELDS_OF_SETTING.items() for field in fields}

if TYPE_CHECKING:

    class _SettingFields(StrictModel):
        bans: Any = None
        guidance: Json | None = None
        phases: Any = None
        memory: str | None = None
        authors_note: str | Json | None = None
        world_info: Json | list[Any] | None = None
        stop_sequence: str | list[str] | None = None
else:
    _SettingFields = setting_fields(
        {**_SETTING_OF_FIELD, **{name: name for name in _READ_BY_FUNCTIONS if name != "system"}}
    )


class GenerationFields(ToolChoice, SamplerFields, ThinkingFields, _SettingFields):
    """The fields that every route for text has."""

    every_stream_tells_confidence: ClassVar[bool] = False
    model: str | None = None
    preset: str | None = None
    chain: str | None = None
    set_: list[str] | Json | None = Field(default=None, alias="set")
    stop_token_ids: list[int] | None = None
    grammar_string: str | None = None
    json_schema: Json | bool | str | None = None
    response_format: ResponseFormat | None = None
    text: TextOptions | None = None
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
    chat_template_kwargs: Json | None = None

    @property
    def tells_confidence(self) -> bool:
        """Whether the answer tells its confidence, which is usually a part of its usage."""
        if self.stream and not self.every_stream_tells_confidence:
            return self.stream_options is not None and bool(self.stream_options.include_usage)
        return True

    def without(self, names: Iterable[str]) -> Self:
        """Return a copy in which the given fields among these names are absent."""
        return self.model_copy(update=dict.fromkeys(self.model_fields_set.intersection(names)))

    @field_validator("stopping_strings", "custom_stopping_strings", mode="before")
    @classmethod
    def _read_strings(cls, value: Any) -> Any:
        """Return the strings of a text such as ``"a", "b"`` or ``["a", "b"]``; another text is one string."""
        if not isinstance(value, str):
            return value
        is_list = lists.is_quoted_list(value) or value.lstrip().startswith("[")
        return _read_or_keep(lists.read_strings, value) if is_list else value

    @field_validator("stop_token_ids", "logprob_token_ids", mode="before")
    @classmethod
    def _read_ids(cls, value: Any) -> Any:
        """Return the ids of a text such as ``13, 198``."""
        return _read_or_keep(lists.read_token_ids, value) if isinstance(value, str) else value


def _read_or_keep(reader: Callable[[Any], Any], value: Any) -> Any:
    """Return what a reader makes of a value. A wrong value is kept, so that the check of its type reports it."""
    try:
        return reader(value)
    except ValueError:
        return value


class PromptFields(GenerationFields):
    """A text to be continued, or several.

    ``beginning``: the end of the prompt if it is the beginning of the answer. A grammar reads it first.
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


class TokenPromptFields(PromptFields):
    """A prompt that a chat template has made, perhaps with the beginning of the answer.

    ``answer_start``: the number of its tokens before the answer, which then has parts; None: another prompt.
    """

    answer_start: Annotated[int, Field(ge=0)] | None = None


class MessageFields(GenerationFields):
    """A conversation to be answered, in whichever form an API has it."""

    conversation_field: ClassVar[str]  # the field that has the messages, for errors
    add_generation_prompt: bool | None = None
    # which part of the last message is continued; true: the reasoning if there is only that
    continue_final_message: bool | Literal["content", "reasoning_content"] | None = None

    @abstractmethod
    def placed_messages(self) -> list[PlacedMessage]:
        """Return the messages with their paths."""

    def without_effect(self) -> Iterable[str]:
        """Return the paths of fields that cannot be honored, besides those of every route."""
        return ()

    def repeated(self) -> Json | None:
        """Return the fields that the answer repeats; None for an API whose answers repeat none."""
        return None

    def logged(self) -> Sequence[Any]:
        """Return what a log of prompts contains."""
        return [placed.message.template_message() for placed in self.placed_messages()]


class ChatFields(MessageFields):
    """The messages of a chat."""

    conversation_field = "messages"
    messages: list[ChatMessage] = Field(min_length=1)
    reasoning_format: ReasoningFormat | None = None

    def placed_messages(self) -> list[PlacedMessage]:
        """Return the messages with their paths."""
        return placed_messages(self.messages)


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
    fields: GenerationFields,
    names: Sequence[str],
    *,
    has_both_sources: bool = False,
    has_usage: bool = False,
    has_running_usage: bool = False,
) -> list[str]:
    """Return the names of given fields that an API's answers have no place for."""
    # ``names``: the fields without a place, besides those that depend on the other arguments.
    # ``has_both_sources``: whether the answers have a place for a second source of logprobs.
    # ``has_usage``: whether a stream can end with its usage, as ``stream_options`` asks for.
    # ``has_running_usage``: whether each of its parts can have the usage so far.
    model_fields = type(fields).model_fields
    without_place = [model_fields[name].alias or name for name in names if getattr(fields, name)]
    if fields.logprobs_from == "both" and not has_both_sources:
        without_place.append("logprobs_from")
    options = fields.stream_options
    if options is None:
        return without_place
    can_end_with_usage = has_usage and fields.stream
    if options.include_usage and not can_end_with_usage:
        without_place.append("stream_options")
    elif options.continuous_usage_stats and not (has_running_usage and options.include_usage):
        without_place.append("stream_options.continuous_usage_stats")
    return without_place


def read_settings(fields: GenerationFields, unused: list[str]) -> list[Override]:
    """Return the settings of a request other than those of the chain. Raises ``InvalidFieldError``."""
    overrides = list(_settings_by_name(fields, unused))
    overrides += _grammar(fields)
    overrides += _bans(fields)
    overrides += _guidance(fields, unused)
    overrides += _phases(fields)
    overrides += read_world_info_field(fields.world_info, unused)
    overrides += read_thinking(fields, overrides, unused)
    return overrides


def read_world_info_field(value: Json | list[Any] | None, unused: list[str]) -> Iterator[Override]:
    """Yield the world info of a request. Paths of parts without effect are added to ``unused``."""
    if value is None:
        return
    try:
        world_info, remarks = read_world_info(value)
    except InvalidFieldError as error:
        raise InvalidFieldError(error.problem, ("world_info", *error.place)) from None
    unused += [f"world_info.{remark.place}" for remark in remarks]
    yield Override("world_info", "world_info", world_info.model_dump(exclude_defaults=True))


def _phases(fields: GenerationFields) -> Iterator[Override]:
    if fields.phases is not None:
        yield Override("phases", "phases", without_whole_floats(fields.phases))


def _settings_by_name(fields: GenerationFields, unused: list[str]) -> Iterator[Override]:
    """Yield the settings that fields set under any name. Names with another value are added to ``unused``."""
    for setting, names in _FIELDS_OF_SETTING.items():
        name, value = first_given(fields, names, unused)
        if value is None or (setting == "reasoning_effort" and value == ""):  # clients send it for no value
            continue
        if setting == "stop":
            texts = [value] if isinstance(value, str) else value
            value = [text for text in texts if text]  # clients send empty strings, which stop nothing
        is_unlimited = name == "rewind_count_max" and value <= 0
        if not is_unlimited:
            yield Override(name, setting, without_whole_floats(value))


def _guidance(fields: GenerationFields, unused: list[str]) -> Iterator[Override]:
    """Yield the settings of guidance. The table ``guidance`` takes precedence over the fields for its values.

    Names of fields that the table overrides with another value are added to ``unused``.
    """
    table = fields.guidance or {}
    if fields.guidance is not None:
        yield Override("guidance", "guidance", without_whole_floats(table))
    scale_name, scale = first_given(fields, ("guidance_scale", "cfg_scale"), unused)
    if scale is not None:
        if "scale" not in table:
            yield Override(scale_name, "guidance", {"scale": scale})
        elif table["scale"] != scale:
            unused.append(scale_name)
    negative_prompt = fields.negative_prompt
    if negative_prompt:  # clients send an empty one if their user wrote none
        if "negative_prompt" not in table:
            yield Override("negative_prompt", "guidance", {"negative_prompt": negative_prompt})
        elif table["negative_prompt"] != negative_prompt:
            unused.append("negative_prompt")


def _bans(fields: GenerationFields) -> Iterator[Override]:
    """Yield the bans of all fields together."""
    bans_by_field = {} if fields.bans is None else {"bans": fields.bans}
    bans_by_field |= banned_texts(fields)
    bans_by_field = {name: without_whole_floats(bans) for name, bans in bans_by_field.items()}
    if not bans_by_field:
        return
    first_name, *other_names = bans_by_field
    if not other_names:
        yield Override(first_name, "bans", bans_by_field[first_name])
        return
    all_bans = []
    for name, bans in bans_by_field.items():
        all_bans += _checked_bans(name, bans)
    yield Override(first_name, "bans", all_bans)


def _checked_bans(name: str, value: Any) -> list[Any]:
    """Return the bans of one field of several. Raises ``InvalidFieldError``."""
    try:
        return check_bans(value)
    except PresetError as error:
        raise InvalidFieldError(error.problem, (name, *error.place[1:])) from None  # instead of the setting's name


def _grammar(fields: GenerationFields) -> Iterator[Override]:
    """Yield the grammar of a request. Raises ``InvalidFieldError`` if fields set different grammars."""
    grammar_by_field = _grammars_by_field(fields)
    if not grammar_by_field:
        return
    first_name, *other_names = grammar_by_field
    grammar = grammar_by_field[first_name]
    if any(grammar_by_field[name] != grammar for name in other_names):
        names = " and ".join(grammar_by_field)
        raise InvalidFieldError(f"{names} both set a grammar; use one of them", field=other_names[0])
    yield Override(first_name, "grammar", grammar)


def _grammars_by_field(fields: GenerationFields) -> dict[str, str | Json]:
    """Return the grammars of a request, as a preset writes them, by the names of their fields."""
    grammars: dict[str, str | Json] = {}
    for name, read in GRAMMAR_FIELDS.items():
        value = getattr(fields, name)
        grammar = None if value is None else read(name, value)
        if grammar is not None:
            grammars[name] = grammar
    return grammars


def set_arguments(values: list[str] | Json) -> list[str]:
    """Return settings as ``--set`` accepts them, such as ``top_k.k=40``."""
    # ``values``: these texts already, or a table such as ``{"top_k.k": 40}``
    if isinstance(values, list):
        return values
    return [f"{name}={encode_exact_json(setting_value(name, value))}" for name, value in values.items()]


def setting_value(name: str, value: Any) -> Any:
    """Return a setting with whole floats as integers."""
    # A grammar is left as it is, because it may be a JSON Schema, whose numbers must not change.
    return value if name == "grammar" else without_whole_floats(value)
