"""Which values match a case of a JSON Schema, and whether a value does at all."""

from __future__ import annotations

from typing import Any

from .json_strings import (
    ANY_STRING,
    is_terminal_empty,
    length_terminal,
    pattern_terminal,
    string_terminal,
)
from .schema_case import Case, Extra, UntranslatableError
from .schema_number_cases import excluded_steps, range_and_step
from .schema_values import ValueCheck


class CaseCheck(ValueCheck):
    """The check of values against cases."""

    def values(self, case: Case, type_name: str) -> list[Any] | None:
        """Return the values of a case; None if they are not listed."""
        listed = [part["enum"] for part in case if "enum" in part]
        if not listed and type_name == "boolean":
            listed = [[True, False]]
        if not listed and type_name == "null":
            listed = [[None]]
        if not listed:
            return None
        return [value for value in listed[0] if all(self.matches_part(value, part) for part in case)]

    def schemas_of_name(self, name: str, case: Case) -> list[Any]:
        """Return the schemas that apply to the value of a key."""
        return [schema for part in case for schema in self.schemas_of_key(name, part)]

    def matches_part(self, value: Any, part: dict[Any, Any]) -> bool:
        if not self.matches(value, {key: item for key, item in part.items() if not isinstance(key, Extra)}):
            return False
        return all(self._has_extra(value, key, item) for key, item in part.items() if isinstance(key, Extra))

    def _has_extra(self, value: Any, extra: Extra, argument: Any) -> bool:
        negated = _NEGATED.get(extra)
        if negated is not None:
            return not self.matches(value, {negated: argument})
        if extra is Extra.LATER_ITEM:
            first_index, schema = argument
            return any(self.matches(item, schema) for item in value[first_index:])
        key_schema, value_schema = argument
        return any(
            self.matches(key, key_schema) and self.matches(item, value_schema) for key, item in value.items()
        )


# the keywords that say the opposite
_NEGATED = {
    Extra.NOT_VALUES: "enum",
    Extra.NOT_PATTERN: "pattern",
    Extra.NOT_FORMAT: "format",
    Extra.NOT_MULTIPLE: "multipleOf",
    Extra.NOT_INTEGER: "type",
    Extra.NOT_UNIQUE: "uniqueItems",
}


def string_terminal_of_case(case: Case) -> str:
    """Return an expression of terminals for the strings of a case."""
    terms = [ANY_STRING]
    for part in case:
        if "enum" in part:
            terms.append(f"({' | '.join(map(string_terminal, part['enum']))})")
        if "minLength" in part or "maxLength" in part:
            terms.append(length_terminal(part.get("minLength", 0), part.get("maxLength")))
        if "pattern" in part:
            terms.append(pattern_terminal(part["pattern"]))
        if Extra.NOT_PATTERN in part:
            terms.append(f"~{pattern_terminal(part[Extra.NOT_PATTERN])}")
        if Extra.NOT_VALUES in part:
            terms.append(f"~({' | '.join(map(string_terminal, part[Extra.NOT_VALUES]))})")
        for keyword in ("format", Extra.NOT_FORMAT):
            if keyword in part:
                raise UntranslatableError(
                    f"{part[keyword]!r} has no exact form beside 'not' or in a key", "format"
                )
    return " & ".join(terms)


def is_string_case_empty(case: Case) -> bool:
    """Return True if surely no string matches a case."""
    constraints = sum(len(part) for part in case)
    if constraints < 2 or any(key in part for part in case for key in ("format", Extra.NOT_FORMAT)):
        return False
    try:
        return is_terminal_empty(string_terminal_of_case(case))
    except UntranslatableError:
        return False


def is_number_case_empty(case: Case) -> bool:
    """Return True if surely no number matches a case."""
    numbers, step = range_and_step(case)
    if numbers.is_empty:
        return True
    multiples = None if step is None else numbers.multiples(step)
    if multiples is not None and len(multiples) == 0:
        return True
    return step is not None and any((step / other).denominator == 1 for other in excluded_steps(case))
