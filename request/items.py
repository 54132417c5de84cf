"""Items of an input, as OpenAI's newer routes take them: messages, and calls of tools with their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from ..common.strict_model import StrictModel
from ..common.text import short_repr
from .messages import MessagePart


class TypedItem(StrictModel):
    """The fields of all items. A route says which types it takes."""

    # the fields that an item must have, by the types that the route takes
    NEEDED_FIELDS: ClassVar[Mapping[str, tuple[str, ...]]]

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[MessagePart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[MessagePart] | None = None
    # what an earlier answer says about itself
    id: Any = None
    status: Any = None
    phase: Any = None

    @field_validator("type", mode="before")
    @classmethod
    def _check_type(cls, value: object) -> object:
        if value not in tuple(cls.NEEDED_FIELDS):  # it may be a list, which has no hash
            raise ValueError(f"{short_repr(value)} is not one of {', '.join(cls.NEEDED_FIELDS)}")
        return value

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        for name in self.NEEDED_FIELDS[self.type]:
            if getattr(self, name) is None:
                raise ValueError(f"a {self.type} needs the field {name}")
        return self
