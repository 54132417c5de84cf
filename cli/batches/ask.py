"""What a line of a batch asks for: OpenAI's batch format, or the short form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Json = dict[str, Any]


class WrongLineError(Exception):
    """A line that asks for nothing that can be done. The message says what is wrong with it."""


@dataclass(frozen=True)
class Ask:
    """One request, whatever it was written in.

    ``settings``: origin, target and value of what is to go before the preset's, as in `presets.Override`;
    ``sets``: texts as `--set` takes them. ``prompt`` is text or ids; where it is None there are ``messages``.
    """

    id: str
    line: int
    prompt: str | list[int] | None
    messages: list[dict[str, str]] | None
    settings: tuple[tuple[str, str, Any], ...]
    preset: str | None = None
    chain: str | None = None
    sets: tuple[str, ...] = ()
    logprobs: int | None = None
    source: str = "model"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Part(_Strict):
    type: Literal["text"]
    text: str


class _Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class _SchemaFormat(_Strict):
    name: str | None = None
    description: str | None = None
    schema_: Json = Field(alias="schema")
    strict: bool | None = None


class _ResponseFormat(_Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _SchemaFormat | None = None

    @model_validator(mode="after")
    def _whole(self) -> _ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("type json_schema and a json_schema belong together")
        return self

    def grammar(self) -> str | Json | None:
        if self.json_schema is not None:
            return {"json_schema": self.json_schema.schema_}
        return "json" if self.type == "json_object" else None


class _Body(_Strict):
    """What both of OpenAI's bodies have, and some fields of llama.cpp's server. The first three set nothing."""

    model: str | None = None
    user: str | None = None
    metadata: Json | None = None
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

    def settings(self) -> Iterator[tuple[str, str, Any]]:
        """What it sets, by the names of the settings."""
        for name, target in _TARGETS.items():
            value = getattr(self, name, None)
            if value is not None:
                yield f"body.{name}", target, value
        if self.logit_bias is not None:
            yield "body.logit_bias", "logit_bias.bias", _bias(self.logit_bias)
        if self.response_format is not None and self.response_format.grammar() is not None:
            if self.grammar is not None:
                raise WrongLineError("body: response_format and grammar both give a grammar")
            yield "body.response_format", "grammar", self.response_format.grammar()


_TARGETS = {
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


class _Completion(_Body):
    prompt: str | list[int]
    logprobs: int | None = Field(default=None, ge=0)
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None


class _Chat(_Body):
    messages: list[_Message] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0)


class _OpenAI(_Strict):
    custom_id: str = Field(min_length=1)
    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions"]
    body: Json


class _Short(_Strict):
    id: str | int | None = None
    prompt: str | list[int] | None = None
    messages: list[_Message] | None = Field(default=None, min_length=1)
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

    @model_validator(mode="after")
    def _one_of_each(self) -> _Short:
        for one, other in (("prompt", "messages"), ("grammar", "json_schema")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other} exclude each other")
        if self.prompt is None and self.messages is None:
            raise ValueError("there is neither a prompt nor messages")
        return self


def ask(record: Json, line: int) -> Ask:
    """Read what a line asks for. Raises ``WrongLineError``."""
    try:
        if "custom_id" in record or "body" in record or "url" in record:
            return _of_openai(_OpenAI.model_validate(record), line)
        return _of_short(_Short.model_validate(record), line)
    except ValidationError as error:
        raise WrongLineError(_said(error)) from None


def id_of(record: object) -> str | None:
    """The name of a line that may be wrong otherwise."""
    if isinstance(record, Mapping):
        for key in ("custom_id", "id"):
            value = record.get(key)
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                return str(value)
    return None


def _of_openai(line: _OpenAI, number: int) -> Ask:
    try:
        body: _Completion | _Chat
        if line.url == "/v1/completions":
            body = _Completion.model_validate(line.body)
            return Ask(line.custom_id, number, body.prompt, None, tuple(body.settings()), logprobs=body.logprobs)
        body = _Chat.model_validate(line.body)
    except ValidationError as error:
        raise WrongLineError(_said(error, "body.")) from None
    if body.top_logprobs is not None and not body.logprobs:
        raise WrongLineError("body.top_logprobs needs logprobs: true")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise WrongLineError("body: max_tokens and max_completion_tokens are the same; give one")
    top = (body.top_logprobs or 0) if body.logprobs else None
    messages = [message.plain() for message in body.messages]
    return Ask(line.custom_id, number, None, messages, tuple(body.settings()), logprobs=top)


def _of_short(line: _Short, number: int) -> Ask:
    found: list[tuple[str, str, Any]] = [
        (name, name, getattr(line, name))
        for name in ("seed", "max_tokens", "stop", "grammar")
        if getattr(line, name) is not None
    ]
    if line.json_schema is not None:
        found.append(("json_schema", "grammar", {"json_schema": line.json_schema}))
    if line.logprobs_from != "model" and line.logprobs is None:
        raise WrongLineError("logprobs_from needs logprobs")
    sets = line.set_ if isinstance(line.set_, list) else [f"{k}={json.dumps(v)}" for k, v in line.set_.items()]
    return Ask(
        f"line-{number}" if line.id is None else str(line.id),
        number,
        line.prompt,
        None if line.messages is None else [message.plain() for message in line.messages],
        tuple(found),
        line.preset,
        line.chain,
        tuple(sets),
        line.logprobs,
        line.logprobs_from,
    )


def _bias(named: Mapping[str, float]) -> dict[int, float]:
    wrong = [name for name in named if not name.isdecimal()]
    if wrong:
        raise WrongLineError(f"body.logit_bias: {wrong[0]!r} is not a token's id")
    return {int(name): value for name, value in named.items()}


def _said(error: ValidationError, before: str = "") -> str:
    """The first complaint, with the place that it is about; what a choice of types says is cut to the field."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not _is_type(part))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "there is no such field, or nothing here can do what it asks"
    return f"{before}{place}: {message}" if place else f"{before.rstrip('.')}: {message}".removeprefix(": ")


def _is_type(part: object) -> bool:
    return isinstance(part, str) and (part in ("str", "int", "bool") or "[" in part or part.startswith("_"))
