"""Short texts that a regex matches: hints for the search for the end of a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .errors import GrammarError
from .regex_syntax import parse_regex
from .regex_tree import Alternatives, CharacterClass, Concatenation, Group, Node, Repetition, compile_class

# characters that are tried for a class; the first that fits is taken
_CHARACTERS = "a0A " + "".join(map(chr, range(0x21, 0x7F))) + "\t\né"
_MAX_LENGTH = 2_000
_MAX_HINTS = 50
_LARK_REGEX = re.compile(r"/((?:\\.|[^/\\\n])+)/")


def hints_of(kind: str, source: str, schema: dict[str, Any] | None) -> list[bytes]:
    """Return short texts that the regexes of a grammar match, as they stand in a sentence."""
    # Regexes whose syntax only Rust has are left out.
    if kind == "regex":
        patterns = [source]
    elif schema is not None:
        patterns = list(_patterns_of(schema))
    else:
        patterns = _LARK_REGEX.findall(source)
    hints: dict[bytes, None] = {}
    for pattern in patterns[:_MAX_HINTS]:
        text = sample_text(pattern)
        if text:
            written = json.dumps(text, ensure_ascii=False)[1:-1] if schema is not None else text
            hints[written.encode()] = None
    return list(hints)


def _patterns_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "pattern" and isinstance(item, str):
                yield item
            elif key == "patternProperties" and isinstance(item, dict):
                yield from item
            yield from _patterns_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _patterns_of(item)


_PROPERTY = re.compile(r"\\p(?:\{(\w+)\}|(\w))")
_CLASSES = {"L": "a-zA-Z", "N": "0-9", "P": "!-/", "Z": " ", "S": "+<=>"}


def _class_of_property(match: re.Match[str]) -> str:
    """Return characters of a Unicode property, as part of a class or as a class."""
    name = match[1] or match[2]
    members = {"Lu": "A-Z", "Ll": "a-z"}.get(name) or _CLASSES.get(name[0], "a-z")
    is_in_class = match.string.rfind("[", 0, match.start()) > match.string.rfind("]", 0, match.start())
    return members if is_in_class else f"[{members}]"


def sample_text(pattern: str) -> str | None:
    """Return a short text that a regex matches; None if the regex cannot be read here."""
    try:
        return _sample(parse_regex(_PROPERTY.sub(_class_of_property, pattern), 0))
    except (GrammarError, re.error, RecursionError):
        return None


def _sample(node: Node) -> str | None:
    match node:
        case CharacterClass(source):
            fits = compile_class(source).fullmatch
            return next((character for character in _CHARACTERS if fits(character)), None)
        case Group(inner):
            return _sample(inner)
        case Repetition(inner, least):
            text = _sample(inner) if least else ""
            return None if text is None or len(text) * least > _MAX_LENGTH else text * least
        case Concatenation(nodes):
            texts = [_sample(each) for each in nodes]
            known = [text for text in texts if text is not None]
            return "".join(known) if len(known) == len(texts) else None
        case Alternatives(nodes):
            return min((text for each in nodes if (text := _sample(each)) is not None), key=len, default=None)
        case _:
            return ""
