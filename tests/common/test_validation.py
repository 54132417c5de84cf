"""pydantic's errors as sentences."""

from typing import Annotated, Literal

import pytest
from logitsmith.common.errors import problem_message, problem_sentence
from pydantic import BaseModel, Field, ValidationError, field_validator


class Model(BaseModel):
    numbers: list[int]

    @field_validator("numbers")
    @classmethod
    def _check(cls, numbers):
        if not numbers:
            raise ValueError("at least one is needed")
        return numbers


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ([1, "x"], "numbers[1]: 'x' is not an integer"),
        ([], "numbers: at least one is needed"),
    ],
    ids=["a path", "our own message"],
)
def test_a_problem_as_a_sentence(numbers, sentence):
    with pytest.raises(ValidationError) as caught:
        Model(numbers=numbers)
    (problem,) = caught.value.errors()
    assert problem_sentence(problem["loc"], problem_message(problem)) == sentence


class Fields(BaseModel, extra="forbid", strict=True):
    store: Literal[False] | None = None
    role: Literal["user", "system"] = "user"
    tools: list[str] = Field(default=[], max_length=0)
    tags: list[str] = Field(default=["a"], min_length=1, max_length=2)
    name: str = Field(default="a", min_length=1)
    share: float = Field(default=0.5, gt=0, lt=1, allow_inf_nan=False)


WRONG_FIELDS = {
    "only one value": ({"store": True}, "store: true is not false"),
    "another value": ({"role": "me"}, "role: 'me' is not user or system"),
    "a list that has to be empty": ({"tools": ["a"]}, "tools: there is 1 item; the maximum is 0"),
    "a list that is too long": ({"tags": ["a"] * 3}, "tags: there are 3 items; the maximum is 2"),
    "an empty list": ({"tags": []}, "tags: there are 0 items; the minimum is 1"),
    "an empty text": ({"name": ""}, "name: there are 0 characters; the minimum is 1"),
    "no text": ({"name": None}, "name: null is not a string"),
    "too high": ({"share": 1.0}, "share: 1.0 is not < 1.0"),
    "infinite": ({"share": float("inf")}, "share: inf is not a finite number"),
    "unknown": ({"shore": 1}, "shore: there is no such field"),
}


@pytest.mark.parametrize(("fields", "sentence"), WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_a_wrong_field(fields, sentence):
    with pytest.raises(ValidationError) as caught:
        Fields.model_validate(fields)
    problem = caught.value.errors()[0]
    assert problem_sentence(problem["loc"][:1], problem_message(problem)).startswith(sentence)


class Kinds(BaseModel, extra="forbid", strict=True):
    stop: str | list[str] = []
    name: int | Annotated[str, Field(min_length=1)] = 0
    share: float = Field(default=0.5, ge=0, le=1)


SEVERAL_TYPES = {
    "no type fits": ({"stop": 5}, "", "5 is not a string or a list"),
    "the type fits, but not the length": ({"name": ""}, "", "there are 0 characters; the minimum is 1"),
    "outside of the range": ({"share": 2}, "0..1", "2 is not within 0..1"),
    "no number": ({"share": "x"}, "0..1", "'x' is not a number (0..1)"),
}


@pytest.mark.parametrize(("fields", "allowed", "message"), SEVERAL_TYPES.values(), ids=SEVERAL_TYPES)
def test_a_field_of_several_types_or_of_a_known_range(fields, allowed, message):
    with pytest.raises(ValidationError) as caught:
        Kinds.model_validate(fields)
    assert problem_message(*caught.value.errors(), allowed=allowed) == message


def test_without_a_path_it_is_the_message():
    assert problem_sentence((), "not JSON") == "not JSON"
