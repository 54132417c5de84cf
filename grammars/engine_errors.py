"""llguidance's error messages as `GrammarError`."""

from __future__ import annotations

import re

from .errors import GrammarError

# llguidance's positions are positions in its own grammar. Only Lark's are also positions in the user's text.
_SCHEMA_PREFIX = re.compile(r"^at \d+\(\d+\): failed to compile JSON schema: ")
_POSITION_PREFIX = re.compile(r"^(?:at )?\d+\(\d+\): ")
_LARK_ERROR = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*?)(?:\n\s+\d+ \||$)", re.DOTALL)
_REGEX_ERROR = re.compile(r"regex parse error:\n    (?P<text>.*)\n    (?P<mark> *\^).*\nerror: (?P<message>.*)")
_UNKNOWN_KEYWORDS = re.compile(r"Unimplemented keys: \[(.*)\]")


def translate_engine_error(message: str, kind: str, source: str) -> GrammarError:
    """Make llguidance's message an error, with a position in the source where there is one.

    Args:
        message: what llguidance said.
        kind: the kind of the grammar.
        source: the grammar's text.
    """
    if kind == "json_schema":
        return _schema_error(_SCHEMA_PREFIX.sub("", message), source)
    if kind == "regex":
        return _regex_error(message, source)
    if kind == "gbnf":
        return GrammarError(
            f"llguidance cannot take the grammar: {_first_line(_POSITION_PREFIX.sub('', message))}"
        )
    match = _LARK_ERROR.match(message)
    if match:
        return GrammarError(match[3].strip(), int(match[1]), int(match[2]), source)
    return GrammarError(_first_line(message))


def _schema_error(message: str, source: str) -> GrammarError:
    unknown = _UNKNOWN_KEYWORDS.match(message)
    if unknown:
        keywords = re.findall(r'"([^"]*)"', unknown[1])
        text = f"JSON Schema keyword not supported: {', '.join(keywords)}"
        return _keyword_error(text, keywords[0], source) if keywords else GrammarError(text)
    if message.startswith("oneOf"):
        text = "JSON Schema keyword not supported where its options overlap: oneOf; anyOf is"
        return _keyword_error(text, "oneOf", source)
    if message.startswith('failed to parse "%json": recursion limit'):
        return GrammarError("the JSON Schema is nested too deeply")
    pattern = _REGEX_ERROR.search(message)
    if pattern:
        return GrammarError(f"pattern {pattern['text']!r}: {pattern['message']}")
    return GrammarError(_first_line(message))


def _keyword_error(message: str, keyword: str, source: str) -> GrammarError:
    """An error at the first place where a keyword of a JSON Schema stands."""
    key = re.search(rf'"{re.escape(keyword)}"\s*:', source)
    return GrammarError.at(message, source, key.start()) if key else GrammarError(message)


def _regex_error(message: str, source: str) -> GrammarError:
    match = _REGEX_ERROR.search(message)
    if match:
        return GrammarError(match["message"], 1, len(match["mark"]), source)
    if "lookarounds" in message:
        return GrammarError("look-around and \\b are not supported")
    return GrammarError(f"regex: {_first_line(message)}")


def _first_line(message: str) -> str:
    return message.split("\n<state>", 1)[0].strip().split("\n", 1)[0]
