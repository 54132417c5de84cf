"""The messages of a chat, as all clients write them, and as chat templates read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import field_validator, model_validator

from ..common.strict_json import encode_json, parse_strict_json
from ..common.strict_model import Json, StrictModel
from ..common.text import short_repr

# for each type of part, the fields that may hold its text
_PART_FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "reasoning_text", "summary_text"), ("text",)),
    "input_json": ("data",),
    "refusal": ("refusal",),
    "thinking": ("thinking",),
    "reasoning": ("reasoning", "text"),
}


_REASONING_PARTS = ("thinking", "reasoning", "reasoning_text", "summary_text")


class MessagePart(StrictModel):
    """A part of a message: a text, JSON, a refusal or reasoning. Other parts, such as images, are errors."""

    type: Literal[
        "text",
        "input_text",
        "input_json",
        "output_text",
        "refusal",
        "thinking",
        "reasoning",
        "reasoning_text",
        "summary_text",
    ]
    text: str | None = None
    data: Json | list[Any] | None = None
    refusal: str | None = None
    thinking: str | list[MessagePart] | None = None
    reasoning: str | None = None
    # what a part of an answer of `/v1/responses` has beside its text, which clients send back
    annotations: Any = None
    logprobs: Any = None

    @field_validator("type", mode="before")
    @classmethod
    def _check_type(cls, value: object) -> object:
        if not isinstance(value, str) or value not in _PART_FIELDS:
            raise ValueError(f"{short_repr(value)} is not supported; the models read text only")
        return value

    @model_validator(mode="after")
    def _check_text(self) -> MessagePart:
        names = _PART_FIELDS[self.type]
        if all(getattr(self, name) is None for name in names):
            raise ValueError(f"a part of the type {self.type} needs the field {' or '.join(names)}")
        return self

    @property
    def is_reasoning(self) -> bool:
        """True if the text is reasoning, and not a part of the answer."""
        return self.type in _REASONING_PARTS

    @property
    def content(self) -> str:
        """The text of the part."""
        values = [getattr(self, name) for name in _PART_FIELDS[self.type]]
        value = next(value for value in values if value is not None)
        if isinstance(value, str):
            return value
        return encode_json(value) if self.type == "input_json" else "".join(part.content for part in value)


class ChatMessage(StrictModel):
    """A message of a chat. Servers return reasoning as ``reasoning_content`` or as ``reasoning``."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[MessagePart] = ""
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Json] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _check_content(self) -> ChatMessage:
        if self.role in ("system", "developer", "user") and "content" not in self.model_fields_set:
            raise ValueError("there is no content")
        return self

    @property
    def _parts(self) -> list[MessagePart]:
        return self.content if isinstance(self.content, list) else []

    def template_message(self) -> Json:
        """Return the message in the form that chat templates expect."""
        content: str | list[Json]
        if isinstance(self.content, str):
            content = self.content
        else:
            content = [{"type": "text", "text": part.content} for part in self.content if not part.is_reasoning]
        optional_fields = {
            "reasoning_content": self._reasoning,
            "tool_calls": [_with_arguments_as_object(call) for call in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "name": self.name,
        }
        given_fields = {name: value for name, value in optional_fields.items() if value}
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": content, **given_fields}

    @property
    def _reasoning(self) -> str:
        if self.reasoning_content:
            return self.reasoning_content
        if self.reasoning:
            return self.reasoning
        return "".join(part.content for part in self._parts if part.is_reasoning)

    def template_fields(self) -> Iterator[tuple[str, str]]:
        """Yield the paths of the fields that only some templates read, each with its name in templates."""
        if self.reasoning_content:
            yield "reasoning_content", "reasoning_content"
        if self.reasoning:
            yield "reasoning", "reasoning_content"
        for name in ("tool_calls", "tool_call_id", "name"):
            if getattr(self, name):
                yield name, name
        for path in self._paths_of_reasoning_parts():
            yield path, "reasoning_content"

    def unused_reasoning(self) -> Iterator[str]:
        """Yield the paths of reasoning that has no effect, because another field has other reasoning."""
        if self.reasoning and self.reasoning != self._reasoning:
            yield "reasoning"
        if self.reasoning_content or self.reasoning:
            yield from self._paths_of_reasoning_parts()

    def _paths_of_reasoning_parts(self) -> list[str]:
        return [f"content[{index}]" for index, part in enumerate(self._parts) if part.is_reasoning]


def _with_arguments_as_object(call: Json) -> Json:
    """Return the call of a tool with its arguments as an object, which a template writes as JSON."""
    # Clients send the arguments as a text of JSON, which a template would write as a JSON string.
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = parse_strict_json(function["arguments"])
    except ValueError:
        return call
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


@dataclass(frozen=True)
class PlacedMessage:
    """A message, with the names that its client has for its fields."""

    place: str  # the field that has it, such as ``messages[1]``
    message: ChatMessage
    # the paths of its fields that are not below this place: one message may consist of several items
    own_paths: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def paths_of(self, path: str) -> list[str]:
        """Return the client's paths of a field of the message, or of a part of it, such as ``content[0]``."""
        name, bracket, index = path.partition("[")
        paths = self.own_paths.get(name, (f"{self.place}.{name}",))
        return [f"{own_path}{bracket}{index}" for own_path in paths]

    def template_fields(self) -> Iterator[tuple[str, str]]:
        """Yield the paths of the fields that only some templates read, each with its name in templates."""
        for path, name in self.message.template_fields():
            yield from ((own_path, name) for own_path in self.paths_of(path))

    def unused_reasoning(self) -> Iterator[str]:
        """Yield the paths of reasoning that has no effect, because another field has other reasoning."""
        for path in self.message.unused_reasoning():
            yield from self.paths_of(path)


def placed_messages(messages: Iterable[ChatMessage]) -> list[PlacedMessage]:
    """Return the messages of the field ``messages`` with their paths."""
    return [PlacedMessage(f"messages[{index}]", message) for index, message in enumerate(messages)]


def template_fields_of(
    messages: Iterable[PlacedMessage], variables: Mapping[str, Any] | None, place: str = ""
) -> dict[str, str]:
    """Return the paths of fields that only some chat templates read, each with its name in templates."""
    fields = {f"{place}chat_template_kwargs.{name}": name for name in variables or ()}
    for message in messages:
        fields |= {place + path: name for path, name in message.template_fields()}
    return fields


def unused_reasoning_of(messages: Iterable[PlacedMessage]) -> list[str]:
    """Return the paths of reasoning in messages that has no effect, because another field has other reasoning."""
    return [path for message in messages for path in message.unused_reasoning()]
