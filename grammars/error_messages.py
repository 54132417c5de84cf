"""What llguidance says is wrong with a grammar, as a `GrammarError`."""

from __future__ import annotations

import re

from .errors import GrammarError

_PLACE_IN_OURS = re.compile(r"^at \d+\(\d+\): failed to compile JSON schema: ")
_LARK = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*?)(?:\n\s+\d+ \||$)", re.DOTALL)
_PLACE = re.compile(r"^(?:at )?\d+\(\d+\): ")
_REGEX = re.compile(r"regex parse error:\n    (?P<text>.*)\n    (?P<mark> *\^).*\nerror: (?P<message>.*)")
_KEYS = re.compile(r"Unimplemented keys: \[(.*)\]")


def complaint(said: str, kind: str, source: str) -> GrammarError:
    """Make llguidance's message an error with a place in the source, where it can be found."""
    if kind == "json_schema":
        return _about_schema(_PLACE_IN_OURS.sub("", said), source)
    if kind == "regex":
        return _about_regex(said, source)
    if kind == "gbnf":
        return GrammarError(f"llguidance cannot take the grammar: {_first_line(_PLACE.sub('', said))}")
    place = _LARK.match(said) if kind == "lark" else None
    if place:
        return GrammarError(place[3].strip(), int(place[1]), int(place[2]), source)
    return GrammarError(_first_line(said))


def _about_schema(said: str, source: str) -> GrammarError:
    unknown = _KEYS.match(said)
    if unknown:
        keys = re.findall(r'"([^"]*)"', unknown[1])
        message = f"JSON Schema keyword not supported: {', '.join(keys)}"
        place = re.search(rf'"{re.escape(keys[0])}"\s*:', source) if keys else None
        if place:
            return _at(message, place.start(), source)
        return GrammarError(message)
    if said.startswith("oneOf"):
        place = re.search(r'"oneOf"\s*:', source)
        message = "JSON Schema keyword not supported where its options overlap: oneOf; anyOf is"
        return _at(message, place.start(), source) if place else GrammarError(message)
    if said.startswith('failed to parse "%json": recursion limit'):
        return GrammarError("the JSON Schema is nested too deeply")
    pattern = _REGEX.search(said)
    if pattern:
        return GrammarError(f"pattern {pattern['text']!r}: {pattern['message']}")
    return GrammarError(_first_line(said))


def _about_regex(said: str, source: str) -> GrammarError:
    inside = _REGEX.search(said)
    if inside:
        return GrammarError(inside["message"], 1, len(inside["mark"]), source)
    look = "lookarounds" in said
    return GrammarError("look-around and \\b are not supported" if look else f"regex: {_first_line(said)}")


def _at(message: str, offset: int, source: str) -> GrammarError:
    line = source.count("\n", 0, offset) + 1
    return GrammarError(message, line, offset - source.rfind("\n", 0, offset), source)


def _first_line(said: str) -> str:
    return said.split("\n<state>", 1)[0].strip().split("\n", 1)[0]
