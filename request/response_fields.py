"""The body of `/v1/responses`: its items become the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ..common.strict_model import Json
from .fields import MessageFields
from .items import TypedItem
from .messages import ChatMessage, MessagePart, PlacedMessage

_LOGPROBS = "message.output_text.logprobs"


class InputItem(TypedItem):
    """An item of the input: a message, reasoning, the call of a tool or its result."""

    NEEDED_FIELDS = {  # noqa: RUF012 - a constant of the class, whose type the base declares
        "message": ("role", "content"),
        "reasoning": (),
        "function_call": ("call_id", "name", "arguments"),
        "function_call_output": ("call_id", "output"),
    }

    type: Literal["message", "reasoning", "function_call", "function_call_output"] = "message"
    summary: list[MessagePart] | None = None

    @field_validator("type", mode="before")
    @classmethod
    def _refuse_references(cls, value: object) -> object:
        if value == "item_reference":
            raise ValueError("this server stores no responses; send the item itself")
        return value

    @property
    def is_assistants(self) -> bool:
        """True if the item belongs to an answer, which may have several."""
        return self.type in ("reasoning", "function_call") or self.role == "assistant"

    @property
    def thought(self) -> str:
        """The text of reasoning."""
        parts = self.content or self.summary or ""
        return parts if isinstance(parts, str) else "".join(part.content for part in parts)

    def message(self, place: str) -> PlacedMessage:
        """Return the message of an item that is not the assistant's."""
        if self.type != "function_call_output":
            return PlacedMessage(place, ChatMessage(role=self.role or "user", content=self.content or ""))
        message = ChatMessage(role="tool", content=self.output or "", tool_call_id=self.call_id)
        own_paths = {"content": [f"{place}.output"], "tool_call_id": [f"{place}.call_id"]}
        return PlacedMessage(place, message, own_paths)


class AssistantTurn:
    """The items of one answer, which a chat has as one message: reasoning, then text, then calls of tools."""

    def __init__(self, place: str) -> None:
        self._place = place  # of the first item
        self._paths: dict[str, list[str]] = {}
        self._thoughts: list[str] = []
        self._content: str | list[MessagePart] | None = None
        self._calls: list[Json] = []

    def takes(self, item: InputItem) -> bool:
        """Return whether an item can belong to the answer after its items so far."""
        return item.is_assistants and (item.type == "function_call" or (self._content is None and not self._calls))

    def add(self, item: InputItem, place: str) -> None:
        if item.type == "reasoning":
            self._paths.setdefault("reasoning_content", []).append(place)
            self._thoughts.append(item.thought)
        elif item.type == "function_call":
            self._paths.setdefault("tool_calls", []).append(place)
            function = {"name": item.name, "arguments": item.arguments}
            self._calls.append({"id": item.call_id, "type": "function", "function": function})
        else:
            self._paths["content"] = [f"{place}.content"]
            self._content = item.content

    def message(self) -> PlacedMessage:
        message = ChatMessage(
            role="assistant",
            content=self._content or "",
            reasoning_content="".join(self._thoughts),
            tool_calls=self._calls,
        )
        return PlacedMessage(self._place, message, self._paths)


def _placed_turns(items: Iterable[InputItem]) -> Iterator[PlacedMessage]:
    """Yield the messages of items, each with the path of its first item."""
    turn: AssistantTurn | None = None
    for index, item in enumerate(items):
        place = f"input[{index}]"
        if turn is not None and not turn.takes(item):
            yield turn.message()
            turn = None
        if not item.is_assistants:
            yield item.message(place)
            continue
        if turn is None:
            turn = AssistantTurn(place)
        turn.add(item, place)
    if turn is not None:
        yield turn.message()


class ResponseFields(MessageFields):
    """The input of `/v1/responses`, with the instructions before it. What needs a store is an error."""

    conversation_field = "input"
    every_stream_tells_confidence: ClassVar[bool] = True
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: Any = None
    conversation: Any = None
    background: Any = None
    prompt: Any = None

    @field_validator("previous_response_id", "conversation", "prompt")
    @classmethod
    def _check_needs_no_store(cls, value: object) -> object:
        if value is not None:
            raise ValueError("this server stores no responses, conversations or prompts; send all items in input")
        return value

    @field_validator("background")
    @classmethod
    def _check_is_answered_at_once(cls, value: object) -> object:
        if value not in (None, False):
            raise ValueError("this server stores no responses, so it answers at once; leave background out")
        return value

    @field_validator("n", "n_cmpl")
    @classmethod
    def _check_is_one(cls, value: int | None) -> int | None:
        if value is not None and value > 1:
            raise ValueError(f"{value} is not 1; a response has one text")
        return value

    @model_validator(mode="after")
    def _ask_for_logprobs(self) -> ResponseFields:
        if _LOGPROBS in (self.include or ()) and self.logprobs is None:
            self.logprobs = True
        return self

    def placed_messages(self) -> list[PlacedMessage]:
        """Return the messages of a chat, with the paths of their items."""
        messages: list[PlacedMessage] = []
        if self.instructions is not None:
            instructions = ChatMessage(role="system", content=self.instructions)
            messages.append(PlacedMessage("instructions", instructions))
        if isinstance(self.input, str):
            messages.append(PlacedMessage("input", ChatMessage(role="user", content=self.input)))
        else:
            messages += _placed_turns(self.input)
        return messages

    def without_effect(self) -> Iterator[str]:
        """Yield the paths of fields that cannot be honored."""
        if self.store:
            yield "store"
        if self.truncation == "auto":
            yield "truncation"
        for index, name in enumerate(self.include or ()):
            if name != _LOGPROBS:
                yield f"include[{index}]"

    def repeated(self) -> Json:
        """Return the fields that the answer repeats."""
        names = ("instructions", "max_output_tokens", "temperature", "top_p", "top_logprobs")
        text = None if self.text is None else self.text.format
        effort = None if self.reasoning is None else self.reasoning.effort
        return {
            **{name: getattr(self, name) for name in names},
            "metadata": self.metadata or {},
            "reasoning": {"effort": effort, "summary": None},
            "text": {"format": {"type": "text"} if text is None else text.repeated()},
        }
