"""llguidance's errors about JSON Schemas, with the path in the schema."""

from __future__ import annotations

import re
from typing import Any

from ..common.errors import Advice
from .errors import LENIENT_HINT, REGEX_ERROR, GrammarError, first_line
from .json_schema import ONE_LINE_STYLE, TOO_DEEP, json_schema_to_lark
from .matcher import new_matcher
from .schema_keywords import ALL_RESTRICTING, shown
from .schema_parts import children
from .schema_references import SchemaPart
from .tokenizer import BYTE_VOCABULARY

_MESSAGE_PREFIX = re.compile(r"^at \d+\(\d+\): failed to compile JSON schema: ")
_MAX_TRIALS = 400  # maximum number of parts that are compiled to find an invalid part; takes a second at most
_MAX_REMOVALS = 200  # maximum number of changes that make a schema valid

# Parts of llguidance's messages
_LOOK_AROUND = re.compile(r"look-?arounds?,? .*not supported|look-around, including")
_PROPERTY_COUNT_START = "min/maxProperties only supported"


def schema_engine_error(schema: dict[str, Any]) -> str:
    """Return llguidance's error message about a schema; empty if the schema is valid."""
    try:
        return engine_error(json_schema_to_lark(schema, ONE_LINE_STYLE))
    except GrammarError as error:
        return str(error)


def engine_error(lark: str) -> str:
    """Return llguidance's error message about the grammar of a schema; empty if it is valid."""
    return _MESSAGE_PREFIX.sub("", new_matcher(BYTE_VOCABULARY, lark).get_error())


def shared_keywords(root: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords that a part of a schema may need when it is compiled alone, such as ``$defs``."""
    return {keyword: value for keyword, value in root.items() if keyword not in ALL_RESTRICTING}


def schema_error(message: str, schema: dict[str, Any]) -> GrammarError:
    """Return the error for llguidance's message about a schema, with the path of the invalid part."""
    message = _MESSAGE_PREFIX.sub("", message)
    if message.startswith('failed to parse "%json": recursion limit'):
        return GrammarError(TOO_DEEP)
    part, message = find_invalid_part(schema, message)
    sentence, advice = _sentence_and_advice(message, part.schema)
    # If the sentence begins with a keyword, the keyword becomes the end of the path.
    keyword, colon, remaining_sentence = sentence.partition(": ")
    if colon and keyword in part.schema:
        return GrammarError(f"{part.pointer}/{keyword}: {remaining_sentence}", advice=advice)
    return GrammarError(f"{part.pointer}: {sentence}" if part.pointer else sentence, advice=advice)


def loosen(schema: dict[str, Any]) -> list[str]:
    """Change a schema until llguidance accepts it, and return the paths of the changes."""
    # Each change makes the schema allow more JSON. Patterns with look-around and unsupported counts of properties
    # are removed. Other errors remain.
    changes: list[str] = []
    for _ in range(_MAX_REMOVALS):
        message = schema_engine_error(schema)
        if not message:
            break
        (pointer, part), message = find_invalid_part(schema, message)
        keywords = _removable_keywords(message, part)
        if not keywords:
            break
        for keyword in keywords:
            del part[keyword]
            changes.append(f"{pointer}/{keyword}")
    return changes


def find_invalid_part(schema: dict[str, Any], message: str) -> tuple[SchemaPart, str]:
    """Return the smallest part that causes an error of a schema, and llguidance's message about this part."""
    shared = shared_keywords(schema)
    part = SchemaPart("", schema)
    trial_count = 0
    visited_ids = {id(schema)}
    while trial_count < _MAX_TRIALS:
        for child in children(schema, part):
            trial_count += 1
            if id(child.schema) in visited_ids or trial_count > _MAX_TRIALS:
                continue
            visited_ids.add(id(child.schema))
            error = schema_engine_error({**shared, **child.schema})
            first_line_of_error = error.split("\n")[0]
            if error and (first_line_of_error in message or _is_possible_cause(error, message)):
                part = child
                message = error
                break
        else:
            break
    return part, message


def _is_possible_cause(part_error: str, message: str) -> bool:
    """Return True if a required property is unsatisfiable, as the message says, and the part is, too."""
    return part_error.startswith("Unsatisfiable") and re.search(r"required .* unsatisfiable", message) is not None


def _removable_keywords(message: str, schema: dict[str, Any]) -> list[str]:
    """Return the keywords that cause this message and can be removed; empty if there are none."""
    if _LOOK_AROUND.search(message) and "pattern" in schema:
        return ["pattern"]
    if message.startswith(_PROPERTY_COUNT_START):
        return [keyword for keyword in ("minProperties", "maxProperties") if keyword in schema]
    return []


def _sentence_and_advice(message: str, schema: dict[str, Any]) -> tuple[str, Advice]:
    """Return a sentence for llguidance's message about a part of a schema, and advice, if any."""
    # Most sentences are llguidance's. A sentence about a keyword that can be written in another way is ours.
    if message.startswith(_PROPERTY_COUNT_START):
        keyword = "minProperties" if "minProperties" in schema else "maxProperties"
        problem = "supported only if all properties are required"
        return f"{keyword}: {problem} (here {shown(schema.get(keyword))})", LENIENT_HINT
    if _LOOK_AROUND.search(message):
        pattern = schema.get("pattern")
        return f"pattern: look-around and \\b are not supported, as in {pattern!r}", LENIENT_HINT
    pattern_error = REGEX_ERROR.search(message)
    if pattern_error:
        keyword = "pattern" if "pattern" in schema else "patternProperties"
        return f"{keyword}: {pattern_error['regex']!r}: {pattern_error['message']}", ()
    line = first_line(message)
    # llguidance's message names "anyOf" for each of these keywords.
    empty_keyword = next((key for key in ("enum", "anyOf", "oneOf", "type") if schema.get(key) == []), None)
    if empty_keyword is not None:
        line = line.replace("anyOf", empty_keyword)
    # llguidance reads a constant as a range, so its message names limits that the schema does not have.
    if line.startswith("Unsatisfiable schema: minimum") and "minimum" not in schema:
        line = "Unsatisfiable schema: its parts allow different values"
    if line.startswith("unknown field"):
        line = f"x-guidance: {line}"
    return line, ()
