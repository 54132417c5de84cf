"""pydantic's errors as sentences."""

import pytest
from logitsmith.common import problem_message, problem_sentence
from pydantic import BaseModel, ValidationError, field_validator


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
        ([1, "x"], "numbers.1: 'x' is not a whole number"),
        ([], "numbers: at least one is needed"),
    ],
    ids=["a path", "our own message"],
)
def test_a_problem_as_a_sentence(numbers, sentence):
    with pytest.raises(ValidationError) as caught:
        Model(numbers=numbers)
    (problem,) = caught.value.errors()
    assert problem_sentence(problem["loc"], problem_message(problem)) == sentence


def test_without_a_path_it_is_the_message():
    assert problem_sentence([], "not JSON") == "not JSON"
