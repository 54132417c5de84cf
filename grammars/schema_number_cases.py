"""The numbers of a case of a JSON Schema, as parts of a grammar.

A range with a step stays a JSON Schema. Numbers that are left out divide a range. For numbers that are not multiples,
or not integers, the digits are read one after another: the remainder of what was read decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from ..common.strict_json import WrittenNumber
from .rule_writer import Alternative, RuleName, RuleWriter
from .schema_case import Case, Extra, UntranslatableError
from .schema_numbers import Range, least_common_multiple, plain_text, range_of
from .schema_values import exact_fraction

_MAX_LISTED = 2_000
_MAX_REMAINDERS = 500
_FRACTION = r"/\.[0-9]*[1-9][0-9]*/"


def number_alternatives(case: Case, writer: RuleWriter) -> Iterator[tuple[Any, ...]]:
    """Yield sequences of JSON Schemas, rules and expressions of Lark. Together, they match the numbers of a case."""
    numbers, step = range_and_step(case)
    if numbers.is_empty:
        return
    excluded = [exact_fraction(value) for part in case for value in part.get(Extra.NOT_VALUES, ())]
    other_steps = [exact_fraction(part[Extra.NOT_MULTIPLE]) for part in case if Extra.NOT_MULTIPLE in part]
    if any(Extra.NOT_INTEGER in part for part in case):
        other_steps.append(Fraction(1))
    if step is not None and any((step / other).denominator == 1 for other in other_steps):
        return
    multiples = None if step is None else numbers.multiples(step)
    if other_steps and step is not None and multiples is not None and len(multiples) <= _MAX_LISTED:
        for value in (step * index for index in multiples):
            if value not in excluded and all((value / other).denominator != 1 for other in other_steps):
                yield ({"const": _written(value)},)
        return
    for piece in _without_values(numbers, excluded):
        if not other_steps:
            yield (_schema_of_range(piece, step),)
        elif step is not None:
            yield from _integers_by_remainder(piece, step, other_steps, writer)
        else:
            yield from _non_integers(piece)
            inner_steps = [other for other in other_steps if other != 1]
            if any(other.denominator != 1 for other in inner_steps):
                raise UntranslatableError("multipleOf: 'not' with a fraction has no exact form")
            if len(inner_steps) == len(other_steps):
                yield from _integers_by_remainder(piece, Fraction(1), inner_steps, writer)


def range_and_step(case: Case) -> tuple[Range, Fraction | None]:
    """Return the range of the numbers of a case, and of what number they are multiples."""
    numbers = reduce(_intersection, map(range_of, case), Range())
    steps = [exact_fraction(part["multipleOf"]) for part in case if "multipleOf" in part]
    if any("type" in part for part in case):
        steps.append(Fraction(1))
    return numbers, reduce(least_common_multiple, steps) if steps else None


def _intersection(first: Range, second: Range) -> Range:
    low = max((first, second), key=lambda limits: _low_key(limits))
    high = min((first, second), key=lambda limits: _high_key(limits))
    return Range(low.low, high.high, low.has_low, high.has_high)


def _low_key(limits: Range) -> tuple[Decimal, bool]:
    return (Decimal("-inf") if limits.low is None else limits.low, not limits.has_low)


def _high_key(limits: Range) -> tuple[Decimal, bool]:
    return (Decimal("inf") if limits.high is None else limits.high, limits.has_high)


def _written(value: Fraction) -> WrittenNumber:
    return WrittenNumber(plain_text(as_decimal(value)))


def as_decimal(value: Fraction) -> Decimal:
    digits = 400
    scaled = value * 10**digits
    return Decimal(int(scaled)).scaleb(-digits) if scaled.denominator == 1 else Decimal(value.numerator) / value.denominator


def _schema_of_range(numbers: Range, step: Fraction | None) -> dict[str, Any]:
    """Return the schema of the numbers of a range that are multiples of a step."""
    keywords: dict[str, Any] = {"type": "number"}
    if step is not None and step.denominator == 1:
        keywords["type"] = "integer"
    if step is not None and step != 1:
        keywords["multipleOf"] = _written(step)
    if numbers.low is not None:
        keyword = "minimum" if numbers.has_low else "exclusiveMinimum"
        keywords[keyword] = WrittenNumber(plain_text(numbers.low))
    if numbers.high is not None:
        keyword = "maximum" if numbers.has_high else "exclusiveMaximum"
        keywords[keyword] = WrittenNumber(plain_text(numbers.high))
    return keywords


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


def _non_integers(numbers: Range) -> Iterator[tuple[Any, ...]]:
    """Yield the numbers of a range that are not integers."""
    low, high = numbers.low, numbers.high
    if any(limit is not None and limit % 1 for limit in (low, high)):
        raise UntranslatableError("minimum, maximum: beside 'not', no exact form is known for decimals")
    if high is None or high > 0:
        positive = Range(low=Decimal(0) if low is None else max(low, Decimal(0)), high=high, has_high=False)
        yield (_schema_of_range(positive, Fraction(1)), _FRACTION)
    if low is None or low < 0:
        top = Decimal(-1) if high is None else min(high, Decimal(-1))
        negative = Range(low=low, high=top, has_low=False)
        if not negative.is_empty:
            yield (_schema_of_range(negative, Fraction(1)), _FRACTION)
        if high is None or high >= 0:
            yield ('"-0"', _FRACTION)


def _integers_by_remainder(
    numbers: Range, step: Fraction, other_steps: list[Fraction], writer: RuleWriter
) -> Iterator[Alternative]:
    """Yield the multiples of a step in a range that are no multiples of other steps, read digit by digit."""
    # A range without an end is divided: numbers of few digits are listed, and longer ones are read.
    if any(value.denominator != 1 for value in (step, *other_steps)):
        raise UntranslatableError("multipleOf: beside 'not', steps with decimals have no exact form")
    modulus = math.lcm(step.numerator, *(value.numerator for value in other_steps))
    if modulus > _MAX_REMAINDERS:
        raise UntranslatableError(f"multipleOf: beside 'not', a common multiple of {modulus:,} is too large")

    def is_member(value: int) -> bool:
        return value % step.numerator == 0 and all(value % other.numerator for other in other_steps)

    limits = [abs(int(limit)) + 1 for limit in (numbers.low, numbers.high) if limit is not None]
    digit_count = len(str(max(limits, default=0)))
    if digit_count > 3:
        raise UntranslatableError("minimum, maximum: beside 'not', no exact form is known for large limits")
    end = 10**digit_count
    for value in range(1 - end, end):
        if is_member(value) and _contains(numbers, value):
            yield (f'"{value}"',)
    for sign, is_open in (("", numbers.high is None), ('"-"', numbers.low is None)):
        if is_open:
            rule = _long_numbers(digit_count + 1, modulus, is_member, writer)
            yield (sign, rule) if sign else (rule,)


def _long_numbers(min_digits: int, modulus: int, is_member: Any, writer: RuleWriter) -> RuleName:
    """Return the rule of the numbers with at least so many digits that belong to a set."""
    names = {
        (missing, remainder): writer.new_name("n") for missing in range(min_digits) for remainder in range(modulus)
    }
    start = writer.new_name("n")
    for (missing, remainder), name in names.items():
        alternatives: list[Alternative] = [()] if missing == 0 and is_member(remainder) else []
        for digit in range(10):
            next_state = (max(missing - 1, 0), (remainder * 10 + digit) % modulus)
            alternatives.append((f'"{digit}"', names[next_state]))
        writer.set(name, alternatives)
    writer.set(start, [(f'"{digit}"', names[min_digits - 1, digit % modulus]) for digit in range(1, 10)])
    return start


def _contains(numbers: Range, value: int) -> bool:
    is_above = numbers.low is None or value > numbers.low or (value == numbers.low and numbers.has_low)
    is_below = numbers.high is None or value < numbers.high or (value == numbers.high and numbers.has_high)
    return is_above and is_below
