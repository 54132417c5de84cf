"""Ranges of numbers as regular expressions over their digits, exact for numbers of any size.

A number is written without an exponent. It may end with zeros after the point.
"""

from __future__ import annotations

from decimal import Decimal

from .schema_numbers import Range, plain_text

_ANY_INTEGER = "(?:0|[1-9][0-9]*)"
_NOTHING = "(/a/ & /b/)"


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
    return " | ".join(options) or _NOTHING


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
        return f"/{_integers_to(greatest)}/" if greatest >= 0 else _NOTHING
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
    return f"/{'|'.join(options)}/" if options else _NOTHING


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
