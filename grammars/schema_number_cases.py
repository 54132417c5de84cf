"""The numbers of a case of a JSON Schema, as parts of a grammar.

A range with a step stays a JSON Schema. Numbers that are left out divide a range. For numbers that are not multiples,
or not integers, the digits are read one after another: the remainder of what was read decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from ..common.strict_json import WrittenNumber
from .json_strings import terminal_of_text
from .number_texts import range_terminal
from .json_schema import is_multiple_supported
from .rule_writer import Alternative, RuleName, RuleWriter
from .schema_case import Case, Extra, UntranslatableError
from .schema_numbers import Range, first_integer, last_integer, least_common_multiple, plain_text, range_of
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
    is_supported = not other_steps and (step is None or is_multiple_supported(step))
    multiples = None if step is None else numbers.multiples(step)
    if not is_supported and step is not None and multiples is not None and len(multiples) <= _MAX_LISTED:
        for value in (step * index for index in multiples):
            if value not in excluded and all((value / other).denominator != 1 for other in other_steps):
                yield (terminal_of_text(plain_text(as_decimal(value))),)
        return
    for piece in _without_values(numbers, excluded):
        if is_supported:
            yield _of_range(piece, step, writer)
        elif step is not None:
            yield from _integers_by_remainder(piece, step, other_steps, writer)
        else:
            yield from _non_integers(piece, writer)
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


def _of_range(numbers: Range, step: Fraction | None, writer: RuleWriter) -> tuple[Any, ...]:
    """Return the numbers of a range that are multiples of a step."""
    if step is None or step == 1:
        if numbers == Range():
            return ({"type": "number" if step is None else "integer"},)
        return (writer.terminal(range_terminal(numbers, is_integer=step is not None)),)
    schema: dict[str, Any] = {"type": "number", "multipleOf": _written(step)}
    if numbers.low is not None:
        schema["minimum" if numbers.has_low else "exclusiveMinimum"] = WrittenNumber(plain_text(numbers.low))
    if numbers.high is not None:
        schema["maximum" if numbers.has_high else "exclusiveMaximum"] = WrittenNumber(plain_text(numbers.high))
    return (schema,)


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


def _non_integers(numbers: Range, writer: RuleWriter) -> Iterator[tuple[Any, ...]]:
    """Yield the numbers of a range that are not integers."""
    low, high = numbers.low, numbers.high
    if any(limit is not None and limit % 1 for limit in (low, high)):
        raise UntranslatableError("minimum, maximum: beside 'not', no exact form is known for decimals")
    if high is None or high > 0:
        positive = Range(low=Decimal(0) if low is None else max(low, Decimal(0)), high=high, has_high=False)
        yield (*_of_range(positive, Fraction(1), writer), _FRACTION)
    if low is None or low < 0:
        top = Decimal(-1) if high is None else min(high, Decimal(-1))
        negative = Range(low=low, high=top, has_low=False)
        if not negative.is_empty:
            yield (*_of_range(negative, Fraction(1), writer), _FRACTION)
        if high is None or high >= 0:
            yield ('"-0"', _FRACTION)


def _integers_by_remainder(
    numbers: Range, step: Fraction, other_steps: list[Fraction], writer: RuleWriter
) -> Iterator[Alternative]:
    """Yield the multiples of a step in a range that are no multiples of other steps, read digit by digit."""
    if any(value.denominator != 1 for value in (step, *other_steps)):
        raise UntranslatableError("multipleOf: steps with decimals have no exact form here")
    modulus = math.lcm(step.numerator, *(value.numerator for value in other_steps))
    if modulus > _MAX_REMAINDERS:
        raise UntranslatableError(f"multipleOf: a common multiple of {modulus:,} is too large")

    def is_member(value: int) -> bool:
        return value % step.numerator == 0 and all(value % other.numerator for other in other_steps)

    first = None if numbers.low is None else first_integer(numbers.low, numbers.has_low)
    last = None if numbers.high is None else last_integer(numbers.high, numbers.has_high)
    if last is None or last >= 0:
        for rule in _digits(max(first or 0, 0), last, modulus, is_member, writer):
            yield (rule,)
    if first is None or first < 0:
        least = 1 if last is None or last >= 0 else -last
        for rule in _digits(least, None if first is None else -first, modulus, is_member, writer):
            yield ('"-"', rule)


def _digits(
    first: int, last: int | None, modulus: int, is_member: Callable[[int], bool], writer: RuleWriter
) -> Iterator[RuleName]:
    """Yield rules of the members of a set from one number to another, one rule for each number of digits."""
    min_count = len(str(first))
    max_count = None if last is None else len(str(last))
    greatest = 10**min_count - 1
    if last is None or last > greatest:
        yield _numbers_of_length(str(first), str(greatest), modulus, is_member, writer)
    else:
        yield _numbers_of_length(str(first), str(last), modulus, is_member, writer)
        return
    inner_max_count = None if max_count is None else max_count - 1
    if inner_max_count is None or inner_max_count > min_count:
        yield _long_numbers(min_count + 1, inner_max_count, modulus, is_member, writer)
    if max_count is not None:
        yield _numbers_of_length(str(10 ** (max_count - 1)), str(last), modulus, is_member, writer)


def _numbers_of_length(
    low: str, high: str, modulus: int, is_member: Callable[[int], bool], writer: RuleWriter
) -> RuleName:
    """Return the rule of the members of a set between two numbers with the same number of digits."""
    rules: dict[tuple[int, bool, bool, int], RuleName] = {}

    def rule(index: int, is_at_low: bool, is_at_high: bool, remainder: int) -> RuleName:
        state = (index, is_at_low, is_at_high, remainder)
        if state in rules:
            return rules[state]
        rules[state] = writer.new_name("n")
        alternatives: list[Alternative] = []
        if index == len(low):
            alternatives = [()] if is_member(remainder) else []
        else:
            least = int(low[index]) if is_at_low else 0
            greatest = int(high[index]) if is_at_high else 9
            for digit in range(least, greatest + 1):
                is_still_low, is_still_high = is_at_low and digit == least, is_at_high and digit == greatest
                next_rule = rule(index + 1, is_still_low, is_still_high, (remainder * 10 + digit) % modulus)
                alternatives.append((f'"{digit}"', next_rule))
        writer.set(rules[state], alternatives)
        return rules[state]

    return rule(0, True, True, 0)


def _long_numbers(
    min_count: int, max_count: int | None, modulus: int, is_member: Callable[[int], bool], writer: RuleWriter
) -> RuleName:
    """Return the rule of the members of a set with a number of digits between two limits."""
    counted = min_count if max_count is None else max_count  # more digits are not counted
    names = {
        (count, remainder): writer.new_name("n") for count in range(1, counted + 1) for remainder in range(modulus)
    }
    for (count, remainder), name in names.items():
        alternatives: list[Alternative] = [()] if count >= min_count and is_member(remainder) else []
        if count != max_count:
            next_count = min(count + 1, counted)
            for digit in range(10):
                alternatives.append((f'"{digit}"', names[next_count, (remainder * 10 + digit) % modulus]))
        writer.set(name, alternatives)
    start = writer.new_name("n")
    writer.set(start, [(f'"{digit}"', names[1, digit % modulus]) for digit in range(1, 10)])
    return start
