"""Patterns of bans: which are accepted, what is told of others, and their matches, compared with Python's `re`."""

import random
import re
import warnings

import pytest
from logitsmith.grammars.errors import GrammarError
from logitsmith.grammars.linear_regex import LinearRegex

from .test_bans import iterate_matches, matches_exactly

FRAGMENTS = [
    *("a", "b", "|", "(", "(", ")", ")", "(?:", "(?P<n>", "(?=", "(?!", "(?<=a)", "(?>", "(?P=n)", "(?(1)"),
    *("[", "[^", "]", "]", "-", "a-z", "^", "$", "\\A", "\\Z", "\\b", "\\B", "\\d", "\\W", "\\s", "\\1", "\\12"),
    *(
        "\\07",
        "\\101",
        "\\400",
        "\\377",
        "\\8",
        "\\x41",
        "\\u0041",
        "\\xZ",
        "\\n",
        "\\q",
        "\\.",
        "\\",
        "\\-",
        "\\]",
    ),
    *(
        "*",
        "+",
        "?",
        "??",
        "*+",
        "{2}",
        "{1,2}",
        "{,2}",
        "{,}",
        "{2,1}",
        "{",
        "}",
        "{a}",
        ".",
        "é",
        "\n",
        "0",
        "8",
    ),
    *("(?i)", "(?s:", "(?i-s:", "(?-i:", "(?#c)", "(?x)", "\\N{BULLET}", "\\N{NONE}", "[]]", "[^]a]", "[a-\\d]"),
]
REFUSED = ("linear time", "matches the empty text", "flag x is not supported")
"""Words of the sentences about patterns that `re` accepts and that no ban can be."""


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
def test_patterns_are_accepted_as_by_re(seed):
    chooser = random.Random(seed)
    accepted = 0
    for _ in range(4000):
        pattern = "".join(chooser.choice(FRAGMENTS) for _ in range(chooser.randint(1, 6)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                re.compile(pattern)
                is_accepted = True
            except re.error:
                is_accepted = False
        problem = problem_of(pattern)
        if problem is None:
            assert is_accepted, pattern
            accepted += 1
        else:
            assert not is_accepted or any(words in problem for words in REFUSED), (pattern, problem)
    assert 400 < accepted < 3600


def problem_of(pattern):
    """The sentence about a pattern that is refused; None if it is accepted."""
    try:
        LinearRegex(pattern)
    except GrammarError as error:
        return str(error)
    return None


CHARACTERS = [
    *("a", "B", "_", "é", "7", "٣", " ", "\n", "\t", "\x08", "\0", "-", "]", "^", "\\", "•", "ß", "A", "É", "k"),
    *(
        "\x1c",
        "\x1f",
        "\xa0",
        "\u212a",
        "\xb5",
        "\u03bc",
        "\u0390",
        "\u1fd3",
        "i",
        "I",
        "\u0130",
        "\u0131",
        "\u017f",
    ),
]
CLASSES = [
    *(
        r"\d",
        r"\D",
        r"\s",
        r"\S",
        r"\w",
        r"\W",
        r"[\d_]",
        r"[^\w]",
        r"[]a]",
        r"[^]a]",
        r"[a-]",
        r"[-a]",
        r"[+-\-]",
    ),
    *(
        r"[\b]",
        r"\x41",
        r"\u00e9",
        r"\U00002022",
        r"\N{BULLET}",
        r"\101",
        r"\0",
        r"\07",
        r"[\0-\x20]",
        r"\^",
        r"\n",
    ),
    *(
        r"(?a)\w",
        r"(?a)[^\d]",
        r"(?i)b",
        r"(?i)[a-c]",
        r"(?i:É)",
        r"(?i)(?-i:b)|c",
        r".",
        r"(?s).",
        r"(?#a)B",
        r"\\",
    ),
]


@pytest.mark.parametrize("pattern", CLASSES)
def test_a_class_has_the_characters_of_re(pattern):
    regex, expected = LinearRegex(pattern), re.compile(pattern)
    for character in CHARACTERS:
        assert bool(list(iterate_matches(regex, character))) == bool(expected.fullmatch(character)), character


def random_pattern(chooser, depth):
    """A pattern without a condition, whose matches `re` can list."""
    kind = chooser.randrange(9) if depth else 0
    inner = [random_pattern(chooser, depth - 1) for _ in range(2)] if kind > 2 else ()
    if kind < 3:
        return chooser.choice(["a", "b", "[ab]", "[^a]", ".", r"\w", "A", "(?i:a)"])
    if kind < 5:
        return "".join(inner)
    if kind < 6:
        return f"(?:{inner[0]}|{inner[1]})"
    return f"(?:{inner[0]}){chooser.choice(['*', '+', '?', '*?', '{2}', '{1,2}', '{,2}'])}{inner[1]}"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
def test_matches_of_random_patterns_equal_those_of_re(seed):
    chooser = random.Random(seed)
    for _ in range(60):
        pattern = random_pattern(chooser, 3)
        if re.fullmatch(pattern, ""):
            continue
        regex = LinearRegex(pattern)
        for _ in range(5):
            text = "".join(chooser.choice("aabbAB\n") for _ in range(7))
            expected = {}
            for start in range(len(text)):
                for end in range(start + 1, len(text) + 1):
                    if matches_exactly(pattern, text, start, end):
                        expected.setdefault(end, start)
            assert {end: start for start, end in iterate_matches(regex, text)} == expected, (pattern, text)


WRONG = {
    "group": ("a(b", "a closing parenthesis is missing at its end"),
    "parenthesis": ("ab)", "a closing parenthesis without an opening one at position 2"),
    "quantifier": ("a|*", "nothing to repeat at position 2"),
    "class": ("ab[c", "a class that does not end at position 2"),
    "escape": ("ab\\", "an escape that does not end at position 2"),
    "no escape": (r"a\q", r"bad escape \q at position 1"),
    "code": (r"a\U00110000", r"bad escape \U00110000 at position 1"),
    "name": (r"\N{NONE}", "undefined character name 'NONE' at position 0"),
    "range": ("a[c-b]", "bad character range c-b at position 2"),
    "counts": ("a{3,2}", "the least count of {3,2} is more than the greatest at position 1"),
    "flags": ("a(?i)", "flags for all of a pattern must be at its beginning at position 1"),
    "flag": ("(?x)a", "the flag x is not supported; known: a, i, m, s, u at position 0"),
    "kind": ("a(?Q)", "an unknown kind of group at position 1"),
    "lookahead": ("a(?=b)", "lookaround at position 1"),
    "lookbehind": ("(?<!a)b", "lookaround at position 0"),
    "atomic": ("(?>a)", "an atomic group at position 0"),
    "possessive": ("a*+b", "a possessive repetition at position 1"),
    "number": (r"(a)\1", "a back-reference at position 3"),
    "name of a group": ("(?P<n>a)(?P=n)", "a back-reference at position 8"),
    "condition": ("(a)(?(1)b|c)", "a condition on a group at position 3"),
    "depth": ("(" * 5000 + "a" + ")" * 5000, "nested too deeply"),
    "states": ("(a{100}){100}", "more than 5,000 states"),
}


@pytest.mark.parametrize(("pattern", "sentence"), WRONG.values(), ids=WRONG)
def test_a_sentence_says_what_is_wrong_and_where(pattern, sentence):
    with pytest.raises(GrammarError, match=re.escape(sentence)):
        LinearRegex(pattern)
