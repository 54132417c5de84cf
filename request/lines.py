"""Parsing of a batch's requests: lines in OpenAI's batch format or in the short form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import (
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ..common.strict_json import without_whole_floats
from ..common.text import nearest_name, short_repr
from ..presets.foreign.lists import read_biased_token
from ..presets.overrides import ChainRearrangement, Override
from ..presets.parameter_names import request_names
from ..presets.setting_table import SETTINGS
from .errors import InvalidLineError
from .fields import MAX_CHOICES, ToolChoice, set_arguments
from .grammar_fields import ResponseFormat
from .messages import ChatMessage, TemplateVariables, template_fields_of, unused_reasoning_of
from .strict_model import Json, StrictModel, first_problem, setting_fields, setting_overrides
from .unknown_fields import TooManyFieldsError, UnknownFieldError, fields_without_effect


@dataclass(frozen=True)
class ParsedRequest:
    """The request of a line, in whichever format the line is written."""

    id: str
    line_number: int  # number of the line in the input, counted from 1
    prompt: str | list[int] | None  # text or token ids; None if there are ``messages``
    # messages of a chat, in the form that chat templates expect; None if there is a ``prompt``
    messages: list[Json] | None
    overrides: tuple[Override, ...]  # settings that take precedence over the preset's
    preset: str | None = None  # name or file of a preset; None uses the preset of the flags
    chain: str | None = None  # a chain, as ``--chain`` accepts it; None uses the chain of the preset or the flags
    set_arguments: tuple[str, ...] = ()  # more settings, as ``--set`` accepts them
    # number of most likely tokens whose logprobs are reported; -1 reports all tokens, None uses the flags' number
    top_logprob_count: int | None = None
    logprobs_field: str = "logprobs"  # the field that sets this number
    logprobs_from: str = "model"  # the distribution whose logprobs are reported: ``model``, ``chain`` or ``both``
    # number of candidates that are traced through the chain; None uses the flags' number
    trace_top_count: int | None = None
    chat_template: str | None = None  # name, file or source of a chat template; None uses the flags' template
    # variables of the chat template; None if the line sets none
    chat_template_kwargs: TemplateVariables | None = None
    # changes of the order of the steps and of the selecting step
    rearrangements: tuple[ChainRearrangement, ...] = ()
    choice_count: int = 1  # number of texts of the answer. Their seeds count up.
    # settings of a beam search, as arguments of `BeamSearch`; empty if the line sets none
    beam_settings: Mapping[str, Any] = field(default_factory=dict)
    # the paths of fields that have no effect, such as ``body.messages[1].annotations``
    ignored: tuple[str, ...] = ()
    # the paths of fields that only some chat templates read, each with the name that templates have for it
    template_fields: Mapping[str, str] = field(default_factory=dict)


def parse_request(record: Json, line_number: int, *, strict_fields: bool = False) -> ParsedRequest:
    """Return the request of a line. Raises ``InvalidLineError``."""
    # Unknown fields of the short form always are errors, because no other program writes it.
    try:
        if "custom_id" in record or "body" in record or "url" in record:
            ignored = fields_without_effect(OpenAILine, record, is_strict=strict_fields)
            line = OpenAILine.model_validate(record)
            return _parse_openai_line(line, line_number, ignored, strict_fields=strict_fields)
        fields_without_effect(_ShortLine, record, is_strict=True)
        return _parse_short_line(_ShortLine.model_validate(record), line_number)
    except ValidationError as error:
        raise InvalidLineError(first_problem(error)) from None
    except UnknownFieldError as error:
        raise InvalidLineError(f"{error.path}: there is no such field{_unknown_field_hint(error)}") from None
    except TooManyFieldsError as error:
        raise InvalidLineError(str(error)) from None


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
    _SettingFields = setting_fields(SETTINGS)


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
        for first, second in (("prompt", "messages"), ("system", "messages"), ("grammar", "json_schema")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise ValueError(f"{first} and {second} exclude each other")
        has_template = self.chat_template is not None or self.chat_template_kwargs is not None
        if has_template and isinstance(self.prompt, list):
            raise ValueError("a chat template cannot be used with a prompt of token ids; write the prompt as text")
        if self.system is not None and isinstance(self.prompt, list):
            raise ValueError("system: not used with a prompt of token ids; write the prompt as text")
        if self.prompt is None and self.messages is None:
            raise ValueError("there is neither a prompt nor messages")
        return self


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _parse_short_line(line: _ShortLine, line_number: int) -> ParsedRequest:
    overrides = list(setting_overrides(line, SETTINGS))
    if line.json_schema is not None:
        overrides.append(Override("json_schema", "grammar", {"json_schema": line.json_schema}))
    if line.logprobs_from != "model" and line.logprobs is None:
        raise InvalidLineError("logprobs_from needs logprobs")
    return ParsedRequest(
        id=f"line-{line_number}" if line.id is None else str(line.id),
        line_number=line_number,
        prompt=line.prompt,
        messages=None if line.messages is None else [message.template_message() for message in line.messages],
        overrides=tuple(overrides),
        preset=line.preset,
        chain=line.chain,
        set_arguments=tuple(set_arguments(line.set_)),
        top_logprob_count=line.logprobs,
        logprobs_from=line.logprobs_from,
        trace_top_count=line.trace,
        chat_template=line.chat_template,
        chat_template_kwargs=line.chat_template_kwargs,
        beam_settings={
            name: value
            for name, value in (
                ("beam_count", line.beams),
                ("length_penalty", line.length_penalty),
                ("early_stopping", line.early_stopping),
            )
            if value is not None
        },
        ignored=tuple(unused_reasoning_of(line.messages or ())),
        template_fields=template_fields_of(line.messages, line.chat_template_kwargs),
    )


class OpenAIBody(ToolChoice):
    """The fields that both bodies of OpenAI's format have, and some fields of llama.cpp's server."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repeat_penalty: float | None = None
    min_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: ResponseFormat | None = None
    grammar: str | Json | None = None

    def overrides(self) -> Iterator[Override]:
        """Yield the settings that the body sets. Raises ``ValueError``."""
        for name, target in _SETTING_OF_FIELD.items():
            value = getattr(self, name, None)
            if value is not None:
                yield Override(f"body.{name}", target, value)
        if self.logit_bias is not None:
            yield Override("body.logit_bias", "logit_bias.bias", _parse_token_biases(self.logit_bias))
        if self.response_format is not None and self.response_format.grammar() is not None:
            if self.grammar is not None:
                raise ValueError("body: response_format and grammar both set a grammar; use one of them")
            yield Override("body.response_format", "grammar", self.response_format.grammar())


# for fields of a body: the setting that the field sets, as ``--set`` names it
_SETTING_OF_FIELD = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "temperature": "temperature.t",
    "top_p": "top_p.p",
    "top_k": "top_k.k",
    "min_p": "min_p.p",
    "frequency_penalty": "penalties.frequency",
    "presence_penalty": "penalties.presence",
    "repeat_penalty": "penalties.repeat",
    "min_tokens": "min_tokens.n",
    "seed": "seed",
    "stop": "stop",
    "grammar": "grammar",
}


def _parse_token_biases(bias_by_name: Mapping[str, float]) -> dict[int, float]:
    """Return biases by token id; in JSON, the ids are strings. Raises ``ValueError``."""
    biases = {read_biased_token(name): bias for name, bias in bias_by_name.items()}
    for name in biases:
        if not isinstance(name, int):
            raise ValueError(f"body.logit_bias: {name!r} is not a token's id")
    return cast("dict[int, float]", biases)


class CompletionBody(OpenAIBody):
    """The body of ``/v1/completions``."""

    prompt: str | list[int]
    logprobs: int | None = Field(default=None, ge=0)

    @field_validator("prompt", mode="before")
    @classmethod
    def _unwrap_single_prompt(cls, prompt: Any) -> Any:
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
            if len(prompt) > 1:
                raise ValueError(f"there are {len(prompt)} prompts; write a line for each of them")
            return prompt[0]
        return prompt


class ChatBody(OpenAIBody):
    """The body of ``/v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0)
    chat_template: str | None = None
    chat_template_kwargs: TemplateVariables | None = None


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


def _parse_openai_line(
    line: OpenAILine, line_number: int, ignored: list[str], *, strict_fields: bool
) -> ParsedRequest:
    """Return the request of a line; ``ignored``: the paths of fields outside of the body without effect."""
    body_model = CompletionBody if line.url == "/v1/completions" else ChatBody
    ignored = ignored + fields_without_effect(body_model, line.body, is_strict=strict_fields, place="body.")
    try:
        body: CompletionBody | ChatBody
        if line.url == "/v1/completions":
            body = CompletionBody.model_validate(line.body)
            overrides = tuple(body.overrides())
            return ParsedRequest(
                line.custom_id,
                line_number,
                body.prompt,
                None,
                overrides,
                top_logprob_count=body.logprobs,
                logprobs_field="body.logprobs",
                choice_count=body.n or 1,
                ignored=tuple(ignored),
            )
        body = ChatBody.model_validate(line.body)
        overrides = tuple(body.overrides())
    except ValidationError as error:
        raise InvalidLineError(first_problem(error, "body")) from None
    except ValueError as error:
        raise InvalidLineError(str(error)) from None
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidLineError("body.top_logprobs needs logprobs: true")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise InvalidLineError("body: max_tokens and max_completion_tokens are the same setting; use one of them")
    top_logprob_count = (body.top_logprobs or 0) if body.logprobs else None
    messages = [message.template_message() for message in body.messages]
    return ParsedRequest(
        line.custom_id,
        line_number,
        None,
        messages,
        overrides,
        top_logprob_count=top_logprob_count,
        logprobs_field="body.top_logprobs",
        chat_template=body.chat_template,
        chat_template_kwargs=body.chat_template_kwargs,
        choice_count=body.n or 1,
        ignored=(*ignored, *unused_reasoning_of(body.messages, "body.")),
        template_fields=template_fields_of(body.messages, body.chat_template_kwargs, "body."),
    )


def _unknown_field_hint(error: UnknownFieldError) -> str:
    """Return the end of the error message for an unknown field."""
    if error.model is _ShortLine:
        name, known = error.name, [field.alias or key for key, field in _ShortLine.model_fields.items()]
        nearest = nearest_name(name, [*known, *_SETTING_OF_FIELD])
        others = {other: key for key, each in SETTINGS.items() for other in request_names(each.names)}
        setting = None if nearest in known else others.get(name) or _SETTING_OF_FIELD.get(nearest or name)
        if setting is not None:
            return f'; write "{setting}": …' if setting in known else f'; write "set": {{"{setting}": …}}'
        if nearest is None and (name in ChatBody.model_fields or name in CompletionBody.model_fields):
            return "; it is a field of OpenAI's format, whose lines have custom_id, method, url and body"
    else:
        nearest = error.similar
    return f"; did you mean {nearest}?" if nearest else "; logitsmith has no such setting, or cannot change it"
