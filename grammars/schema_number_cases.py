"""The numbers of a case of a JSON Schema, as parts of a grammar.

A number is one lexeme, however many conditions it meets: llguidance takes the longest lexeme that is possible at a
place, so that digits one by one would lose against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from ..common.strict_json import WrittenNumber
from .json_schema import is_multiple_supported
from .json_strings import terminal_of_text
from .number_texts import multiples_terminal, range_terminal
from .schema_case import Case, Extra, UntranslatableError
from .schema_numbers import Range, as_decimal, least_common_multiple, plain_text, range_of
from .schema_values import exact_fraction

_MAX_LISTED = 2_000


def number_alternatives(case: Case) -> Iterator[dict[str, Any] | str]:
    """Yield JSON Schemas and terminals of Lark. Together, they match the numbers of a case."""
    numbers, step = range_and_step(case)
    if numbers.is_empty:
        return
    excluded = [exact_fraction(value) for part in case for value in part.get(Extra.NOT_VALUES, ())]
    other_steps = excluded_steps(case)
    if step is not None and not other_steps and is_multiple_supported(step):
        for piece in _without_values(numbers, excluded):
            yield _schema_of_multiples(piece, step)
        return
    multiples = None if step is None else numbers.multiples(step)
    if step is not None and multiples is not None and len(multiples) <= _MAX_LISTED:
        for value in (step * index for index in multiples):
            if value not in excluded and all((value / other).denominator != 1 for other in other_steps):
                yield terminal_of_text(plain_text(as_decimal(value)))
        return
    terms = [] if step is None else [_multiples(step)]
    terms += [f"~{_multiples(other)}" for other in other_steps]
    for piece in _without_values(numbers, excluded):
        if not terms and piece == Range():
            yield {"type": "number"}
        else:
            yield " & ".join([f"({range_terminal(piece, is_integer=step == 1)})", *terms])


def _multiples(step: Fraction) -> str:
    terminal = multiples_terminal(step)
    if terminal is None:
        text = plain_text(as_decimal(step))
        raise UntranslatableError(
            f"no exact form is known for the multiples of {text} beside other keywords", "multipleOf"
        )
    return terminal


def _schema_of_multiples(numbers: Range, step: Fraction) -> dict[str, Any] | str:
    """Return the numbers of a range that are multiples of a step."""
    if step == 1:
        return {"type": "integer"} if numbers == Range() else range_terminal(numbers, is_integer=True)
    schema: dict[str, Any] = {"type": "number", "multipleOf": _written(step)}
    if numbers.low is not None:
        schema["minimum" if numbers.has_low else "exclusiveMinimum"] = WrittenNumber(plain_text(numbers.low))
    if numbers.high is not None:
        schema["maximum" if numbers.has_high else "exclusiveMaximum"] = WrittenNumber(plain_text(numbers.high))
    return schema


def range_and_step(case: Case) -> tuple[Range, Fraction | None]:
    """Return the range of the numbers of a case, and of what number they are multiples."""
    numbers = reduce(_intersection, map(range_of, case), Range())
    steps = [exact_fraction(part["multipleOf"]) for part in case if "multipleOf" in part]
    if any("type" in part for part in case):
        steps.append(Fraction(1))
    return numbers, reduce(least_common_multiple, steps) if steps else None


def excluded_steps(case: Case) -> list[Fraction]:
    """Return the steps of which the numbers of a case are no multiples."""
    steps = [exact_fraction(part[Extra.NOT_MULTIPLE]) for part in case if Extra.NOT_MULTIPLE in part]
    return [*steps, *(Fraction(1) for part in case if Extra.NOT_INTEGER in part)]


def _intersection(first: Range, second: Range) -> Range:
    low = max((first, second), key=_low_key)
    high = min((first, second), key=_high_key)
    return Range(low.low, high.high, low.has_low, high.has_high)


def _low_key(limits: Range) -> tuple[Decimal, bool]:
    return (Decimal("-inf") if limits.low is None else limits.low, not limits.has_low)


def _high_key(limits: Range) -> tuple[Decimal, bool]:
    return (Decimal("inf") if limits.high is None else limits.high, limits.has_high)


def _written(value: Fraction) -> WrittenNumber:
    return WrittenNumber(plain_text(as_decimal(value)))


def _without_values(numbers: Range, values: list[Fraction]) -> Iterator[Range]:
    """Yield the ranges that remain without some values."""
    for value in sorted(set(values)):
        limit = as_decimal(value)
        before = _intersection(numbers, Range(high=limit, has_high=False))
        if not before.is_empty:
            yield before
        numbers = _intersection(numbers, Range(low=limit, has_low=False))
    if not numbers.is_empty:
        yield numbers
