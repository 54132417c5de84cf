"""The places of the values of a JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..common.strict_json import parse_strict_json
from .schema_references import escape_pointer_token

_LEXEME = re.compile(rb'[\[\]{}:,]|"(?:[^"\\]|\\.)*"|[^\[\]{}:,"\s]+', re.DOTALL)


class ScalarPlace(NamedTuple):
    """A text, number, truth value or null of a JSON text, with its place in bytes."""

    pointer: str  # JSON Pointer
    start: int
    end: int


def scalar_places(text: bytes) -> list[ScalarPlace] | None:
    """Return the places of the scalar values of a JSON text, in order; None if the text is not JSON."""
    try:
        parse_strict_json(text)
    except ValueError:
        return None
    return list(_scalars(text))


def _scalars(text: bytes) -> Iterator[ScalarPlace]:
    """Yield the scalar values of a text that is JSON."""
    path: list[str | int] = []  # the key or the index of the current value in each open container
    expects_key = False
    for match in _LEXEME.finditer(text):
        lexeme = match[0]
        if lexeme in (b"{", b"["):
            expects_key = lexeme == b"{"
            path.append("" if expects_key else 0)
        elif lexeme in (b"}", b"]"):
            path.pop()
        elif lexeme == b":":
            expects_key = False
        elif lexeme == b",":
            last_step = path[-1]
            expects_key = isinstance(last_step, str)
            path[-1] = last_step if isinstance(last_step, str) else last_step + 1
        elif expects_key:
            path[-1] = json.loads(lexeme)
        else:
            pointer = "".join(f"/{escape_pointer_token(str(step))}" for step in path)
            yield ScalarPlace(pointer, match.start(), match.end())
