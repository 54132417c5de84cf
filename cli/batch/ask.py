"""What a line of a batch asks for: OpenAI's batch format, or the short form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from .openai_line import ChatBody, CompletionBody, Json, Message, OpenAILine, Strict


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


class _Short(Strict):
    id: Annotated[str, Field(min_length=1)] | int | None = None
    prompt: str | list[int] | None = None
    messages: list[Message] | None = Field(default=None, min_length=1)
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
            return _of_openai(OpenAILine.model_validate(record), line)
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


def _of_openai(line: OpenAILine, number: int) -> Ask:
    try:
        body: CompletionBody | ChatBody
        if line.url == "/v1/completions":
            body = CompletionBody.model_validate(line.body)
            return Ask(line.custom_id, number, body.prompt, None, tuple(body.settings()), logprobs=body.logprobs)
        body = ChatBody.model_validate(line.body)
        settings = tuple(body.settings())
    except ValidationError as error:
        raise WrongLineError(_said(error, "body.")) from None
    except ValueError as error:
        raise WrongLineError(str(error)) from None
    if body.top_logprobs is not None and not body.logprobs:
        raise WrongLineError("body.top_logprobs needs logprobs: true")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise WrongLineError("body: max_tokens and max_completion_tokens are the same; give one")
    top = (body.top_logprobs or 0) if body.logprobs else None
    messages = [message.plain() for message in body.messages]
    return Ask(line.custom_id, number, None, messages, settings, logprobs=top)


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


def _said(error: ValidationError, before: str = "") -> str:
    """The first complaint, with the place that it is about; what a choice of types says is cut to the field."""
    found = error.errors(include_url=False)
    # Of what each choice of types says, that which got furthest.
    first = max((e for e in found if e["loc"][:1] == found[0]["loc"][:1]), key=lambda e: len(e["loc"]))
    place = ".".join(str(part) for part in first["loc"] if not _is_type(part))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "there is no such field, or nothing here can do what it asks"
    return f"{before}{place}: {message}" if place else f"{before.rstrip('.')}: {message}".removeprefix(": ")


def _is_type(part: object) -> bool:
    return isinstance(part, str) and (part in ("str", "int", "bool") or "[" in part or part.startswith("_"))
