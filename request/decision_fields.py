"""The body of `/v1/decisions`: an input, and questions about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ..common.errors import InvalidFieldError, place_suffix
from ..common.strict_model import Json, StrictModel, validated
from ..common.text import short_repr
from .items import TypedItem
from .messages import MessagePart

FIELDS_OF_SOME_QUESTIONS = ("choices", "levels", "value", "label")
_MAX_ORDERS = 1_000  # of the options of a question


class DecisionItem(TypedItem):
    """An item of the input: a message, the call of a tool or its result."""

    NEEDED_FIELDS = {  # noqa: RUF012 - a constant of the class, whose type the base declares
        "message": ("role", "content"),
        "function_call": ("call_id", "name", "arguments"),
        "function_call_output": ("call_id", "output"),
        "custom_tool_call": ("call_id", "name", "input"),
        "custom_tool_call_output": ("call_id", "output"),
    }

    type: Literal[
        "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"
    ] = "message"
    input: str | None = None

    @property
    def text(self) -> str:
        """The text of the item, without the words that say what it is."""
        values = (self.content, self.arguments, self.input, self.output)
        return text_of(next(value for value in values if value is not None))


class DecisionOption(StrictModel):
    """A choice, with its ``value``, or a level, with its ``label``."""

    value: Any = None
    label: str | None = None
    description: str | None = None


class DecisionQuestion(StrictModel):
    """A question. `read_questions` says what is wrong in it."""

    name: str | None = None
    type: Literal["predicate", "choice", "score"]
    instructions: str | list[MessagePart]
    choices: list[DecisionOption | Any] | None = None
    levels: list[DecisionOption | Any] | None = None


class DecisionFields(StrictModel):
    """The input, the questions, and how they are asked."""

    model: str | None = None
    input: str | Annotated[list[DecisionItem], Field(min_length=1)]
    questions: list[DecisionQuestion | Any]
    method: Literal["sequence", "grammar"] = "sequence"
    permutations: Annotated[int, Field(ge=1, le=_MAX_ORDERS)] = 1
    prior: str | None = None
    reasoning_budget: Annotated[int, Field(ge=0)] = 0
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    prompt_template: str | None = None

    def input_text(self) -> str:
        """Return the input as one text: that of a single user's message, or a transcript of all items.

        In a transcript each item is a paragraph: ``user: TEXT``, and so for each role; the call of a tool is
        ``assistant calls NAME: TEXT``, and its result ``result of NAME: TEXT``. Raises ``InvalidFieldError`` for a
        result without a call.
        """
        if isinstance(self.input, str):
            return self.input
        if len(self.input) == 1 and self.input[0].role == "user":
            return self.input[0].text
        name_by_call: dict[str | None, str | None] = {}
        paragraphs: list[str] = []
        for index, item in enumerate(self.input):
            if item.type == "message":
                speaker = str(item.role)
            elif item.name is not None:
                name_by_call[item.call_id] = item.name
                speaker = f"assistant calls {item.name}"
            elif item.call_id in name_by_call:
                speaker = f"result of {name_by_call[item.call_id]}"
            else:
                place = f"input[{index}].call_id"
                raise InvalidFieldError(
                    f"{place}: no earlier call has the id {short_repr(item.call_id)}", field=place
                )
            paragraphs.append(f"{speaker}: {item.text}")
        return "\n\n".join(paragraphs)


def text_of(content: str | Iterable[MessagePart]) -> str:
    """Return the text of a content: each part is a paragraph."""
    return content if isinstance(content, str) else "\n\n".join(part.content for part in content)


def with_plain_instructions(questions: Sequence[object]) -> list[object]:
    """Return questions as `read_questions` takes them: parts of instructions become one text."""
    return [_with_plain_instructions(question, index) for index, question in enumerate(questions)]


def _with_plain_instructions(question: object, index: int) -> object:
    if not isinstance(question, Mapping) or not isinstance(question.get("instructions"), list):
        return question
    parts: list[MessagePart] = []
    for number, part in enumerate(question["instructions"]):
        place = ("questions", index, "instructions", number)
        try:
            parts.append(validated(MessagePart, part))
        except InvalidFieldError as error:
            field = place_suffix(place).removeprefix(".")
            raise InvalidFieldError(error.problem, (*place, *error.place), field) from None
    plain: Json = {**question, "instructions": text_of(parts)}
    return plain
