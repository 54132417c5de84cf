"""Translates JSON Schemas to llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from typing import Any

from ..common.strict_json import NonFiniteNumberError, json_problem, parse_strict_json
from .errors import GrammarError

ONE_LINE_STYLE: dict[str, object] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""llguidance's options for JSON on one line, with one space after each comma and colon.

If blanks could stand anywhere, a model might write them forever, and hardly any text would be forced.
"""

TOO_DEEP = "the JSON Schema is nested too deeply"
_FILE_NAME = re.compile(r"[^\s{}\[\]\"]+\.json")
_HALF_OF_A_PAIR = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])")


def parse_json_schema(source: str) -> dict[str, Any]:
    """Parse the text of a JSON Schema. Raises ``GrammarError`` for what is neither a JSON object nor ``true``."""
    try:
        schema = parse_strict_json(source)
    except json.JSONDecodeError as error:
        if _FILE_NAME.fullmatch(source):
            raise GrammarError(
                f"{source!r} is not JSON but looks like a file", advice="give a file by json_schema_file=…"
            ) from None
        raise GrammarError(f"not JSON: {json_problem(error)}", error.lineno, error.colno, source) from None
    except NonFiniteNumberError as error:
        raise GrammarError(f"not JSON: {error}") from None
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number of too many digits") from None
    if schema is True:
        return {}
    if schema is False:
        raise GrammarError("a JSON Schema is an object; this one allows nothing")
    if not isinstance(schema, dict):
        raise GrammarError("a JSON Schema is an object")
    if not isinstance(schema.get("x-guidance", {}), dict):
        raise GrammarError("x-guidance is not an object")
    return schema


def open_object(schema: dict[str, Any]) -> str | None:
    """The JSON pointer of an object that names its properties and allows others; None if there is none.

    Schemas below ``allOf`` are not looked at: they describe one object together.
    """
    remaining: list[tuple[str, Any]] = [("", schema)]
    while remaining:
        pointer, part = remaining.pop()
        if not isinstance(part, dict):
            continue
        if part.get("properties") and not {"additionalProperties", "unevaluatedProperties"} & part.keys():
            return pointer
        for key in ("properties", "$defs", "definitions"):
            named = part.get(key)
            if isinstance(named, dict):
                remaining += ((f"{pointer}/{key}/{name}", below) for name, below in named.items())
        for key in ("anyOf", "oneOf", "prefixItems"):
            listed = part.get(key)
            if isinstance(listed, list):
                remaining += ((f"{pointer}/{key}/{number}", below) for number, below in enumerate(listed))
        remaining.append((f"{pointer}/items", part.get("items")))
    return None


def json_schema_to_lark(schema: dict[str, Any], style: dict[str, object]) -> str:
    """Return a Lark grammar of JSON that fits the schema; llguidance does the translation.

    ``style``: llguidance's options for blanks and separators. Those in the schema's ``x-guidance`` go first.
    Raises ``GrammarError``.
    """
    try:
        text = json.dumps({**schema, "x-guidance": {**style, **schema.get("x-guidance", {})}}, allow_nan=False)
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number that is too large") from None
    if _HALF_OF_A_PAIR.search(text):
        raise GrammarError("the JSON Schema has half of a surrogate pair, which is not a character")
    return f"start: %json {text}\n"
