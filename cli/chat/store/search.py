"""The search for words in messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

_INDEXED_LETTERS = 3
"""The index finds words of so many letters and more; for shorter ones each message is looked at."""
_EXCERPT_CHARACTERS = 80


def search_terms(text: str) -> list[str]:
    """The words that a message must contain."""
    return text.split()


def search_condition(terms: Sequence[str]) -> tuple[str, list[str]]:
    """The condition of a query on ``message``, and its values."""
    conditions, values = [], []
    indexed = [term for term in terms if len(term) >= _INDEXED_LETTERS]
    if indexed:
        conditions.append("message.number IN (SELECT rowid FROM message_text WHERE message_text MATCH ?)")
        values.append(" ".join('"' + term.replace('"', '""') + '"' for term in indexed))
    for term in terms:
        if len(term) < _INDEXED_LETTERS:
            conditions.append("message.content LIKE ? ESCAPE '\\'")
            values.append("%" + re.sub(r"([\\%_])", r"\\\1", term) + "%")
    return " AND ".join(conditions), values


def excerpt(content: str, terms: Sequence[str]) -> str:
    """A piece of the content around the first of the words, on one line."""
    line = " ".join(content.split())
    found = [match.start() for term in terms if (match := re.search(re.escape(term), line, re.IGNORECASE))]
    start = max(0, min(found, default=0) - _EXCERPT_CHARACTERS // 2)
    end = start + _EXCERPT_CHARACTERS
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
