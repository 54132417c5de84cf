"""Numbers in the README and the manual: each is counted."""

import re

import pytest
from logitsmith.grammars import list_grammars
from logitsmith.samplers import catalogue

from .markdown import ROOT

_UNITS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def number_in_words(number):
    """A number below 100, as it is written in a sentence."""
    if number < len(_UNITS):
        return _UNITS[number]
    tens, units = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_UNITS[units]}" if units else "")


@pytest.mark.parametrize(("number", "words"), [(7, "seven"), (18, "eighteen"), (30, "thirty"), (31, "thirty-one")])
def test_a_number_in_words(number, words):
    assert number_in_words(number) == words


COUNTS = {
    "samplers in the README": ("README.md", r"([A-Z][a-z-]+) samplers, (?:set by|from)", catalogue),
    "samplers in the manual": ("docs/index.md", r"([A-Z][a-z-]+) samplers, (?:set by|from)", catalogue),
    "grammars in the README": ("README.md", r"one of ([a-z-]+) by name", list_grammars),
}


@pytest.mark.parametrize(("path", "pattern", "counted"), COUNTS.values(), ids=COUNTS)
def test_a_number_is_counted(path, pattern, counted):
    (words,) = re.findall(pattern, (ROOT / path).read_text())
    assert words.lower() == number_in_words(len(counted()))
