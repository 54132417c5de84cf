"""Parsing of a batch's requests: lines in OpenAI's batch format or in the short form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ..common.errors import InvalidFieldError
from ..common.strict_json import without_whole_floats
from ..common.strict_model import Json, StrictModel, validated
from ..common.text import nearest_name, short_repr
from ..engine.token_records import LogprobRequest
from ..presets.errors import PresetError
from ..presets.overrides import Override, parse_set
from ..presets.parameter_names import PARAMETERS, request_names
from ..presets.setting_table import SETTINGS
from .asked import AskedRequest, ask
from .errors import InvalidLineError
from .fields import (
    ChatFields,
    GenerationFields,
    MessageFields,
    PromptFields,
    fields_without_place,
    read_world_info_field,
    set_arguments,
    setting_value,
)
from .messages import ChatMessage, placed_messages, template_fields_of, unused_reasoning_of
from .response_fields import ResponseFields
from .setting_fields import setting_fields
from .unknown_fields import TooManyFieldsError, UnknownFieldError, fields_without_effect


@dataclass(frozen=True)
class RequestLine:
    """A line of a batch, or of prompts to compare."""

    id: str
    number: int  # number of the line in the input, counted from 1
    asked: AskedRequest


def read_request_line(
    record: Json, number: int, *, strict_fields: bool = False, model_name: str | None = None
) -> RequestLine:
    """Return the request of a line, in whichever format it is written. Raises ``InvalidLineError``."""
    # ``model_name``: of the loaded model. A line that names it as ``MODEL:PRESET`` chooses a preset.
    is_openai_line = "custom_id" in record or "body" in record or "url" in record
    try:
        if is_openai_line:
            ignored = fields_without_effect(OpenAILine, record, is_strict=strict_fields)
            line = validated(OpenAILine, record)
            asked = _ask_openai(line, ignored, strict_fields=strict_fields)
            if model_name is not None:
                asked = asked.with_preset_of_model(model_name)
            return RequestLine(line.custom_id, number, asked)
        # An unknown field of the short form always is an error, because no other program writes this form.
        fields_without_effect(_ShortLine, record, is_strict=True)
        short_line = validated(_ShortLine, record)
        request_id = f"line-{number}" if short_line.id is None else str(short_line.id)
        return RequestLine(request_id, number, _ask_short(short_line))
    except UnknownFieldError as error:
        raise InvalidLineError(f"{error.path}: there is no such field{_unknown_field_hint(error)}") from None
    except (InvalidFieldError, TooManyFieldsError, PresetError) as error:
        raise InvalidLineError.of(error) from None


def find_request_id(record: object) -> str | None:
    """Return the id of a line that cannot be read, for its error; None if it has none."""
    if not isinstance(record, Mapping):
        return None
    custom_id = record.get("custom_id")
    if isinstance(custom_id, str):
        return custom_id
    short_id = without_whole_floats(record.get("id"))
    return str(short_id) if _is_id(short_id) else None


if TYPE_CHECKING:

    class _SettingFields(StrictModel):
        system: str | None = None
        grammar: Any = None
else:
    _SettingFields = setting_fields({name: name for name in SETTINGS})


class _ShortLine(_SettingFields):
    id: Annotated[str, Field(min_length=1)] | int | None = None
    prompt: str | list[int] | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    preset: str | None = None
    chain: str | None = None
    set_: list[str] | Json = Field(default_factory=list, alias="set")
    json_schema: Json | bool | None = None
    logprobs: int | None = Field(default=None, ge=-1)
    logprobs_from: Literal["model", "chain", "both"] = "model"
    trace: int | None = Field(default=None, ge=1)
    chat_template: str | None = None
    chat_template_kwargs: Json | None = None
    beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None

    @field_validator("early_stopping", mode="before")
    @classmethod
    def _check_early_stopping(cls, value: object) -> object:
        if value not in (None, True, False, "never"):
            raise ValueError(f"{short_repr(value)} is not true, false or 'never'")
        return value

    @field_validator("id", mode="before")
    @classmethod
    def _check_id(cls, value: object) -> object:
        if not _is_id(value):
            raise ValueError(f"{short_repr(value)} is not a string or an integer")
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> _ShortLine:
        if self.prompt is not None and self.messages is not None:
            raise ValueError("prompt and messages exclude each other")
        if self.grammar is not None and self.json_schema is not None:
            raise ValueError("grammar and json_schema exclude each other")
        has_template = self.chat_template is not None or self.chat_template_kwargs is not None
        if has_template and isinstance(self.prompt, list):
            raise ValueError("a chat template cannot be used with a prompt of token ids; write the prompt as text")
        if self.prompt is None and self.messages is None:
            raise ValueError("there is neither a prompt nor messages")
        return self


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _ask_short(line: _ShortLine) -> AskedRequest:
    overrides = [parse_set(argument, "set") for argument in set_arguments(line.set_)]
    unused: list[str] = []
    overrides += _settings_of(line, unused)
    if line.json_schema is not None:
        overrides.append(Override("json_schema", "grammar", {"json_schema": line.json_schema}))
    logprobs = None
    if line.logprobs is not None:
        logprobs = LogprobRequest(line.logprobs, line.logprobs_from, label="logprobs")
    elif line.logprobs_from != "model":
        raise InvalidLineError("logprobs_from needs logprobs")
    beam_settings = {
        "beam_count": line.beams,
        "length_penalty": line.length_penalty,
        "early_stopping": line.early_stopping,
    }
    messages = placed_messages(line.messages or ())
    unused += unused_reasoning_of(messages)
    asked = AskedRequest(
        prompts=() if line.prompt is None else (line.prompt,),
        messages=None if line.messages is None else [message.template_message() for message in line.messages],
        overrides=tuple(overrides),
        preset=line.preset,
        chain=line.chain,
        logprobs=logprobs,
        trace_top_count=line.trace,
        chat_template=line.chat_template,
        chat_template_kwargs=line.chat_template_kwargs,
        beam_settings={name: value for name, value in beam_settings.items() if value is not None},
        ignored=tuple(unused),
        template_fields=template_fields_of(messages, line.chat_template_kwargs),
    )
    if asked.sets_system and line.messages is not None:
        raise InvalidLineError("system and messages exclude each other")
    if asked.sets_system and isinstance(line.prompt, list):
        raise InvalidLineError("system: not used with a prompt of token ids; write the prompt as text")
    return asked


# a URL that ends in a route, such as /v1/completions, or Azure's
# https://NAME.openai.azure.com/openai/deployments/NAME/chat/completions?api-version=2024-06-01
_URL_PATTERN = re.compile(
    r"""
    (?:
        (?:https?://[^/\s]+)?   # scheme and host
        (?:/[^?\#\s]*?)??       # path before the route
        /
    )?
    (?P<route>(?:chat/)?completions|responses)
    /?
    (?:[?\#]\S*)?               # query or fragment
    """,
    re.VERBOSE,
)


class OpenAILine(StrictModel):
    custom_id: str = Field(min_length=1)
    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions", "/v1/responses"]
    body: Json

    @field_validator("url", mode="before")
    @classmethod
    def _find_route(cls, value: object) -> object:
        """Return the route at the end of a URL; the URL may be a path or have a host, as OpenAI's or Azure's."""
        if not isinstance(value, str):
            return value
        match = _URL_PATTERN.fullmatch(value)
        if match is None:
            raise ValueError(
                f"{short_repr(value)} is not answered by gen batch: it answers /v1/chat/completions,"
                " /v1/completions and /v1/responses"
            )
        return f"/v1/{match['route']}"

    @field_validator("custom_id", mode="before")
    @classmethod
    def _check_id(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"{short_repr(value)} is not a string, as OpenAI's format requires")
        return value


def _settings_of(line: _ShortLine, unused: list[str]) -> Iterator[Override]:
    """Yield the settings that a line sets. Paths of parts without effect are added to ``unused``."""
    for name in SETTINGS:
        value = getattr(line, name)
        if name == "world_info":
            yield from read_world_info_field(value, unused)
        elif value is not None:
            yield Override(name, name, setting_value(name, value))


# Fields of the server's bodies that have no effect in a batch. Its results have no place for what they ask for, or
# a flag of the batch decides it.
_NOT_IN_RESULTS = (
    "stream",
    "echo",
    "prompt_logprobs",
    "return_tokens",
    "return_tokens_as_token_ids",
    "cache_prompt",
    "speculative",
    "speculative_n_max",
    "speculative_n_min",
    "speculative_p_min",
)


_FIELDS_OF_URL: Mapping[str, type[PromptFields | MessageFields]] = {
    "/v1/completions": PromptFields,
    "/v1/chat/completions": ChatFields,
    "/v1/responses": ResponseFields,
}


def _ask_openai(line: OpenAILine, ignored: list[str], *, strict_fields: bool) -> AskedRequest:
    """Return what a line asks for."""
    # ``ignored``: the paths of fields without effect outside of the body
    fields_type = _FIELDS_OF_URL[line.url]
    ignored = ignored + fields_without_effect(fields_type, line.body, is_strict=strict_fields, place="body.")
    try:
        fields = validated(fields_type, line.body)
        prompt_count = len(fields.prompts()) if isinstance(fields, PromptFields) else 1
        if prompt_count > 1:
            problem = f"there are {prompt_count} prompts; write a line for each of them"
            raise InvalidFieldError(problem, ("prompt",))
        without_place = fields_without_place(fields, _NOT_IN_RESULTS, has_both_sources=True)
        ignored += [f"body.{name}" for name in without_place]
        fields = fields.without(_NOT_IN_RESULTS)
        return ask(fields, ignored, "body.")
    except InvalidFieldError as error:
        raise error.under("body") from None


# the setting that each name of another tool sets, as ``--set`` names it
_SETTING_OF_NAME: dict[str, str] = {}
for _row in reversed(PARAMETERS):  # if several rows have a name, the first row counts
    _SETTING_OF_NAME.update(dict.fromkeys(_row.request_names, _row.target))
for _setting in SETTINGS.values():
    _SETTING_OF_NAME.update(dict.fromkeys(request_names(_setting.names), _setting.name))


def _unknown_field_hint(error: UnknownFieldError) -> str:
    """Return the end of the error message for an unknown field."""
    if error.model is _ShortLine:
        return _unknown_short_field_hint(error.name)
    return _similar_name_hint(error.similar)


def _unknown_short_field_hint(name: str) -> str:
    """Return the end of the error message for an unknown field of the short form."""
    fields = [field.alias or attribute for attribute, field in _ShortLine.model_fields.items()]
    nearest = nearest_name(name, [*fields, *_SETTING_OF_NAME])
    if nearest in fields:
        return _similar_name_hint(nearest)
    setting = _SETTING_OF_NAME.get(name) or _SETTING_OF_NAME.get(nearest or "")
    if setting in fields:
        return f'; write "{setting}": …'
    if setting is not None:
        return f'; write "set": {{"{setting}": …}}'
    if nearest is None and name in GenerationFields.model_fields:
        return "; it is a field of OpenAI's format, whose lines have custom_id, method, url and body"
    return _similar_name_hint(nearest)


def _similar_name_hint(similar: str | None) -> str:
    return f"; did you mean {similar}?" if similar else "; logitsmith has no such setting, or cannot change it"
