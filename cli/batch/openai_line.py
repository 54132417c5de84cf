"""The lines of OpenAI's batch format, as strict models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Json = dict[str, Any]


class Strict(BaseModel):
    """A model that knows its fields, takes no type for another, and takes null for what is not there."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: Any) -> Any:
        return (
            {name: value for name, value in given.items() if value is not None}
            if isinstance(given, dict)
            else given
        )


class Part(Strict):
    """A part of a message; others than text no model here could read."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] = ""
    name: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("there is no content")
        return self

    def plain(self) -> dict[str, str]:
        """The message as a chat template takes it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class _SchemaFormat(Strict):
    name: str | None = None
    description: str | None = None
    schema_: Json = Field(alias="schema")
    strict: bool | None = None


class _ResponseFormat(Strict):
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


class _Body(Strict):
    """What both of OpenAI's bodies have, and some fields of llama.cpp's server.

    What stands above ``stream`` sets nothing.
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

    def settings(self) -> Iterator[tuple[str, str, Any]]:
        """What it sets, by the names of the settings."""
        for name, target in _TARGETS.items():
            value = getattr(self, name, None)
            if value is not None:
                yield f"body.{name}", target, value
        if self.logit_bias is not None:
            yield "body.logit_bias", "logit_bias.bias", bias(self.logit_bias)
        if self.response_format is not None and self.response_format.grammar() is not None:
            if self.grammar is not None:
                raise ValueError("body: response_format and grammar both give a grammar")
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


class CompletionBody(_Body):
    """The body of ``/v1/completions``."""

    prompt: str | list[int]
    logprobs: int | None = Field(default=None, ge=0)
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _one(cls, prompt: Any) -> Any:
        """A list of one prompt is that prompt."""
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
            if len(prompt) > 1:
                raise ValueError(f"these are {len(prompt)} prompts; each needs a line of its own")
            return prompt[0]
        return prompt


class ChatBody(_Body):
    """The body of ``/v1/chat/completions``."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0)


class OpenAILine(Strict):
    """A line of OpenAI's batch format."""

    custom_id: str = Field(min_length=1)
    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions"]
    body: Json


def bias(named: Mapping[str, float]) -> dict[int, float]:
    """Biases by the ids of tokens, which JSON has as texts. Raises ``ValueError``."""
    wrong = [name for name in named if not name.isdecimal()]
    if wrong:
        raise ValueError(f"body.logit_bias: {wrong[0]!r} is not a token's id")
    return {int(name): value for name, value in named.items()}
