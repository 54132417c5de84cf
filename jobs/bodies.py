"""Parsing of a batch's requests: lines in OpenAI's batch format or in the short form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..common.errors import problem_message, problem_sentence
from ..common.text import nearest_name, short_repr
from ..presets.overrides import ChainRearrangement, Override
from ..presets.text_rules import RULE_DEFAULTS
from .errors import InvalidLineError

Json = dict[str, Any]

MAX_CHOICES = 128
"""The maximum of ``n``, as in OpenAI's API."""


@dataclass(frozen=True)
class ParsedRequest:
    """The request of a line, in whichever format the line is written.

    Attributes:
        id: id of the request.
        line_number: number of the line in the input, counted from 1.
        prompt: text or token ids; None if there are ``messages``.
        messages: messages of a chat, in the form that chat templates expect; None if there is a ``prompt``.
        overrides: settings that take precedence over the preset's.
        preset: name or file of a preset; None uses the preset of the flags.
        chain: a chain, as ``--chain`` accepts it; None uses the chain of the preset or the flags.
        set_arguments: more settings, as ``--set`` accepts them.
        top_logprob_count: number of most likely tokens whose logprobs are reported; -1 reports all tokens, None
            uses the flags' number.
        logprobs_from: the distribution whose logprobs are reported: ``model``, ``chain`` or ``both``.
        trace_top_count: number of candidates that are traced through the chain; None uses the flags' number.
        chat_template: name, file or source of a chat template; None uses the flags' template.
        chat_template_kwargs: variables of the chat template; None if the line sets none.
        rearrangements: changes of the order of the steps and of the selecting step.
        choice_count: number of texts of the answer. Their seeds count up.
        beam_settings: settings of a beam search, as arguments of `BeamSearch`; empty if the line sets none.
    """

    id: str
    line_number: int
    prompt: str | list[int] | None
    messages: list[dict[str, str]] | None
    overrides: tuple[Override, ...]
    preset: str | None = None
    chain: str | None = None
    set_arguments: tuple[str, ...] = ()
    top_logprob_count: int | None = None
    logprobs_from: str = "model"
    trace_top_count: int | None = None
    chat_template: str | None = None
    chat_template_kwargs: Json | None = None
    rearrangements: tuple[ChainRearrangement, ...] = ()
    choice_count: int = 1
    beam_settings: Mapping[str, Any] = field(default_factory=dict)


def parse_request(record: Json, line_number: int) -> ParsedRequest:
    """Return the request of a line; ``record``: the line's JSON object. Raises ``InvalidLineError``."""
    try:
        if "custom_id" in record or "body" in record or "url" in record:
            return _parse_openai_line(OpenAILine.model_validate(record), line_number)
        return _parse_short_line(_ShortLine.model_validate(record), line_number)
    except ValidationError as error:
        line_model = OpenAILine if error.title == OpenAILine.__name__ else _ShortLine
        raise InvalidLineError(first_problem(error, line_model)) from None


def find_request_id(record: object) -> str | None:
    """Return the id of a line's request, even if the request is invalid; None if the line has no id."""
    if isinstance(record, Mapping):
        custom_id, short_id = record.get("custom_id"), record.get("id")
        if isinstance(custom_id, str):
            return custom_id
        if _is_id(short_id):
            return str(short_id)
    return None


class StrictModel(BaseModel):
    """A pydantic model that rejects unknown fields and converts no types; a null field counts as absent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


class MessagePart(StrictModel):
    """A part of a message. Only text is supported: the models get nothing else."""

    type: Literal["text"]
    text: str


class ChatMessage(StrictModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[MessagePart] = ""
    name: str | None = None

    @model_validator(mode="after")
    def _check_content(self) -> ChatMessage:
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("there is no content")
        return self

    def template_message(self) -> dict[str, str]:
        """Return the message in the form that chat templates expect."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class _ShortLine(StrictModel):
    """A line in the short form."""

    id: Annotated[str, Field(min_length=1)] | int | None = None
    prompt: str | list[int] | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    preset: str | None = None
    chain: str | None = None
    set_: list[str] | Json = Field(default_factory=list, alias="set")
    seed: int | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    grammar: str | Json | None = None
    json_schema: Json | bool | None = None
    bans: str | Json | list[str | Json] | None = None
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


def _parse_short_line(line: _ShortLine, line_number: int) -> ParsedRequest:
    overrides = [
        Override(name, name, getattr(line, name))
        for name in ("seed", "max_tokens", "stop", "grammar", "bans")
        if getattr(line, name) is not None
    ]
    if line.json_schema is not None:
        overrides.append(Override("json_schema", "grammar", {"json_schema": line.json_schema}))
    if line.logprobs_from != "model" and line.logprobs is None:
        raise InvalidLineError("logprobs_from needs logprobs")
    set_arguments = line.set_
    if not isinstance(set_arguments, list):
        set_arguments = [f"{name}={json.dumps(value)}" for name, value in set_arguments.items()]
    return ParsedRequest(
        id=f"line-{line_number}" if line.id is None else str(line.id),
        line_number=line_number,
        prompt=line.prompt,
        messages=None if line.messages is None else [message.template_message() for message in line.messages],
        overrides=tuple(overrides),
        preset=line.preset,
        chain=line.chain,
        set_arguments=tuple(set_arguments),
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
    )


class SchemaFormat(StrictModel):
    """The JSON Schema of a ``response_format``."""

    name: str | None = None
    description: str | None = None
    schema_: Json = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """The format of the answer: free text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError('"type": "json_schema" needs the field json_schema, and no other type may have it')
        return self

    def grammar(self) -> str | Json | None:
        """Return the grammar of the format; None for free text."""
        if self.json_schema is not None:
            return {"json_schema": self.json_schema.schema_}
        return "json_object" if self.type == "json_object" else None


class OpenAIBody(StrictModel):
    """The fields that both bodies of OpenAI's format have, and some fields of llama.cpp's server.

    The fields from ``model`` to ``stream`` are accepted and have no effect.
    """

    model: str | None = None
    user: str | None = None
    metadata: Json | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    modalities: list[Literal["text"]] | None = None
    parallel_tool_calls: bool | None = None
    tools: list[Json] | None = Field(default=None, max_length=0)
    stream: Literal[False] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repeat_penalty: float | None = None
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
    "seed": "seed",
    "stop": "stop",
    "grammar": "grammar",
}
"""For fields of a body: the setting that the field sets, as ``--set`` names it."""


def _parse_token_biases(bias_by_name: Mapping[str, float]) -> dict[int, float]:
    """Return biases by token id; in JSON, the ids are strings. Raises ``ValueError``."""
    for name in bias_by_name:
        if not name.isdecimal():
            raise ValueError(f"body.logit_bias: {name!r} is not a token's id")
    return {int(name): bias for name, bias in bias_by_name.items()}


class CompletionBody(OpenAIBody):
    """The body of ``/v1/completions``."""

    prompt: str | list[int]
    logprobs: int | None = Field(default=None, ge=0)
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

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
    chat_template_kwargs: Json | None = None


class OpenAILine(StrictModel):
    """A line of OpenAI's batch format."""

    custom_id: str = Field(min_length=1)
    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions"]
    body: Json

    @field_validator("custom_id", mode="before")
    @classmethod
    def _check_id(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"{short_repr(value)} is not a string, as OpenAI's format requires")
        return value


def _parse_openai_line(line: OpenAILine, line_number: int) -> ParsedRequest:
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
                choice_count=body.n or 1,
            )
        body = ChatBody.model_validate(line.body)
        overrides = tuple(body.overrides())
    except ValidationError as error:
        body_model = CompletionBody if line.url == "/v1/completions" else ChatBody
        raise InvalidLineError(first_problem(error, body_model, "body")) from None
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
        chat_template=body.chat_template,
        chat_template_kwargs=body.chat_template_kwargs,
        choice_count=body.n or 1,
    )


def first_problem(error: ValidationError, line_model: type[StrictModel], prefix: str = "") -> str:
    """Return the error message for the first invalid field. The message begins with the path of the field.

    Args:
        error: pydantic's error.
        line_model: pydantic model of the line. An unknown field may be a misspelled name of one of its fields.
        prefix: name of the field that contains the model; empty if the model is the line itself.
    """
    errors = error.errors(include_url=False)
    # A field of several types gets an error for each type; the intended type has the error with the longest path.
    errors_of_field = [other for other in errors if other["loc"][:1] == errors[0]["loc"][:1]]
    first_error = max(errors_of_field, key=lambda other: len(other["loc"]))
    is_unknown = first_error["type"] == "extra_forbidden"
    # The user chose the name of an unknown field, which may look like a type's name of pydantic.
    unknown_names = first_error["loc"][-1:] if is_unknown else ()
    path = [part for part in first_error["loc"] if part in unknown_names or not _is_type_name(part)]
    errors_of_other_types = [
        other for other in errors_of_field if [p for p in other["loc"] if not _is_type_name(p)] == path
    ]
    message = problem_message(first_error, *errors_of_other_types)
    if is_unknown:
        message += _unknown_field_hint(str(path[-1]), line_model if len(path) == 1 else None)
    return problem_sentence([prefix, *path] if prefix else path, message)


def _unknown_field_hint(name: str, line_model: type[StrictModel] | None) -> str:
    """Return the end of the error message for an unknown field.

    Args:
        name: name of the unknown field.
        line_model: the model that does not have the field; None for a model inside another one.
    """
    names = [] if line_model is None else [field.alias or key for key, field in line_model.model_fields.items()]
    if line_model is _ShortLine:
        nearest = nearest_name(name, [*names, *_SETTING_OF_FIELD])
        setting = None if nearest in names else _SETTING_OF_FIELD.get(nearest or name)
        if name in RULE_DEFAULTS:
            return f'; write "set": {{"{name}": …}}, or name a preset that has it'
        if setting is not None:
            return f'; write "{setting}": …' if setting in names else f'; write "set": {{"{setting}": …}}'
        if nearest is None and (name in ChatBody.model_fields or name in CompletionBody.model_fields):
            return "; it is a field of OpenAI's format, whose lines have custom_id, method, url and body"
    else:
        nearest = nearest_name(name, names)
    return f"; did you mean {nearest}?" if nearest else "; logitsmith has no such setting, or cannot change it"


def _is_type_name(part: object) -> bool:
    """Return whether a part of a path is the name by which pydantic distinguishes the types of a field."""
    if not isinstance(part, str):
        return False
    return part in ("str", "int", "float", "bool") or "[" in part or part.startswith(("_", "constrained-"))
