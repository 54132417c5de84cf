"""Cases of a JSON Schema: keywords that all apply to JSON of one type."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

Schema = Any  # true, false, or an object
Case = tuple[dict[str, Any], ...]  # keywords of one type, all of which apply


class Extra(StrEnum):
    """What no keyword of JSON Schema says about a value."""

    NOT_VALUES = "none of these values"  # numbers, strings, true and false
    NOT_PATTERN = "a string in which the pattern is not found"
    NOT_FORMAT = "a string that has not the format"
    NOT_MULTIPLE = "a number that is not a multiple"
    NOT_INTEGER = "a number that is not an integer"
    NOT_UNIQUE = "an array with two equal items"
    LATER_ITEM = "an array with an item that matches the schema, at this index or later"
    SOME_KEY = "an object with a key that matches a schema, and whose value matches a schema"


class UntranslatableError(Exception):
    """A schema for which no exact translation is known.

    Attributes:
        problem: what is wrong, as the end of a sentence.
        keyword: the keyword at fault; empty if there is none.
        schemas: the schemas whose translation has failed, the innermost first.
    """

    def __init__(self, problem: str, keyword: str = "") -> None:
        super().__init__(f"{keyword}: {problem}" if keyword else problem)
        self.problem = problem
        self.keyword = keyword
        self.schemas: list[Schema] = []


def greatest(case: Case, keyword: str) -> int:
    """Return the greatest value of a lower limit in a case; 0 if there is none."""
    return max((part[keyword] for part in case if keyword in part), default=0)


def least(case: Case, keyword: str) -> int | None:
    """Return the least value of an upper limit in a case; None if there is none."""
    return min((part[keyword] for part in case if keyword in part), default=None)


def names_of(case: Case, keyword: str) -> list[str]:
    """Return the names in a list or table of a case, once each."""
    return list(dict.fromkeys(name for part in case for name in part.get(keyword, ())))
