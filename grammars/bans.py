"""Bans: phrases and regular expressions that a text must not contain, as presets, flags and clients write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..common.text import short_repr, unknown_name
from .errors import GrammarError
from .linear_regex import LinearRegex

# The number of characters that a match may reach back. Text is held back while a match can still come, so a
# pattern that never ends must not hold back everything.
MAX_MATCH_CHARACTERS = 1_000

MAX_BANS = 5_000  # maximum number of bans of one text, as in KoboldCpp


@dataclass(frozen=True)
class TextBan:
    """A phrase or a regular expression that a text must not contain."""

    text: str  # the phrase, or the pattern
    is_regex: bool = False  # whether ``text`` is a pattern
    ignores_case: bool = True  # whether letters match in any case, by Unicode's case folding
    whole_words: bool = False  # whether the characters before and after a match must not belong to words

    def as_setting(self) -> str | dict[str, Any]:
        table: dict[str, Any] = {"regex" if self.is_regex else "text": self.text}
        ignores_case_by_default = not self.is_regex
        if self.ignores_case != ignores_case_by_default:
            table["case"] = not self.ignores_case
        if self.whole_words:
            table["words"] = True
        has_only_text = table.keys() == {"text"}
        return self.text if has_only_text else table


def parse_bans(values: object) -> tuple[TextBan, ...]:
    """Return the bans that a preset, a line of a batch or a client writes."""
    # One ban is a string, which is a phrase, or a table with ``text`` or ``regex``. A table may also have ``case``
    # and ``words``. Several bans are a list. Raises ``GrammarError`` that names the ban.
    is_single = isinstance(values, (str, Mapping, TextBan))
    entries = [values] if is_single else values
    if not isinstance(entries, Sequence):
        raise GrammarError(f"{short_repr(values)} is not a string, a table, or a list of them", place=("bans",))
    if len(entries) > MAX_BANS:
        raise GrammarError(f"{len(entries):,} entries; at most {MAX_BANS:,} are allowed", place=("bans",))
    bans = []
    for index, entry in enumerate(entries):
        try:
            bans.append(_parse_ban(entry))
        except GrammarError as error:
            place = ("bans",) if is_single else ("bans", index)
            raise error.under(*place) from None
    return tuple(bans)


def parse_ban_lines(text: str, origin: str) -> tuple[TextBan, ...]:
    """Return the bans of a file: a phrase on each line; ``/…/`` is a regex."""
    # Raises ``GrammarError`` with the line.
    bans: list[TextBan] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            ban = _parse_ban_line(line)
            if ban is not None:
                bans.append(_check_ban(ban))
        except GrammarError as error:
            raise error.within(f"{origin}: line {number}") from None
    return tuple(bans)


def _parse_ban_line(line: str) -> TextBan | None:
    """Return the ban on a line, which has not been checked; None for an empty line."""
    stripped = line.strip("\r\n")
    is_regex = len(stripped) > 1 and stripped.startswith("/") and stripped.endswith("/")
    if is_regex:
        return TextBan(stripped[1:-1], is_regex=True, ignores_case=False)
    return TextBan(stripped) if stripped.strip() else None


_KEYS = ("text", "regex", "case", "words")


def _parse_ban(entry: object) -> TextBan:
    if isinstance(entry, TextBan):
        return _check_ban(entry)
    if isinstance(entry, str):
        return _check_ban(TextBan(entry))
    if not isinstance(entry, Mapping):
        raise GrammarError(f"{short_repr(entry)} is not a string or a table")
    for key in entry:
        if key not in _KEYS:
            raise GrammarError(unknown_name("key", key, _KEYS))
    if ("text" in entry) == ("regex" in entry):
        raise GrammarError("expected either text or regex")
    is_regex = "regex" in entry
    key = "regex" if is_regex else "text"
    if not isinstance(entry[key], str):
        raise GrammarError(f"{short_repr(entry[key])} is not a string", place=(key,))
    for name in ("case", "words"):
        if not isinstance(entry.get(name, False), bool):
            raise GrammarError(f"{short_repr(entry[name])} is not true or false", place=(name,))
    case_matters = entry.get("case", is_regex)
    ban = TextBan(entry[key], is_regex, ignores_case=not case_matters, whole_words=entry.get("words", False))
    return _check_ban(ban)


def _check_ban(ban: TextBan) -> TextBan:
    if not ban.text:
        raise GrammarError(f"an empty {'regex' if ban.is_regex else 'phrase'} would ban every text")
    try:
        ban.text.encode()
    except UnicodeEncodeError:
        raise GrammarError("half of a surrogate pair is not a character") from None
    if ban.is_regex:
        regex_of(ban)
    elif len(ban.text) > MAX_MATCH_CHARACTERS:
        raise GrammarError(
            f"a phrase of {len(ban.text):,} characters; at most {MAX_MATCH_CHARACTERS:,} are allowed"
        )
    return ban


@lru_cache(maxsize=512)  # the requests of a batch share a few bans
def regex_of(ban: TextBan) -> LinearRegex:
    """Return the automaton of a ban that is a regex. Raises ``GrammarError``."""
    return LinearRegex(ban.text, ignores_case=ban.ignores_case, whole_words=ban.whole_words)
