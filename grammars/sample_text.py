"""Short texts that a regex matches: hints for the search for the end of a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import GrammarError
from .regex_syntax import parse_regex
from .regex_tree import Alternatives, CharacterClass, Concatenation, Group, Node, Repetition, compile_class
from .schema_case import UntranslatableError
from .schema_patterns import plain_pattern

_PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_CHARACTERS = f"a0A {_PRINTABLE_ASCII}\t\né"  # characters that are tried for a class, the preferred ones first
_MAX_LENGTH = 2_000
_MAX_HINTS = 50
_LARK_REGEX = re.compile(r"/((?:\\.|[^/\\\n])+)/")


def hints_of(kind: str, source: str, schema: dict[str, Any] | None) -> list[bytes]:
    """Return short texts that the regexes of a grammar match, as a sentence contains them."""
    # A regex that `parse_regex` cannot read gives no hint.
    if kind == "regex":
        patterns = [source]
    elif schema is not None:
        patterns = list(_patterns_of(schema))
    else:
        patterns = _LARK_REGEX.findall(source)
    hints: list[bytes] = []
    for pattern in patterns[:_MAX_HINTS]:
        text = sample_text(pattern)
        if text:
            spelling = text if schema is None else _inside_json_string(text)
            hints.append(spelling.encode())
    return list(dict.fromkeys(hints))  # without repetitions


def _inside_json_string(text: str) -> str:
    """Return a text as it is written between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


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


def sample_text(pattern: str) -> str | None:
    """Return a short text that a regex matches; None if the regex cannot be read here."""
    try:
        return _sample(parse_regex(plain_pattern(pattern), flags=0))
    except (GrammarError, UntranslatableError, re.error, RecursionError):
        return None


def _sample(node: Node) -> str | None:
    """Return a short text that a node matches; None if none is found."""
    match node:
        case CharacterClass(source):
            character_class = compile_class(source)
            return next((character for character in _CHARACTERS if character_class.fullmatch(character)), None)
        case Group(inner_node):
            return _sample(inner_node)
        case Repetition(inner_node, min_count):
            return _repeated(inner_node, min_count)
        case Concatenation(nodes):
            texts = _known_texts(nodes)
            return "".join(texts) if len(texts) == len(nodes) else None
        case Alternatives(nodes):
            return min(_known_texts(nodes), key=len, default=None)
        case _:
            return ""


def _repeated(node: Node, count: int) -> str | None:
    if not count:
        return ""
    text = _sample(node)
    if text is None or len(text) * count > _MAX_LENGTH:
        return None
    return text * count


def _known_texts(nodes: Iterable[Node]) -> list[str]:
    """Return a text of each node, without the nodes for which no text is found."""
    texts = [_sample(node) for node in nodes]
    return [text for text in texts if text is not None]
