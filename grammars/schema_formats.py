"""Patterns of the formats that JSON Schema defines and llguidance does not support, or not exactly.

A pattern matches no text that its format forbids. Some allowed texts are not matched either, such as regular
expressions with deeply nested groups, and leap seconds in other time zones than UTC.
"""

from __future__ import annotations

_ENCODED = "%[0-9A-Fa-f]{2}"  # a percent-encoded byte of a URI
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

_VARIABLE_CHARACTER = rf"(?:[A-Za-z0-9_]|{_ENCODED})"
_VARIABLE = rf"{_VARIABLE_CHARACTER}(?:\.?{_VARIABLE_CHARACTER})*(?::[1-9][0-9]{{0,3}}|\*)?"
_URI_TEMPLATE = (
    rf"""(?:[^\x00-\x20\x7f"'%<>\\^`{{|}}]|{_ENCODED}|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"""
)


def _uri(unreserved: str, *, is_relative: bool) -> str:
    """Return the pattern of a URI. ``unreserved``: the ranges of letters and digits that it may contain."""
    without_colon = rf"(?:[{unreserved}._~!$&'()*+,;=@-]|{_ENCODED})"
    character = rf"(?:[{unreserved}._~!$&'()*+,;=:@-]|{_ENCODED})"
    name = rf"(?:[{unreserved}._~!$&'()*+,;=-]|{_ENCODED})*"
    user = rf"(?:(?:[{unreserved}._~!$&'()*+,;=:-]|{_ENCODED})*@)?"
    authority = rf"{user}{name}(?::[0-9]*)?"
    segments = f"(?:/{character}*)*"
    rooted = f"//{authority}{segments}|/(?:{character}+{segments})?"
    query_and_fragment = rf"(?:\?(?:{character}|[/?])*)?(?:#(?:{character}|[/?])*)?"
    absolute = f"[A-Za-z][A-Za-z0-9+.-]*:(?:{rooted}|{character}+{segments})?"
    relative = f"(?:{rooted}|{without_colon}+{segments})?"
    path = f"{absolute}|{relative}" if is_relative else absolute
    return f"(?:{path}){query_and_fragment}"


_ASCII = "A-Za-z0-9"
_UNICODE = r"A-Za-z0-9\x{A0}-\x{D7FF}\x{F900}-\x{FDCF}\x{FDF0}-\x{FFEF}\x{10000}-\x{1FFFD}\x{20000}-\x{2FFFD}"

# A label has up to 63 characters. "--" as the third and fourth ones would announce Punycode, as in ``xn--``.
_LETTER = r"[a-zA-Z0-9\p{Ll}\p{Lo}]"
_LETTER_OR_DASH = r"[a-zA-Z0-9\p{Ll}\p{Lo}-]"
_LABEL = (
    rf"{_LETTER}(?:{_LETTER_OR_DASH}{{0,2}}{_LETTER}"
    rf"|{_LETTER_OR_DASH}(?:{_LETTER}{_LETTER_OR_DASH}|-{_LETTER}){_LETTER_OR_DASH}{{0,58}}{_LETTER})?"
)
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_DAY = "|".join(
    (
        "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
        "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
        "02-(?:0[1-9]|1[0-9]|2[0-8])",
    )
)
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = f"(?:[0-9]{{4}}-(?:{_DAY})|{_LEAP_YEAR}-02-29)"
_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
_TIME = f"(?:{_MINUTE}:[0-5][0-9]{_FRACTION}(?:[Zz]|[+-]{_MINUTE})|23:59:60{_FRACTION}(?:[Zz]|[+-]00:00))"
_LOCAL_PART = r"[a-zA-Z0-9\p{L}!#$%&'*+/=?^_`{|}~-]+"


def _regex(depth: int) -> str:
    """Return the pattern of regular expressions whose groups are nested up to a depth."""
    inner = _regex(depth - 1) if depth else ""
    group = rf"|\((?:\?:)?{inner}\)" if depth else ""
    look_around = rf"|\(\?<?[=!]{inner}\)" if depth else ""
    atom = rf"(?:[^\\()\[\]{{}}*+?|^$\x00-\x1f]|\.|\\[dDwWsStnrfv]|{_ESCAPED_SIGN}|{_REGEX_CLASS}{group})"
    quantifier = rf"(?:[*+?]|\{{(?:[0-9]{{1,4}},?|{_COUNT_RANGE})\}})\??"
    return rf"(?:[\^$|]|\\[bB]{look_around}|{atom}(?:{quantifier})?)*"


# Such as ``2,5``. The first count has only one digit. So the pattern can require that the second is not smaller.
_COUNT_RANGE = "|".join(f"{digit},(?:[{digit}-9]|[1-9][0-9]{{1,3}})" for digit in range(10))
_ESCAPED_SIGN = r"\\[\^$\\.*+?()\[\]{}|/]"
_CLASS_RANGE = "a-[b-z]|A-[B-Z]|0-[1-9]"
_REGEX_CLASS = rf"\[\^?(?:{_CLASS_RANGE}|[^\[\]\\^\x00-\x1f-]|\\[dDwWsStnrfv-]|{_ESCAPED_SIGN})+-?\]"
_MAX_GROUP_DEPTH = 2

# the patterns, by the name of the format
FORMAT_PATTERNS = {
    name: f"^(?:{pattern})$"
    for name, pattern in (
        ("date", _DATE),
        ("date-time", f"{_DATE}[Tt]{_TIME}"),
        ("byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
        ("idn-email", rf"{_LOCAL_PART}(?:\.{_LOCAL_PART})*@{_HOST}"),
        ("idn-hostname", _HOST),
        ("iri", _uri(_UNICODE, is_relative=False)),
        ("iri-reference", _uri(_UNICODE, is_relative=True)),
        ("json-pointer", _POINTER),
        ("regex", _regex(_MAX_GROUP_DEPTH)),
        ("relative-json-pointer", rf"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
        ("time", _TIME),
        ("uri-reference", _uri(_ASCII, is_relative=True)),
        ("uri-template", _URI_TEMPLATE),
    )
}

# the limits of OpenAPI's formats of integers
NUMBER_FORMATS = {
    f"int{bits}": {"minimum": -(2 ** (bits - 1)), "maximum": 2 ** (bits - 1) - 1} for bits in (32, 64)
}
