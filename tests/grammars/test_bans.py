"""Bans: how they are written, and where they are found, against Python's regular expressions."""

import random
import re

import pytest
from logitsmith.grammars.ban_scanner import BanScanner
from logitsmith.grammars.bans import MAX_MATCH_CHARACTERS, parse_ban_lines, parse_bans
from logitsmith.grammars.errors import GrammarError
from logitsmith.grammars.linear_regex import NO_THREADS, LinearRegex

WRONG = [
    pytest.param([""], r"bans\[0\]: an empty phrase would ban every text", id="empty phrase"),
    pytest.param([{"regex": ""}], "an empty regex", id="empty regex"),
    pytest.param([{"regex": "a*"}], "matches the empty text", id="regex of the empty text"),
    pytest.param([{"regex": r"\b"}], "matches the empty text", id="boundary"),
    pytest.param([{"regex": "(a"}], "is invalid: a closing parenthesis is missing", id="invalid regex"),
    pytest.param([{"regex": r"(a)\1"}], "uses a back-reference", id="back-reference"),
    pytest.param([{"regex": "(?=a)b"}], "uses lookaround", id="lookaround"),
    pytest.param([{"regex": "a{9999}"}], "more than 5,000 states", id="too many states"),
    pytest.param([{"regex": "(" * 3000 + "a" + ")" * 3000}], "nested too deeply", id="too deep"),
    pytest.param(["x" * 1001], "at most 1,000", id="long phrase"),
    pytest.param([{"text": "a", "cases": True}], "unknown key 'cases'; did you mean case", id="unknown key"),
    pytest.param([{"text": "a", "regex": "b"}], "either text or regex", id="text and regex"),
    pytest.param([{"text": 5}], r"bans\[0\].text: 5 is not a string", id="number"),
    pytest.param([{"text": "a", "words": 1}], r"words: 1 is not true or false", id="words"),
    pytest.param(["\ud800"], "half of a surrogate pair", id="surrogate"),
    pytest.param(5, "bans: 5 is not a string", id="no list"),
    pytest.param(["a"] * 5001, "at most 5,000", id="too many"),
]


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_wrong_bans(value, message):
    with pytest.raises(GrammarError, match=message):
        parse_bans(value)


def test_a_ban_is_written_as_it_was_read():
    written = [
        "shivers down",
        {"text": "Elara", "case": True, "words": True},
        {"regex": "a+"},
        {"regex": "b", "case": False},
    ]
    assert [ban.as_setting() for ban in parse_bans(written)] == written


def test_a_file_has_a_phrase_or_a_regex_on_each_line():
    bans = parse_ban_lines("shivers down\n\n/te?st/\r\n / \n", "bans.txt")
    assert [(ban.text, ban.is_regex) for ban in bans] == [("shivers down", False), ("te?st", True), (" / ", False)]
    with pytest.raises(GrammarError, match=r"bans.txt: line 2: .*matches the empty text"):
        parse_ban_lines("a\n/b*/\n", "bans.txt")


PATTERNS = [
    *("ab", "a+b", "(a|b)*c", r"\bab\b", "^a", "b$", "[^a]b", "(?i)aB", "a{2,3}", "a.b", r"\w+c", "(ab|a)(c|bcd)"),
    *("(?:a|ab)(?:b|)c", r"\Bb", "a*?b", "é+", r"(?s)a.b", r"(?m)^b", r"[a-c]{3}", r"\d|\s"),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_equal_those_of_re(pattern):
    """For each end, the earliest start: the ends and starts of all matches that `re` finds at a start."""
    regex, chooser = LinearRegex(pattern), random.Random(pattern)
    for _ in range(150):
        text = "".join(chooser.choice("aabbcABé \n1") for _ in range(chooser.randint(0, 9)))
        expected = {}
        for start in range(len(text)):
            for end in range(len(text), start, -1):
                if matches_exactly(pattern, text, start, end):
                    expected.setdefault(end, start)
        assert {end: start for start, end in iterate_matches(regex, text)} == expected, (pattern, text)


def iterate_matches(regex, text):
    """Yield the earliest start and the end of the matches in a text, one for each end."""
    threads, before = NO_THREADS, ""
    for position, character in enumerate(text):
        late_start = regex.late_match_start(threads, before, character)
        if late_start is not None:
            yield late_start, position
        threads = regex.step(threads, before, character, position, 0)
        start = regex.match_start(threads)
        if start is not None:
            yield start, position + 1
        before = character
    late_start = regex.late_match_start(threads, before, "")
    if late_start is not None:
        yield late_start, len(text)


def matches_exactly(pattern, text, start, end):
    """Whether `re` matches a part of the text, with a view of the text around it."""
    flags, _, body = pattern.rpartition(")") if pattern.startswith(("(?i)", "(?s)", "(?m)")) else ("", "", pattern)
    opening = f"{flags})" if flags else ""
    ending = f"(?=(?s:.{{{len(text) - end}}})\\Z)"
    match = re.compile(f"{opening}(?:{body.replace('$', chr(92) + 'Z')}){ending}").match(text, start)
    return match is not None and match.end() == end


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a+)+c", "(.*)(.*)(.*)x"])
def test_time_is_linear(pattern):
    regex = LinearRegex(pattern)
    assert not [end for _, end in iterate_matches(regex, "a" * 3000)]


def random_phrase(chooser):
    return "".join(chooser.choice("abAß ") for _ in range(chooser.randint(1, 3))).strip() or "b"


@pytest.mark.parametrize("seed", range(40))
def test_phrases_are_found_in_any_parts(seed):
    chooser = random.Random(seed)
    bans = parse_bans(
        [
            {
                "text": "".join(chooser.choice("abAß ") for _ in range(chooser.randint(1, 3))).strip() or "b",
                "case": case,
                "words": words,
            }
            for case in (False, True)
            for words in (False, True)
        ]
    )
    text = "".join(chooser.choice("aabbAS sß") for _ in range(40))
    found, scanner, place = set(), BanScanner(bans), 0
    while place < len(text):
        size = chooser.randint(1, 4)
        found |= set(scanner.push(text[place : place + size]))
        place += size
    found |= set(scanner.end())
    for number, ban in enumerate(bans):
        folded = [character.casefold() if ban.ignores_case else character for character in text]
        wanted = ban.text.casefold() if ban.ignores_case else ban.text
        starts = [sum(map(len, folded[:index])) for index in range(len(text))]
        joined = "".join(folded)
        expected = set()
        for match in re.finditer(f"(?={re.escape(wanted)})", joined):
            first = max(index for index, start in enumerate(starts) if start <= match.start())
            last = max(index for index, start in enumerate(starts) if start <= match.start() + len(wanted) - 1)
            before, after = text[first - 1 : first], text[last + 1 : last + 2]
            if not ban.whole_words or not any(c.isalnum() or c == "_" for c in (before, after)):
                expected.add(first)
        assert {start for start, index in found if index == number} == expected, (ban, text)


def test_nothing_is_held_for_longer_than_a_match_may_be():
    scanner = BanScanner(parse_bans([{"regex": "a[^z]*z"}]))
    scanner.push("a" + "b" * (MAX_MATCH_CHARACTERS - 2))
    assert scanner.live_starts() == {0}
    scanner.push("bb")
    assert scanner.live_starts() == set()


def test_text_is_held_only_while_it_may_become_a_match():
    scanner = BanScanner(parse_bans(["shivers down", {"text": "Elara", "words": True}]))
    for text, live in (("a shi", {2}), ("p, S", {8}), ("HIVERS d", {8}), ("r elara", {19}), ("x", set())):
        scanner.push(text)
        assert scanner.live_starts() == live, text
