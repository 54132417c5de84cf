"""The numbers of a JSON Schema, rewritten so that llguidance reads them exactly.

llguidance computes with 64-bit floats and integers, and its regexes of ranges of decimals are right for some
limits only. A range is therefore written as a union (``anyOf``) of ranges for which the regex is right. A number
that llguidance cannot read exactly is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any

from ..common.strict_json import WrittenNumber
from .errors import LENIENT_HINT, GrammarError
from .matcher import new_matcher
from .schema_parts import walk_schema
from .schema_references import SchemaPart
from .tokenizer import BYTE_VOCABULARY

_RANGE_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LIMIT_KEYWORDS = (*_RANGE_KEYWORDS, "multipleOf")
MAX_EXACT_INTEGER = 2**53 - 1  # Advice in errors: all integers up to this one are exact
_OTHER_TYPES = ("null", "boolean", "string", "array", "object")
_MAX_INT64 = 2**63 - 1
_SAFE_DIGITS = 15  # number of significant digits that a float always keeps
_MAX_FRACTION_DIGITS = 22  # number of decimals up to which JSON parsers compute floats exactly
_MAX_WHOLE_PART = Decimal(10) ** 18  # llguidance computes with the whole part of a limit in 64 bits
# If a range has at most so many multiples of a step, they are listed, because llguidance may miss them: it rounds
_MAX_LISTED_MULTIPLES = 3
_MAX_DECIMALS = _SAFE_DIGITS + _MAX_FRACTION_DIGITS + 1
# Divisors of a step that llguidance cannot read exactly, see `_readable_steps`
_PRODUCTS_OF_2_AND_5 = {2**twos * 5**fives for twos in range(12) for fives in range(5)}
_DIVISORS = sorted({*range(2, 100), *_PRODUCTS_OF_2_AND_5})
_MAX_PRODUCT = 2**32  # llguidance multiplies the digits of two steps in 32 bits
_MAX_EXPONENT = 400  # greatest exponent and greatest number of digits that are read; more would take much time
_EXACT = Context(prec=1_000)


def is_number(value: object) -> bool:
    """Return True for a number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def exact_value(number: float) -> Decimal:
    """Return the value of a number as it was written; the shortest decimal of a float whose text is not known."""
    if isinstance(number, WrittenNumber):
        return Decimal(number.text)
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))


def plain_text(value: Decimal) -> str:
    """Return a decimal in digits, such as ``15`` for ``1.50e1``. Zero has no sign."""
    if not value:
        return "0"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class Range:
    """Numbers between two limits; None = no limit."""

    low: Decimal | None = None
    high: Decimal | None = None
    has_low: bool = True  # True if the lower limit belongs to the range
    has_high: bool = True  # True if the upper limit belongs to the range

    @property
    def is_empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and not (self.has_low and self.has_high))

    @property
    def negated(self) -> Range:
        """The range of the numbers with the opposite sign."""
        return Range(
            low=None if self.high is None else -self.high,
            high=None if self.low is None else -self.low,
            has_low=self.has_high,
            has_high=self.has_low,
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The keywords of JSON Schema for the range."""
        if self.low is not None and self.low == self.high:
            return {"const": _json_number(self.low)}
        keywords: dict[str, Any] = {}
        if self.low is not None:
            keywords["minimum" if self.has_low else "exclusiveMinimum"] = _json_number(self.low)
        if self.high is not None:
            keywords["maximum" if self.has_high else "exclusiveMaximum"] = _json_number(self.high)
        return keywords

    def multiples(self, step: Fraction) -> range | None:
        """Return the multiples of a step in the range, divided by the step; None if their number is infinite."""
        if self.low is None or self.high is None:
            return None
        first = first_integer(Fraction(self.low) / step, self.has_low)
        last = last_integer(Fraction(self.high) / step, self.has_high)
        return range(first, last + 1)


def first_integer(low: Fraction | Decimal, has_low: bool) -> int:
    """Return the least integer of a range that has a lower limit."""
    return math.ceil(low) if has_low else math.floor(low) + 1


def last_integer(high: Fraction | Decimal, has_high: bool) -> int:
    """Return the greatest integer of a range that has an upper limit."""
    return math.floor(high) if has_high else math.ceil(high) - 1


def with_exact_numbers(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with ranges and multiples that llguidance reads exactly."""
    # The schema itself stays as it is. Raises ``GrammarError``, with the path, for a number that cannot be exact.
    parts = list(walk_schema(schema))
    if not any(_has_numbers(part.schema) for part in parts):
        return schema
    schema = deepcopy(schema)
    parts = list(walk_schema(schema))
    if not any("/allOf/" in str(part.schema.get("$ref")) for part in parts):
        for part in reversed(parts):  # inner schemas first
            _join_limits(part)
    for pointer, part in parts:
        for keyword in ("const", "enum"):
            if keyword in part:
                part[keyword] = _exact_instance(part[keyword], f"{pointer}/{keyword}")
        _rewrite_limits(part, pointer)
    return schema


def inexact_limits(part: Mapping[str, Any]) -> list[str]:
    """Return the limits of one schema that masks cannot represent exactly, the limit farthest from zero first."""
    limits = {keyword: part[keyword] for keyword in LIMIT_KEYWORDS if is_number(part.get(keyword))}
    inexact_keywords: list[str] = []
    while limits:
        try:
            with_exact_numbers({**limits, "type": part.get("type", "number")})
        except GrammarError:
            keyword = max(limits, key=lambda keyword: abs(exact_value(part[keyword])))
            inexact_keywords.append(keyword)
            del limits[keyword]
        else:
            break
    return inexact_keywords


def inexact_keywords(part: Mapping[str, Any]) -> list[str]:
    """Return the keywords of one schema whose numbers masks cannot represent exactly."""
    keywords = inexact_limits(part)
    for keyword in ("const", "enum"):
        if keyword in part:
            try:
                _exact_instance(part[keyword], "")
            except GrammarError:
                keywords.append(keyword)
    return keywords


def _join_limits(part: SchemaPart) -> None:
    """Move the limits of the schemas in ``allOf`` to the schema that has the ``allOf``."""
    # Together, they are one range. llguidance would compute the intersection of several ranges.
    members = part.schema.get("allOf")
    if not isinstance(members, list):
        return
    limited_members = [member for member in members if isinstance(member, dict) and _has_limits(member)]
    if not limited_members:
        return
    joined_parts = [part]
    for number, member in enumerate(limited_members):
        joined_parts.append(SchemaPart(f"{part.pointer}/allOf/{number}", member))
    if any(read_limits(joined.schema) is None for joined in joined_parts):
        return
    steps = [_read_step(joined.schema, joined.pointer) for joined in joined_parts]
    if 0 in steps:
        return
    limits = [limit for joined in joined_parts for limit in range_limits(joined.schema)]
    for joined in joined_parts:
        _remove_limits(joined.schema)
    for keyword, value in limits:
        if keyword in part.schema:
            stricter = max if _is_minimum(keyword) else min
            part.schema[keyword] = stricter(part.schema[keyword], value, key=exact_value)
        else:
            part.schema[keyword] = value
    known_steps = [step for step in steps if step is not None]
    if known_steps:
        common_step = reduce(least_common_multiple, known_steps)
        part.schema["multipleOf"] = WrittenNumber(plain_text(as_decimal(common_step)))


def _has_limits(part: Mapping[str, Any]) -> bool:
    return any(keyword in part for keyword in LIMIT_KEYWORDS)


def _remove_limits(part: dict[str, Any]) -> None:
    for keyword in LIMIT_KEYWORDS:
        part.pop(keyword, None)


def _is_minimum(keyword: str) -> bool:
    return keyword in ("minimum", "exclusiveMinimum")


def _inclusive_keyword(keyword: str) -> str:
    """Return ``minimum`` for ``exclusiveMinimum``, and ``maximum`` for ``exclusiveMaximum``."""
    return keyword.removeprefix("exclusive").lower()


def range_limits(part: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the keyword and the number of each limit of a schema's range."""
    limits = []
    for keyword in _RANGE_KEYWORDS:
        value = part.get(keyword)
        if value is True:  # "exclusiveMinimum": true of draft 4
            value = part.get(_inclusive_keyword(keyword))
        if isinstance(value, int | float) and is_number(value):
            limits.append((keyword, value))
    return limits


def _has_numbers(part: Mapping[str, Any]) -> bool:
    return "const" in part or "enum" in part or _has_limits(part)


def _exact_instance(value: Any, pointer: str) -> Any:
    """Return a value of ``const`` or ``enum``. Raises ``GrammarError`` for a number that cannot be exact."""
    if isinstance(value, list):
        return [_exact_instance(item, f"{pointer}/{index}") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _exact_instance(item, f"{pointer}/{key}") for key, item in value.items()}
    if not is_number(value):
        return value
    number = exact_value(value)
    if _is_extreme(number) or not _is_exact_constant(number):
        raise _inexact_error(pointer, number)
    return _json_number(number)


def _inexact_error(pointer: str, number: Decimal) -> GrammarError:
    text = str(number)
    shown = text if len(text) <= 40 else f"{text[:30]}…"
    exponent = number.as_tuple().exponent
    is_written_as_integer = isinstance(exponent, int) and exponent >= 0
    if is_written_as_integer and not -MAX_EXACT_INTEGER <= number <= MAX_EXACT_INTEGER:
        advice = f"integers are exact from -{MAX_EXACT_INTEGER} to {MAX_EXACT_INTEGER}"
    else:
        advice = f"decimals are exact up to {_SAFE_DIGITS} digits"
    last_token = pointer.rpartition("/")[2]
    lenient_advice = (", or ", *LENIENT_HINT) if last_token in LIMIT_KEYWORDS else ()
    problem = f"{pointer}: {shown} is a number that masks cannot represent exactly"
    return GrammarError(problem, advice=(advice, *lenient_advice))


def _json_number(number: Decimal) -> float:
    if not number:
        return 0
    whole = number.to_integral_value(context=_EXACT)
    if whole == number and abs(whole) <= _MAX_INT64:
        return int(whole)
    return float(number)


def _is_short(number: Decimal) -> bool:
    """Return True if each program that reads the number as a float, and writes it again, gets the same number."""
    _, digits, exponent = number.normalize(_EXACT).as_tuple()
    if not isinstance(exponent, int):
        return False
    return len(digits) <= _SAFE_DIGITS and -_MAX_FRACTION_DIGITS <= exponent <= _MAX_FRACTION_DIGITS


def _is_extreme(number: Decimal) -> bool:
    """Return True for a number with so many digits or such an exponent that computing with it takes much time."""
    _, digits, exponent = number.as_tuple()
    return len(digits) > _MAX_EXPONENT or not isinstance(exponent, int) or abs(exponent) > _MAX_EXPONENT


def _is_exact_constant(number: Decimal) -> bool:
    """Return True if llguidance writes the number as it is."""
    if _is_short(number):
        return True
    if number == number.to_integral_value(context=_EXACT) and abs(number) <= _MAX_INT64:
        return int(float(number)) == number and abs(number) < _MAX_INT64
    return Decimal(repr(float(number))) == number and _is_written_back(plain_text(number))


@lru_cache(maxsize=256)
def _is_written_back(text: str) -> bool:
    """Return True if llguidance writes this number when a schema has it as a constant."""
    matcher = new_matcher(BYTE_VOCABULARY, f'start: %json {{"const": {float(text)!r}}}\n')
    return not matcher.is_error() and matcher.compute_ff_bytes() == text.encode()


def _rewrite_limits(part: dict[str, Any], pointer: str) -> None:
    """Replace the limits and the multiples of one schema by a union of exact ranges."""
    if not _has_limits(part):
        return
    types = part.get("type", ["number", *_OTHER_TYPES])
    types = [types] if isinstance(types, str) else types
    allows_numbers = isinstance(types, list) and ("number" in types or "integer" in types)
    if not allows_numbers:
        return
    limits = read_limits(part)
    step = _read_step(part, pointer)
    is_integer = "number" not in types
    if limits is None or step == 0:
        return  # a limit is not a number, which is llguidance's error
    if is_integer:
        pieces = _integer_pieces(limits, step, part, pointer)
    else:
        pieces = _decimal_pieces(limits, step, part, pointer)
    if not pieces:
        return  # no number matches, which is llguidance's error
    _remove_limits(part)
    other_types = [name for name in types if name not in ("number", "integer")]
    is_one_range = len(pieces) == 1 and not other_types
    if is_one_range and pieces[0].keys().isdisjoint(part):
        part |= pieces[0]
        return
    number_type = "integer" if is_integer else "number"
    options: list[dict[str, Any]] = [{"type": number_type, **piece} for piece in pieces]
    if other_types:
        options.append({"type": other_types})
    part["allOf"] = [*part.get("allOf", []), {"anyOf": options}]


def reject_extreme_numbers(part: Mapping[str, Any], pointer: str) -> None:
    """Raise ``GrammarError`` for a number with which computing would take much time."""
    for keyword in ("const", "enum"):
        remaining: list[Any] = [part.get(keyword)]
        while remaining:
            value = remaining.pop()
            if isinstance(value, list | dict):
                remaining += value.values() if isinstance(value, dict) else value
            elif is_number(value) and _is_extreme(exact_value(value)):
                raise _inexact_error(f"{pointer}/{keyword}", exact_value(value))
    for keyword in LIMIT_KEYWORDS:
        if is_number(part.get(keyword)) and _is_extreme(exact_value(part[keyword])):
            raise _inexact_error(f"{pointer}/{keyword}", exact_value(part[keyword]))


def read_limits(part: Mapping[str, Any]) -> Range | None:
    """Return the range of a schema's limits; None if one of them is not a number."""
    limits = Range()
    for keyword in _RANGE_KEYWORDS:
        value = part.get(keyword)
        if keyword not in part or value is False:
            continue
        is_exclusive = keyword.startswith("exclusive")
        if value is True and is_exclusive:  # as in draft 4
            value = part.get(_inclusive_keyword(keyword))
            if value is None:
                continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        limit = exact_value(value)
        if _is_minimum(keyword):
            if limits.low is None or limit > limits.low or (limit == limits.low and is_exclusive):
                limits = replace(limits, low=limit, has_low=not is_exclusive)
        elif limits.high is None or limit < limits.high or (limit == limits.high and is_exclusive):
            limits = replace(limits, high=limit, has_high=not is_exclusive)
    return limits


def range_of(schema: Mapping[str, Any]) -> Range:
    """Return the range of the numbers of a schema whose values were checked."""
    limits = read_limits(schema)
    return Range() if limits is None else limits


def _read_step(part: Mapping[str, Any], pointer: str) -> Fraction | None:
    """Return the ``multipleOf`` of a schema; None if there is none, 0 if its value is wrong."""
    if "multipleOf" not in part:
        return None
    value = part["multipleOf"]
    if not is_number(value) or not value > 0:
        return Fraction(0)
    step = exact_value(value)
    if not _is_short(step):
        raise _inexact_error(f"{pointer}/multipleOf", step)
    return Fraction(step)


def _integer_pieces(
    limits: Range, step: Fraction | None, part: Mapping[str, Any], pointer: str
) -> list[dict[str, Any]]:
    """Return schemas whose union are the integers of a range that are multiples of a step."""
    first = None if limits.low is None else first_integer(limits.low, limits.has_low)
    last = None if limits.high is None else last_integer(limits.high, limits.has_high)
    if first is not None:
        is_supported = last is not None or first < _MAX_WHOLE_PART
        if not is_supported or not _is_exact_limit(first):
            raise _limit_error(part, pointer, ("minimum", "exclusiveMinimum"))
    if last is not None:
        is_supported = first is not None or last > -_MAX_WHOLE_PART
        # llguidance reads the greatest 64-bit integer as 2**63, and then reduces it to this integer again.
        is_exact = last == _MAX_INT64 or _is_exact_limit(last)
        if not is_supported or not is_exact:
            raise _limit_error(part, pointer, ("maximum", "exclusiveMaximum"))
    if first is not None and last is not None and first > last:
        return []
    integers = Range(
        low=None if first is None else Decimal(first),
        high=None if last is None else Decimal(last),
    )
    if step is None:
        return [integers.schema]
    return _multiples(integers, least_common_multiple(step, Fraction(1)))


def _is_exact_limit(limit: int) -> bool:
    """Return True if an integer is the same as a float, and fits into 64 bits with either sign."""
    return abs(limit) < _MAX_INT64 and int(float(limit)) == limit


def _limit_error(part: Mapping[str, Any], pointer: str, keywords: tuple[str, str]) -> GrammarError:
    """Return the error for a limit that cannot be exact. ``keywords``: keywords that may have the limit."""
    keyword = next((name for name in keywords if is_number(part.get(name))), "multipleOf")
    return _inexact_error(f"{pointer}/{keyword}", exact_value(part[keyword]))


def _decimal_pieces(
    limits: Range, step: Fraction | None, part: Mapping[str, Any], pointer: str
) -> list[dict[str, Any]]:
    """Return schemas whose union are the numbers of a range that are multiples of a step."""
    if limits.low is not None and not _is_exact_decimal_limit(limits.low, step):
        raise _limit_error(part, pointer, ("minimum", "exclusiveMinimum"))
    if limits.high is not None and not _is_exact_decimal_limit(limits.high, step):
        raise _limit_error(part, pointer, ("maximum", "exclusiveMaximum"))
    if limits.is_empty:
        return []
    pieces = split_range(limits)
    if step is None:
        return [piece.schema for piece in pieces]
    return [schema for piece in pieces for schema in _multiples(piece, step)]


def _is_exact_decimal_limit(limit: Decimal, step: Fraction | None) -> bool:
    """Return True if llguidance reads a limit of the multiples of a step as it is written."""
    if abs(limit) <= MAX_EXACT_INTEGER and limit == math.floor(limit):
        return step is None or step.denominator == 1 or _is_short(limit)
    return _is_short(limit) and abs(limit) < _MAX_WHOLE_PART


def _multiples(piece: Range, step: Fraction) -> list[dict[str, Any]]:
    """Return schemas whose union are the multiples of a step in a range."""
    # For a step of 0.25, llguidance takes 1.50 but not 1.5: it demands as many decimals as the step has. So each
    # number of decimals has its own schema.
    factors = piece.multiples(step)
    if factors is not None and len(factors) <= _MAX_LISTED_MULTIPLES:
        return _listed_multiples(step, factors)
    schemas = _multiples_of_this_length(piece, step)
    is_power_of_ten = step.numerator == 1 and step.denominator % 10 == 0
    if not is_power_of_ten:
        longer_steps = {
            least_common_multiple(step, Fraction(1, 10**decimals)) for decimals in range(_decimals(step))
        }
        for longer_step in sorted(longer_steps):
            schemas += _multiples_of_this_length(piece, longer_step)
    return schemas


def _multiples_of_this_length(piece: Range, step: Fraction) -> list[dict[str, Any]]:
    """Return schemas for the multiples of a step in a range that have as many decimals as the step."""
    factors = piece.multiples(step)
    if factors is not None and len(factors) <= _MAX_LISTED_MULTIPLES:
        return _listed_multiples(step, factors)
    readable_steps = _readable_steps(step)
    if len(readable_steps) == 1:
        return [{**piece.schema, "multipleOf": readable_steps[0]}]
    return [{**piece.schema, "allOf": [{"multipleOf": readable_step} for readable_step in readable_steps]}]


def _listed_multiples(step: Fraction, factors: Iterable[int]) -> list[dict[str, Any]]:
    return [{"const": _json_number(as_decimal(step * factor))} for factor in factors]


def as_decimal(value: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _decimals(step: Fraction) -> int:
    """Return the number of decimals of a step."""
    return next(count for count in range(_MAX_DECIMALS) if step * 10**count % 1 == 0)


def least_common_multiple(first: Fraction, second: Fraction) -> Fraction:
    return Fraction(math.lcm(first.numerator, second.numerator), math.gcd(first.denominator, second.denominator))


def _readable_steps(step: Fraction) -> list[float]:
    """Return numbers that llguidance reads exactly, whose common multiples are the multiples of a step."""
    if _is_read_exactly(step):
        return [_json_number(as_decimal(step))]
    # The common multiples of step / 2 and step / 3, for example, are the multiples of the step.
    divisors = [divisor for divisor in _DIVISORS if _is_read_exactly(step / divisor)]
    for first_divisor, second_divisor in combinations(divisors, 2):
        if math.gcd(first_divisor, second_divisor) > 1:
            continue
        first_step = step / first_divisor
        second_step = step / second_divisor
        scale = 10 ** max(_decimals(first_step), _decimals(second_step))
        if (first_step * scale) * (second_step * scale) < _MAX_PRODUCT:
            return [_json_number(as_decimal(first_step)), _json_number(as_decimal(second_step))]
    return [float(step)]  # llguidance rejects it


def _is_read_exactly(step: Fraction) -> bool:
    """Return True if llguidance's loop, which multiplies a float by 10 until it is whole, gets exact digits."""
    value = float(step)
    decimals = 0
    while value % 1 and decimals <= _MAX_FRACTION_DIGITS:
        value *= 10
        decimals += 1
    return value < 2**32 and Fraction(int(value), 10**decimals) == step


def split_range(limits: Range) -> list[Range]:
    """Split a range into ranges for which llguidance's regex is right. Their union is the range."""
    # The regex is wrong for an upper limit of several decimals, for a lower limit whose digits begin the upper
    # limit, and for 0 as an exclusive lower limit.
    pieces: list[Range] = []
    if limits.low is None or limits.low < 0:
        is_below_zero = limits.high is not None and limits.high < 0
        negative_limits = limits if is_below_zero else replace(limits, high=Decimal(0), has_high=False)
        absolute_limits = negative_limits.negated
        absolute_low = absolute_limits.low or Decimal(0)
        pieces += [piece.negated for piece in _split_above(absolute_low, absolute_limits)]
    if limits.high is None or limits.high > 0 or (limits.high == 0 and limits.has_high):
        if limits.low is None or limits.low < 0:
            limits = replace(limits, low=Decimal(0), has_low=True)
        pieces += _split_above(limits.low or Decimal(0), limits)
    return pieces


def _split_above(low: Decimal, limits: Range) -> list[Range]:
    """Return the pieces of a range of numbers that are not negative. ``low``: its lower limit."""
    high = limits.high
    if limits.is_empty:
        return []
    if not limits.has_low:
        return _split_above_exclusive(low, high, limits.has_high)
    if high is None or low == high:
        return [limits]
    whole = Decimal(math.floor(high))
    if math.floor(low) == whole:
        return _split_decimals(low, high, limits.has_high)
    if whole == high:
        return [limits]
    return [Range(low, whole, has_high=False), *_split_decimals(whole, high, limits.has_high)]


def _split_above_exclusive(low: Decimal, high: Decimal | None, has_high: bool) -> list[Range]:
    """Return the pieces of a range to which the lower limit does not belong."""
    # For such a range, llguidance's regex demands that the decimals do not end with 0. A model may write such
    # decimals. So there is also a range that begins right above the limit.
    digits = max(_SAFE_DIGITS - len(str(math.floor(low))), 0) if low else _MAX_FRACTION_DIGITS
    start = low + Decimal(1).scaleb(-digits)
    pieces = _split_above(start, Range(start, high, has_high=has_high))
    next_whole = Decimal(math.floor(low) + 1)
    if high is None or next_whole <= high:
        pieces.append(Range(low, next_whole, has_low=False, has_high=False))
    elif low != math.floor(low):
        pieces.append(Range(low, _first_end(low, high), has_low=False, has_high=False))
    return pieces


def _split_decimals(low: Decimal, high: Decimal, has_high: bool) -> list[Range]:
    """Return the pieces of a range of decimals with the same whole part; ``low`` belongs to it."""
    pieces = [Range(high, high)] if has_high else []
    while low < high:
        end = _first_end(low, high)
        if low != math.floor(low):
            pieces.append(Range(low, low))
        pieces.append(Range(low, end, has_high=False))
        low = end
    return pieces


def _first_end(low: Decimal, high: Decimal) -> Decimal:
    """Return the shortest beginning of the digits of ``high`` that is a number above ``low``."""
    for decimal_count in range(_MAX_DECIMALS):
        last_place = Decimal(1).scaleb(-decimal_count)
        end = high.quantize(last_place, ROUND_FLOOR, _EXACT)
        if end > low:
            return end
    raise ValueError(f"{high} is not above {low}")
