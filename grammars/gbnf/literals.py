"""Texts as literals of GBNF."""

from __future__ import annotations

from ..errors import GrammarError
from .nodes import SURROGATES

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def literal(text: str) -> str:
    """Return a literal that matches exactly this text. Raises ``GrammarError`` for half of a surrogate pair."""
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    code_point = ord(character)
    if SURROGATES[0] <= code_point <= SURROGATES[1]:
        raise GrammarError(f"\\u{code_point:04x} is half of a surrogate pair, which is not a character")
    if character in _ESCAPES:
        return _ESCAPES[character]
    # Line separators, controls and signs that join or turn their neighbors: a record of the grammar shows them.
    if not character.isprintable():
        return f"\\u{code_point:04x}" if code_point <= 0xFFFF else f"\\U{code_point:08x}"
    return character
