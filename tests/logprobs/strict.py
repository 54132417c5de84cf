"""The base of strict checks of other systems' formats: no field is missing, and no field is added."""

from typing import Literal

from logitsmith.common.strict_json import encode_json
from pydantic import BaseModel


class Strict(BaseModel, extra="forbid", strict=True):
    """An object with these fields and no others, of these very types."""


class Ours(Strict):
    """A whole response: it may have the one field that is ours."""

    logprobs_from: Literal["model", "chain"] | None = None


class Usage(Strict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def checked(kind, found):
    """The object as its JSON is read, if it is of this kind."""
    return kind.model_validate_json(encode_json(found))
