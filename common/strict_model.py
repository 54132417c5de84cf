"""Models of tables in requests and presets: types are not converted, and the first problem is told."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from .errors import InvalidFieldError, Place, problem_message
from .strict_json import without_whole_floats

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Json = dict[str, Any]


class StrictModel(BaseModel):
    """A pydantic model that converts no types, except whole floats to integers; a null field counts as absent."""

    # Unknown fields are left out. `fields_without_effect` finds them.

    model_config = ConfigDict(extra="ignore", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        integers = _integer_fields(cls)
        return {
            name: without_whole_floats(value) if name in integers else value
            for name, value in fields.items()
            if value is not None
        }


@cache
def _integer_fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of the fields whose numbers are integers."""
    names = set()
    for attribute, field in model.model_fields.items():
        types = set(_types_in(field.annotation))
        if int in types and float not in types:
            names.add(field.alias or attribute)
    return frozenset(names)


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield an annotation such as ``list[int] | None``, and the types that it consists of."""
    yield annotation
    for part in get_args(annotation):
        yield from _types_in(part)


_Fields = TypeVar("_Fields", bound=StrictModel)


def validated(fields_type: type[_Fields], record: Json) -> _Fields:
    """Return the fields of a table. Raises ``InvalidFieldError`` for the first that is wrong."""
    try:
        return fields_type.model_validate(record)
    except ValidationError as error:
        raise _invalid_field(error) from None


def _invalid_field(error: ValidationError) -> InvalidFieldError:
    """Return the error of the first invalid field."""
    errors = error.errors(include_url=False)
    first_field = errors[0]["loc"][:1]
    errors_of_field = [each for each in errors if each["loc"][:1] == first_field]
    # A field of several types has an error for each type. The client has probably meant the type whose error is
    # the deepest, because the value fits this type down to there.
    deepest_error = max(errors_of_field, key=lambda each: len(each["loc"]))
    path = _path_of(deepest_error)
    errors_at_path = [each for each in errors_of_field if _path_of(each) == path]
    problem = problem_message(deepest_error, *errors_at_path)
    return InvalidFieldError(problem, path)


def _path_of(error: ErrorDetails) -> Place:
    """Return the keys and indexes that lead to the value with an error."""
    return tuple(part for part in error["loc"] if not _is_type_name(part))


def _is_type_name(part: object) -> bool:
    """Return whether a part of a path is the name by which pydantic distinguishes the types of a field."""
    if not isinstance(part, str):
        return False
    return part in ("str", "int", "float", "bool") or "[" in part or part.startswith(("_", "constrained-"))
