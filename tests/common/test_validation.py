"""pydantic's errors as sentences."""

from typing import Annotated, Literal, get_args

import pytest
from logitsmith.common.errors import problem_message, problem_sentence
from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import core_schema


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
        ([1, "x"], "numbers.1: 'x' is not an integer"),
        ([], "numbers: at least one is needed"),
    ],
    ids=["a path", "our own message"],
)
def test_a_problem_as_a_sentence(numbers, sentence):
    with pytest.raises(ValidationError) as caught:
        Model(numbers=numbers)
    (problem,) = caught.value.errors()
    assert problem_sentence(problem["loc"], problem_message(problem)) == sentence


def details(kind):
    """A problem of a type of pydantic's, with all the context that pydantic's own sentence needs."""
    context = {"error": "a reason", "expected": "'a' or False", "field_type": "List", "actual_length": 3}
    context |= dict.fromkeys(("gt", "ge", "lt", "le", "min_length", "max_length", "multiple_of"), 2)
    return {"type": kind, "loc": ("a",), "msg": "SENTENCE OF PYDANTIC", "input": [1, 2, 3], "ctx": context}


@pytest.mark.parametrize("kind", get_args(core_schema.ErrorType))
def test_no_sentence_is_pydantics(kind):
    message = problem_message(details(kind))
    assert message
    assert "PYDANTIC" not in message


class Fields(BaseModel, extra="forbid", strict=True):
    store: Literal[False] | None = None
    role: Literal["user", "system"] = "user"
    tools: list[str] = Field(default=[], max_length=0)
    tags: list[str] = Field(default=["a"], min_length=1, max_length=2)
    name: str = Field(default="a", min_length=1)
    share: float = Field(default=0.5, gt=0, lt=1, allow_inf_nan=False)


WRONG_FIELDS = {
    "only one value": ({"store": True}, "store: true is not supported, only false"),
    "another value": ({"role": "me"}, "role: 'me' is not user or system"),
    "a list that has to be empty": ({"tools": ["a"]}, "tools: it has 1 item, but must be empty"),
    "a list that is too long": ({"tags": ["a"] * 3}, "tags: it has 3 items, but must have at most 2"),
    "an empty list": ({"tags": []}, "tags: it is empty"),
    "an empty text": ({"name": ""}, "name: it is empty"),
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
    assert problem_sentence(problem["loc"][:1], problem_message(problem)) == sentence


class Kinds(BaseModel, extra="forbid", strict=True):
    stop: str | list[str] = []
    name: int | Annotated[str, Field(min_length=1)] = 0
    share: float = Field(default=0.5, ge=0, le=1)


SEVERAL_TYPES = {
    "no type fits": ({"stop": 5}, "", "5 is not a string or a list"),
    "the type fits, but not the length": ({"name": ""}, "", "it is empty"),
    "outside of the range": ({"share": 2}, "0..1", "2 is not within 0..1"),
    "no number": ({"share": "x"}, "0..1", "'x' is not a number (0..1)"),
}


@pytest.mark.parametrize(("fields", "allowed", "message"), SEVERAL_TYPES.values(), ids=SEVERAL_TYPES)
def test_a_field_of_several_types_or_of_a_known_range(fields, allowed, message):
    with pytest.raises(ValidationError) as caught:
        Kinds.model_validate(fields)
    assert problem_message(*caught.value.errors(), allowed=allowed) == message


def test_without_a_path_it_is_the_message():
    assert problem_sentence([], "not JSON") == "not JSON"
