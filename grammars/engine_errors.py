"""llguidance's error messages as `GrammarError`; those on JSON Schemas are in schema_errors.py."""

from __future__ import annotations

import re

from .errors import GrammarError

# llguidance's positions are positions in its own grammar. Only Lark's are also positions in the user's text.
_POSITION_PREFIX = re.compile(r"^(?:at )?\d+\(\d+\): ")
_LARK_ERROR = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*?)(?:\n\s+\d+ \||$)", re.DOTALL)
_REGEX_ERROR = re.compile(r"regex parse error:\n    (?P<text>.*)\n    (?P<mark> *\^).*\nerror: (?P<message>.*)")


def translate_engine_error(message: str, kind: str, source: str) -> GrammarError:
    """Make llguidance's message an error, with a position in the source where there is one.

    Args:
        message: what llguidance said.
        kind: the kind of the grammar; not ``json_schema``.
        source: the grammar's text.
    """
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


def _regex_error(message: str, source: str) -> GrammarError:
    match = _REGEX_ERROR.search(message)
    if match:
        return GrammarError(match["message"], 1, len(match["mark"]), source)
    if "lookarounds" in message:
        return GrammarError("look-around and \\b are not supported")
    return GrammarError(f"regex: {_first_line(message)}")


def _first_line(message: str) -> str:
    return message.split("\n<state>", 1)[0].strip().split("\n", 1)[0]
