"""The lines of OpenAI's batch format, as strict models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ...common.text import shorten
from ...presets.overrides import Override

Json = dict[str, Any]


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
        for name, target in SETTING_OF_FIELD.items():
            value = getattr(self, name, None)
            if value is not None:
                yield Override(f"body.{name}", target, value)
        if self.logit_bias is not None:
            yield Override("body.logit_bias", "logit_bias.bias", parse_token_biases(self.logit_bias))
        if self.response_format is not None and self.response_format.grammar() is not None:
            if self.grammar is not None:
                raise ValueError("body: response_format and grammar both give a grammar")
            yield Override("body.response_format", "grammar", self.response_format.grammar())


SETTING_OF_FIELD = {
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
            raise ValueError(f"{shorten(value)} is not a string, which OpenAI's format has here")
        return value


def parse_token_biases(bias_by_name: Mapping[str, float]) -> dict[int, float]:
    """Return biases by token id; JSON writes the ids as texts. Raises ``ValueError``."""
    for name in bias_by_name:
        if not name.isdecimal():
            raise ValueError(f"body.logit_bias: {name!r} is not a token's id")
    return {int(name): bias for name, bias in bias_by_name.items()}
