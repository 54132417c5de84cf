"""A request of a batch, read from a line in OpenAI's batch format or in the short form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..common.errors import problem_message, problem_sentence
from ..common.text import nearest_name, short_repr
from ..presets.overrides import Override
from .errors import InvalidLineError

Json = dict[str, Any]


@dataclass(frozen=True)
class ParsedRequest:
    """One request, in whichever format it was written.

    ``line``: its line number, from 1. ``prompt``: text or token ids; None if there are ``messages``.
    ``overrides``: settings that go before the preset's; ``sets``: more of them, as texts that `--set` takes.
    ``logprobs``: how many of the likeliest tokens to report, -1 for all, None for none. ``trace``: how many to
    trace through the chain, None for no trace. ``chat_template`` and ``chat_template_kwargs``: as the flags.
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


def parse_request(record: Json, line_number: int) -> ParsedRequest:
    """Return the request of line number ``line_number``. Raises ``InvalidLineError``."""
    try:
        if "custom_id" in record or "body" in record or "url" in record:
            return _parse_openai(OpenAILine.model_validate(record), line_number)
        return _parse_short(_ShortLine.model_validate(record), line_number)
    except ValidationError as error:
        fields = OpenAILine if error.title == OpenAILine.__name__ else _ShortLine
        raise InvalidLineError(_first_problem(error, fields)) from None


def find_request_id(record: object) -> str | None:
    """Return the id of a line that may be invalid otherwise; None if it has none."""
    if isinstance(record, Mapping):
        custom_id, short_id = record.get("custom_id"), record.get("id")
        if isinstance(custom_id, str):
            return custom_id
        if _is_id(short_id):
            return str(short_id)
    return None


class StrictModel(BaseModel):
    """A model that refuses unknown fields and converts no types; null counts as absent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


class MessagePart(StrictModel):
    """A part of a message. Only text: the models here read nothing else."""

    type: Literal["text"]
    text: str


class ChatMessage(StrictModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[MessagePart] = ""
    name: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> ChatMessage:
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("there is no content")
        return self

    def template_message(self) -> dict[str, str]:
        """The message in the form that chat templates take."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class _ShortLine(StrictModel):
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
    logprobs: int | None = Field(default=None, ge=-1)
    logprobs_from: Literal["model", "chain", "both"] = "model"
    trace: int | None = Field(default=None, ge=1)
    chat_template: str | None = None
    chat_template_kwargs: Json | None = None

    @field_validator("id", mode="before")
    @classmethod
    def _check_id(cls, value: object) -> object:
        if not _is_id(value):
            raise ValueError(f"{short_repr(value)} is not a string or an integer")
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> _ShortLine:
        for first, second in (("prompt", "messages"), ("grammar", "json_schema")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise ValueError(f"{first} and {second} exclude each other")
        has_template = self.chat_template is not None or self.chat_template_kwargs is not None
        if has_template and isinstance(self.prompt, list):
            raise ValueError("a prompt of token ids goes through no chat template")
        if self.prompt is None and self.messages is None:
            raise ValueError("there is neither a prompt nor messages")
        return self


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _parse_short(line: _ShortLine, number: int) -> ParsedRequest:
    overrides = [
        Override(name, name, getattr(line, name))
        for name in ("seed", "max_tokens", "stop", "grammar")
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
        id=f"line-{number}" if line.id is None else str(line.id),
        line_number=number,
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
    )


class _SchemaFormat(StrictModel):
    name: str | None = None
    description: str | None = None
    schema_: Json = Field(alias="schema")
    strict: bool | None = None


class _ResponseFormat(StrictModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _SchemaFormat | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> _ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("type json_schema and a json_schema belong together")
        return self

    def grammar(self) -> str | Json | None:
        if self.json_schema is not None:
            return {"json_schema": self.json_schema.schema_}
        return "json_object" if self.type == "json_object" else None


class _Body(StrictModel):
    """The fields that both of OpenAI's bodies have, and some of llama.cpp's server.

    The fields above ``stream`` are accepted and set nothing.
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
    n: Literal[1] | None = None
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
    response_format: _ResponseFormat | None = None
    grammar: str | Json | None = None

    def overrides(self) -> Iterator[Override]:
        """The settings that the body sets. Raises ``ValueError``."""
        for name, target in _SETTING_OF_FIELD.items():
            value = getattr(self, name, None)
            if value is not None:
                yield Override(f"body.{name}", target, value)
        if self.logit_bias is not None:
            yield Override("body.logit_bias", "logit_bias.bias", _parse_token_biases(self.logit_bias))
        if self.response_format is not None and self.response_format.grammar() is not None:
            if self.grammar is not None:
                raise ValueError("body: response_format and grammar both give a grammar")
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
"""The setting that a field sets, as ``--set`` names it."""


def _parse_token_biases(bias_by_name: Mapping[str, float]) -> dict[int, float]:
    """Return biases by token id; JSON writes the ids as texts. Raises ``ValueError``."""
    for name in bias_by_name:
        if not name.isdecimal():
            raise ValueError(f"body.logit_bias: {name!r} is not a token's id")
    return {int(name): bias for name, bias in bias_by_name.items()}


class CompletionBody(_Body):
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
                raise ValueError(f"these are {len(prompt)} prompts; each needs a line of its own")
            return prompt[0]
        return prompt


class ChatBody(_Body):
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
            raise ValueError(f"{short_repr(value)} is not a string, which OpenAI's format has here")
        return value


def _parse_openai(line: OpenAILine, number: int) -> ParsedRequest:
    try:
        body: CompletionBody | ChatBody
        if line.url == "/v1/completions":
            body = CompletionBody.model_validate(line.body)
            overrides = tuple(body.overrides())
            return ParsedRequest(
                line.custom_id, number, body.prompt, None, overrides, top_logprob_count=body.logprobs
            )
        body = ChatBody.model_validate(line.body)
        overrides = tuple(body.overrides())
    except ValidationError as error:
        fields = CompletionBody if line.url == "/v1/completions" else ChatBody
        raise InvalidLineError(_first_problem(error, fields, "body")) from None
    except ValueError as error:
        raise InvalidLineError(str(error)) from None
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidLineError("body.top_logprobs needs logprobs: true")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise InvalidLineError("body: max_tokens and max_completion_tokens are the same; give one")
    top = (body.top_logprobs or 0) if body.logprobs else None
    messages = [message.template_message() for message in body.messages]
    return ParsedRequest(
        line.custom_id,
        number,
        None,
        messages,
        overrides,
        top_logprob_count=top,
        chat_template=body.chat_template,
        chat_template_kwargs=body.chat_template_kwargs,
    )


def _first_problem(error: ValidationError, fields: type[StrictModel], prefix: str = "") -> str:
    """What is wrong with the first wrong field, as one sentence that begins with the field's path.

    Args:
        error: pydantic's.
        fields: the model, whose field is suggested for one that is nearly of its name.
        prefix: the field that holds the model; empty: none.
    """
    errors = error.errors(include_url=False)
    # A field of several types gets an error for each; the longest path belongs to the type that was meant.
    same_field = [other for other in errors if other["loc"][:1] == errors[0]["loc"][:1]]
    first = max(same_field, key=lambda other: len(other["loc"]))
    is_unknown = first["type"] == "extra_forbidden"
    # An unknown field has a name of the user's, which may look like pydantic's names of types.
    unknown_names = first["loc"][-1:] if is_unknown else ()
    path = [part for part in first["loc"] if part in unknown_names or not _is_type_name(part)]
    other_types = [other for other in same_field if [p for p in other["loc"] if not _is_type_name(p)] == path]
    message = problem_message(first, *other_types)
    if is_unknown:
        message += _unknown_field_hint(str(path[-1]), fields if len(path) == 1 else None)
    return problem_sentence([prefix, *path] if prefix else path, message)


def _unknown_field_hint(name: str, fields: type[StrictModel] | None) -> str:
    """The end of the sentence on an unknown field; ``fields``: the model that lacks it, None for an inner one."""
    names = [] if fields is None else [field.alias or key for key, field in fields.model_fields.items()]
    if fields is _ShortLine:
        near = nearest_name(name, [*names, *_SETTING_OF_FIELD])
        setting = None if near in names else _SETTING_OF_FIELD.get(near or name)
        if setting is not None:
            return f'; write "{setting}": …' if setting in names else f'; write "set": {{"{setting}": …}}'
        if near is None and (name in ChatBody.model_fields or name in CompletionBody.model_fields):
            return "; it is one of OpenAI's format, whose lines have custom_id, method, url and body"
    else:
        near = nearest_name(name, names)
    return f"; did you mean {near}?" if near else ", or nothing here can do what it asks"


def _is_type_name(part: object) -> bool:
    """True for the parts of a path by which pydantic tells the types of a field apart."""
    if not isinstance(part, str):
        return False
    return part in ("str", "int", "bool") or "[" in part or part.startswith(("_", "constrained-"))
