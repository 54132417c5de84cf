"""Ranges of numbers as regular expressions over their digits, exact for numbers of any size.

A number is written without an exponent. It may end with zeros after the point.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product

from .gbnf.lark import NO_TEXT
from .schema_numbers import Range, plain_text

_ANY_INTEGER = "(?:0|[1-9][0-9]*)"
_MAX_ENDINGS = 2_000
# Divisors whose multiples are read by their remainder. The regex of 9 has 240,000 characters.
_DIVISORS = (3, 7)


def range_terminal(numbers: Range, *, is_integer: bool) -> str:
    """Return a terminal of Lark for the numbers of a range."""
    # Numbers from zero on and numbers below zero are told apart, because the digits of the latter count backwards.
    options = []
    if numbers.high is None or numbers.high > 0 or (numbers.high == 0 and numbers.has_high):
        options.append(_magnitudes(numbers.low, numbers.has_low, numbers.high, numbers.has_high, is_integer))
    if numbers.low is None or numbers.low < 0:
        low = None if numbers.high is None else -numbers.high
        high = None if numbers.low is None else -numbers.low
        magnitudes = _magnitudes(low, numbers.has_high, high, numbers.has_low, is_integer)
        options.append(f'("-" ({magnitudes} & {_above(Decimal(0), False, is_integer)}))')
    return " | ".join(options) or NO_TEXT


def _magnitudes(low: Decimal | None, has_low: bool, high: Decimal | None, has_high: bool, is_integer: bool) -> str:
    """Return a terminal for the numbers without a sign between two limits."""
    terms = [f"/{_ANY_INTEGER}/" if is_integer else f"/{_ANY_INTEGER}(?:\\.[0-9]+)?/"]
    if low is not None and (low > 0 or (low == 0 and not has_low)):
        terms.append(_above(low, has_low, is_integer))
    if high is not None:
        terms.append(_below(high, has_high, is_integer))
    return f"({' & '.join(terms)})"


def _above(limit: Decimal, is_included: bool, is_integer: bool) -> str:
    whole, _, fraction = plain_text(limit).partition(".")
    if is_integer:
        least = int(whole) if is_included and not fraction else int(whole) + 1
        return f"/{_integers_from(least)}/"
    larger = _integers_from(int(whole) + 1) + r"(?:\.[0-9]+)?"
    # the same whole part, and a fraction that is large enough
    options = [larger]
    for index, digit in enumerate(fraction):
        if digit != "9":
            options.append(rf"{whole}\.{fraction[:index]}[{int(digit) + 1}-9][0-9]*")
    rest = "[0-9]*" if is_included else "[0-9]*[1-9][0-9]*"
    if fraction:
        options.append(rf"{whole}\.{fraction}{rest}")
    else:
        options.append(rf"{whole}(?:\.[0-9]+)?" if is_included else rf"{whole}\.{rest}")
    return f"/{'|'.join(options)}/"


def _below(limit: Decimal, is_included: bool, is_integer: bool) -> str:
    whole, _, fraction = plain_text(limit).partition(".")
    if is_integer:
        greatest = int(whole) if is_included or fraction else int(whole) - 1
        return f"/{_integers_to(greatest)}/" if greatest >= 0 else NO_TEXT
    options = [_integers_to(int(whole) - 1) + r"(?:\.[0-9]+)?"] if int(whole) > 0 else []
    if fraction:
        options.append(whole)
    for index, digit in enumerate(fraction):
        if index:
            options.append(rf"{whole}\.{fraction[:index]}")
        if digit != "0":
            options.append(rf"{whole}\.{fraction[:index]}[0-{int(digit) - 1}][0-9]*")
    if is_included:
        options.append(rf"{whole}\.{fraction}0*" if fraction else rf"{whole}(?:\.0+)?")
    return f"/{'|'.join(options)}/" if options else NO_TEXT


def _integers_from(least: int) -> str:
    """Return a regex of the integers from one on, without a sign."""
    if least == 0:
        return _ANY_INTEGER
    digits = str(least)
    options = [f"[1-9][0-9]{{{len(digits)},}}", digits]
    for index, digit in enumerate(digits):
        if digit != "9":
            options.append(f"{digits[:index]}[{int(digit) + 1}-9][0-9]{{{len(digits) - index - 1}}}")
    return f"(?:{'|'.join(options)})"


def _integers_to(greatest: int) -> str:
    """Return a regex of the integers from zero to one, without a sign."""
    digits = str(greatest)
    options = [digits, *(["0"] if greatest else [])]
    if len(digits) > 1:
        options.append(f"[1-9][0-9]{{0,{len(digits) - 2}}}")
    for index, digit in enumerate(digits):
        smallest = 1 if index == 0 else 0
        if int(digit) > smallest:
            options.append(f"{digits[:index]}[{smallest}-{int(digit) - 1}][0-9]{{{len(digits) - index - 1}}}")
    return f"(?:{'|'.join(options)})"


def multiples_terminal(step: Fraction) -> str | None:
    """Return a terminal of Lark for the multiples of a step, with any sign; None if none is known."""
    if step.numerator == 1:
        return _multiples_of_part(step.denominator)
    if step.denominator != 1:
        return None
    divisor = step.numerator
    digit_count = 0
    while divisor % 2 == 0 or divisor % 5 == 0:
        divisor //= math.gcd(divisor, 10)
        digit_count += 1
    terms = [_by_last_digits(step.numerator // divisor, digit_count)]
    for factor in _DIVISORS:
        if divisor % factor == 0:
            divisor //= factor
            terms.append(rf"/-?(?:{_by_remainder(factor)})(?:\.0+)?/")
    if divisor != 1 or None in terms:
        return None
    return f"({' & '.join(term for term in terms if term is not None)})"


def _multiples_of_part(denominator: int) -> str | None:
    """Return a terminal for the multiples of one part of a whole, such as 0.25."""
    if denominator > _MAX_ENDINGS:
        return None
    fractions = [plain_text(Decimal(part) / Decimal(denominator)) for part in range(denominator)]
    if any(Fraction(text) * denominator != part for part, text in enumerate(fractions)):
        return None  # such as a third
    endings = [text.removeprefix("0").removeprefix(".") for text in fractions]
    return rf"/-?{_ANY_INTEGER}(?:\.(?:{'|'.join(endings)})0*)?/".replace("(?:|", "(?:0|")


def _by_last_digits(divisor: int, digit_count: int) -> str | None:
    """Return a terminal for the multiples of a number that divides 10 ** ``digit_count``."""
    end = 10**digit_count
    if end // divisor > _MAX_ENDINGS:
        return None
    multiples = range(0, end, divisor)
    short = "|".join(map(str, multiples))
    endings = "|".join(f"{multiple:0{digit_count}}" if digit_count else "" for multiple in multiples)
    return rf"/-?(?:{short}|[1-9][0-9]*(?:{endings}))(?:\.0+)?/"


@cache
def _by_remainder(divisor: int) -> str:
    """Return a regex of the multiples of a number, as the ways through its remainders from zero to zero."""
    edges: dict[tuple[int, int], str] = {}  # the regex from a remainder to another; -1 is the end
    for remainder in range(divisor):
        for target in range(divisor):
            digits = "".join(str(digit) for digit in range(10) if (remainder * 10 + digit) % divisor == target)
            if digits:
                edges[remainder, target] = f"[{digits}]"
    # Each remainder but zero is left out in turn: the ways through it become ways between its neighbors.
    for left_out in range(1, divisor):
        loop = edges.pop((left_out, left_out), None)
        around = "" if loop is None else f"(?:{loop})*"
        before = {source: edges.pop((source, left_out)) for source, target in list(edges) if target == left_out}
        after = {target: edges.pop((left_out, target)) for source, target in list(edges) if source == left_out}
        for source, target in product(before, after):
            way = f"(?:{before[source]}){around}(?:{after[target]})"
            edges[source, target] = f"{edges[source, target]}|{way}" if (source, target) in edges else way
    return f"(?:{edges[0, 0]})+"
