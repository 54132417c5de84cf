"""Parsing of a batch's requests: lines in OpenAI's batch format or in the short form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from ..common.strict_json import without_whole_floats
from ..common.text import nearest_name, short_repr
from ..engine.token_records import LogprobRequest
from ..presets.errors import PresetError
from ..presets.overrides import Override, parse_set
from ..presets.parameter_names import PARAMETERS, request_names
from ..presets.setting_table import SETTINGS
from .asked import AskedRequest, ask
from .errors import InvalidFieldError, InvalidLineError
from .fields import ChatFields, GenerationFields, PromptFields, fields_without_place, set_arguments, setting_value
from .messages import ChatMessage, TemplateVariables, template_fields_of, unused_reasoning_of
from .strict_model import Json, StrictModel, setting_fields, validated
from .unknown_fields import TooManyFieldsError, UnknownFieldError, fields_without_effect


@dataclass(frozen=True)
class RequestLine:
    """A line of a batch, or of prompts to compare."""

    id: str
    number: int  # number of the line in the input, counted from 1
    asked: AskedRequest


def read_request_line(record: Json, number: int, *, strict_fields: bool = False) -> RequestLine:
    """Return the request of a line, in whichever format it is written. Raises ``InvalidLineError``."""
    # Unknown fields of the short form always are errors, because no other program writes it.
    try:
        if "custom_id" in record or "body" in record or "url" in record:
            ignored = fields_without_effect(OpenAILine, record, is_strict=strict_fields)
            line = validated(OpenAILine, record)
            return RequestLine(line.custom_id, number, _ask_openai(line, ignored, strict_fields=strict_fields))
        fields_without_effect(_ShortLine, record, is_strict=True)
        short_line = validated(_ShortLine, record)
        request_id = f"line-{number}" if short_line.id is None else str(short_line.id)
        return RequestLine(request_id, number, _ask_short(short_line))
    except UnknownFieldError as error:
        raise InvalidLineError(f"{error.path}: there is no such field{_unknown_field_hint(error)}") from None
    except (InvalidFieldError, TooManyFieldsError, PresetError) as error:
        raise InvalidLineError.of(error) from None


def find_request_id(record: object) -> str | None:
    if isinstance(record, Mapping):
        custom_id, short_id = record.get("custom_id"), without_whole_floats(record.get("id"))
        if isinstance(custom_id, str):
            return custom_id
        if _is_id(short_id):
            return str(short_id)
    return None


if TYPE_CHECKING:

    class _SettingFields(StrictModel):
        system: str | None = None
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
    chat_template_kwargs: TemplateVariables | None = None
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
        for first, second in (("prompt", "messages"), ("grammar", "json_schema")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise ValueError(f"{first} and {second} exclude each other")
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
    overrides += _settings_of(line)
    if line.json_schema is not None:
        overrides.append(Override("json_schema", "grammar", {"json_schema": line.json_schema}))
    if line.logprobs_from != "model" and line.logprobs is None:
        raise InvalidLineError("logprobs_from needs logprobs")
    beams = {
        "beam_count": line.beams,
        "length_penalty": line.length_penalty,
        "early_stopping": line.early_stopping,
    }
    asked = AskedRequest(
        prompts=() if line.prompt is None else (line.prompt,),
        messages=None if line.messages is None else [message.template_message() for message in line.messages],
        overrides=tuple(overrides),
        preset=line.preset,
        chain=line.chain,
        logprobs=None
        if line.logprobs is None
        else LogprobRequest(line.logprobs, line.logprobs_from, (), "logprobs"),
        trace_top_count=line.trace,
        chat_template=line.chat_template,
        chat_template_kwargs=line.chat_template_kwargs,
        beam_settings={name: value for name, value in beams.items() if value is not None},
        ignored=tuple(unused_reasoning_of(line.messages or ())),
        template_fields=template_fields_of(line.messages, line.chat_template_kwargs),
    )
    if asked.sets_system and line.messages is not None:
        raise InvalidLineError("system and messages exclude each other")
    if asked.sets_system and isinstance(line.prompt, list):
        raise InvalidLineError("system: not used with a prompt of token ids; write the prompt as text")
    return asked


# a URL that ends in a route, as Azure writes it: /chat/completions, /openai/deployments/NAME/chat/completions
_URL_PATTERN = re.compile(
    r"(?:(?:https?://[^/\s]+)?(?:/[^?#\s]*?)??/)?(?P<route>(?:chat/)?completions)/?(?:[?#]\S*)?"
)


class OpenAILine(StrictModel):
    custom_id: str = Field(min_length=1)
    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions"]
    body: Json

    @field_validator("url", mode="before")
    @classmethod
    def _find_route(cls, value: object) -> object:
        """Return the route that a URL of OpenAI's or Azure's names: a path, or an address with or without /v1."""
        if not isinstance(value, str):
            return value
        match = _URL_PATTERN.fullmatch(value)
        if match is None:
            raise ValueError(
                f"{short_repr(value)} is not answered by gen batch: it answers /v1/chat/completions and"
                " /v1/completions"
            )
        return f"/v1/{match['route']}"

    @field_validator("custom_id", mode="before")
    @classmethod
    def _check_id(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"{short_repr(value)} is not a string, as OpenAI's format requires")
        return value


def _settings_of(line: _ShortLine) -> Iterator[Override]:
    """Yield the settings that a line sets."""
    for name in SETTINGS:
        value = getattr(line, name)
        if value is not None:
            yield Override(name, name, setting_value(name, value))


# fields of the server's bodies that results have no place for, or that a batch decides itself
_NOT_IN_RESULTS = (
    *("stream", "echo", "prompt_logprobs", "return_tokens", "return_tokens_as_token_ids", "cache_prompt"),
    *("speculative", "speculative_n_max", "speculative_n_min", "speculative_p_min"),
)


def _ask_openai(line: OpenAILine, ignored: list[str], *, strict_fields: bool) -> AskedRequest:
    """Return what a line asks for; ``ignored``: the paths of fields outside of the body without effect."""
    fields_type: type[PromptFields | ChatFields] = PromptFields if line.url == "/v1/completions" else ChatFields
    unused = [*ignored, *fields_without_effect(fields_type, line.body, is_strict=strict_fields, place="body.")]
    try:
        fields = validated(fields_type, line.body)
        if isinstance(fields, PromptFields) and len(fields.prompts()) > 1:
            count = len(fields.prompts())
            raise InvalidFieldError(f"there are {count} prompts; write a line for each of them", ("prompt",))
        without_place = fields_without_place(fields, _NOT_IN_RESULTS, has_both_sources=True)
        fields = fields.model_copy(update=dict.fromkeys(_NOT_IN_RESULTS))
        return ask(fields, [*unused, *(f"body.{name}" for name in without_place)], "body.")
    except InvalidFieldError as error:
        raise error.under("body") from None


# the setting that each name of another tool sets, as ``--set`` names it
_SETTING_OF_NAME = {
    name: target
    for target, names in (
        *((row.target, row.request_names) for row in reversed(PARAMETERS)),
        *((setting.name, request_names(setting.names)) for setting in SETTINGS.values()),
    )
    for name in names
}


def _unknown_field_hint(error: UnknownFieldError) -> str:
    """Return the end of the error message for an unknown field."""
    if error.model is _ShortLine:
        name, known = error.name, [field.alias or key for key, field in _ShortLine.model_fields.items()]
        nearest = nearest_name(name, [*known, *_SETTING_OF_NAME])
        setting = None if nearest in known else _SETTING_OF_NAME.get(name) or _SETTING_OF_NAME.get(nearest or "")
        if setting is not None:
            return f'; write "{setting}": …' if setting in known else f'; write "set": {{"{setting}": …}}'
        if nearest is None and name in GenerationFields.model_fields:
            return "; it is a field of OpenAI's format, whose lines have custom_id, method, url and body"
    else:
        nearest = error.similar
    return f"; did you mean {nearest}?" if nearest else "; logitsmith has no such setting, or cannot change it"
