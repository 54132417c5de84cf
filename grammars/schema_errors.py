"""llguidance's errors about JSON Schemas, in logitsmith's wording and with the path in the schema."""

from __future__ import annotations

import re
from typing import Any

from llguidance import LLMatcher

from .errors import REGEX_ERROR, GrammarError, first_line
from .json_schema import LENIENT_HINT, ONE_LINE_STYLE, TOO_DEEP, SchemaPart, children, json_schema_to_lark
from .tokenizer import BYTE_VOCABULARY, PARSER_LIMITS, tokenizer_of

_MESSAGE_PREFIX = re.compile(r"^at \d+\(\d+\): failed to compile JSON schema: ")
_SHARED_KEYS = ("$defs", "definitions", "$schema", "x-guidance")
"""Keys of the complete schema that a part may need when it is compiled alone."""
_MAX_TRIALS = 400
"""Maximum number of parts that are compiled to find an invalid one, which takes a second at most."""
_MAX_REMOVALS = 200
"""Maximum number of changes that make a schema valid."""

_NOT_EXCLUSIVE_START = "oneOf"
_LOOK_AROUND = re.compile(r"look-?arounds?,? .*not supported|look-around, including")
_PROPERTY_COUNT_START = "min/maxProperties only supported"
_UNSATISFIABLE_PROPERTY = re.compile(r"Unsatisfiable schema: required property '(.*)' is unsatisfiable")
_TRANSLATIONS = (
    (r"Unsatisfiable schema: Regex is empty.*", "no string matches its pattern, format and length together"),
    (r"Unsatisfiable schema: required item is unsatisfiable", "minItems: no JSON matches an item"),
    (r"Unsatisfiable schema: incompatible types", "no JSON matches it: its parts require different types"),
    (r"Unsatisfiable schema: integer interval (.*) contains no integer values", r"no integer is in \1"),
    (r"Unsatisfiable schema: minProperties > maxProperties", "minProperties is greater than maxProperties"),
    (r"Unsatisfiable schema: schema is false", "no JSON matches it"),
    (r"Unsatisfiable schema: (.*)", r"no JSON matches it: \1"),
    (r"Expected positive integer for '(\w+)', got (.*)", r"\1: \2 is not an integer ≥ 0"),
    (r"Expected f64 for '(\w+)', got (.*)", r"\1: \2 is not a number"),
    (r"Expected array for '(\w+)', got (.*)", r"\1: \2 is not a list"),
    (r"Expected string for '(\w+)'(?: item)?, got (.*)", r"\1: \2 is not a string"),
    (r"(\S+) must be a string or array of strings", r"\1: must be a string or a list of strings"),
    (r"(\S+) must be a string, got (.*)", r"\1: \2 is not a string"),
    (r"(\S+) must be an array.*", r"\1: must be a list"),
    (r"(\S+) must be an object.*", r"\1: must be an object"),
    (r"Failed to generate regex for float range.*", "a limit of this size is not supported"),
    (r"invalid multiple of.*", "multipleOf: must be a number above 0"),
    (r"patternProperty regexes /(.*)/ and /(.*)/ are.*", r"patternProperties: a key may match both \1 and \2"),
    (r"Resource '(.*)' is not present.*", r"$ref: '\1' is another document; only this schema is read"),
    (r"Anchor '(.*)' does not exist", r"$ref: the schema has no anchor '\1'"),
    (r"Pointer '(.*)' does not exist", r"$ref: the schema has no '#\1'"),
    (r"unknown field '(.*?)', expected one of (.*)", r"x-guidance: unknown key '\1'; allowed are \2"),
)  # fmt: skip


def schema_engine_error(schema: dict[str, Any]) -> str:
    """Return llguidance's error message about a schema; empty if the schema is valid."""
    try:
        lark = json_schema_to_lark(schema, ONE_LINE_STYLE)
    except GrammarError as error:
        return str(error)
    matcher = LLMatcher(tokenizer_of(BYTE_VOCABULARY), lark, log_level=0, limits=PARSER_LIMITS)
    return _MESSAGE_PREFIX.sub("", matcher.get_error())


def schema_error(message: str, schema: dict[str, Any]) -> GrammarError:
    """Return the error for llguidance's message about a schema, with the path of the invalid part."""
    message = _MESSAGE_PREFIX.sub("", message)
    if message.startswith('failed to parse "%json": recursion limit'):
        return GrammarError(TOO_DEEP)
    part, message = find_invalid_part(schema, message)
    sentence, advice = _translate_message(message, part.schema)
    # If the sentence begins with a keyword, the keyword becomes the end of the path.
    keyword, colon, remaining_sentence = sentence.partition(": ")
    if colon and keyword in part.schema:
        return GrammarError(f"{part.pointer}/{keyword}: {remaining_sentence}", advice=advice)
    return GrammarError(f"{part.pointer}: {sentence}" if part.pointer else sentence, advice=advice)


def loosen(schema: dict[str, Any]) -> list[str]:
    """Change a schema until llguidance accepts it, and return the paths of the changes.

    Each change makes the schema allow more JSON. ``oneOf`` becomes ``anyOf`` if its options may overlap. Patterns
    with look-around and unsupported counts of properties are removed. Other errors remain.
    """
    changes: list[str] = []
    for _ in range(_MAX_REMOVALS):
        message = schema_engine_error(schema)
        if not message:
            break
        (pointer, part), message = find_invalid_part(schema, message)
        if message.startswith(_NOT_EXCLUSIVE_START) and "oneOf" in part:
            options = {"anyOf": part.pop("oneOf")}
            if "anyOf" in part:
                part["allOf"] = [*part.get("allOf", []), options]
            else:
                part |= options
            changes.append(f"{pointer}/oneOf (read as anyOf)")
            continue
        keywords = _removable_keywords(message, part)
        if not keywords:
            break
        for keyword in keywords:
            del part[keyword]
            changes.append(f"{pointer}/{keyword}")
    return changes


def find_invalid_part(schema: dict[str, Any], message: str) -> tuple[SchemaPart, str]:
    """Return the smallest part that causes an error of a schema, and llguidance's message about this part.

    Args:
        schema: the complete schema.
        message: llguidance's message about the complete schema.
    """
    shared_keys = {key: schema[key] for key in _SHARED_KEYS if key in schema}
    part = SchemaPart("", schema)
    trial_count = 0
    visited_ids = {id(schema)}
    while trial_count < _MAX_TRIALS:
        for child in children(schema, part):
            trial_count += 1
            if id(child.schema) in visited_ids or trial_count > _MAX_TRIALS:
                continue
            visited_ids.add(id(child.schema))
            error = schema_engine_error({**shared_keys, **child.schema})
            if error and (error.split("\n")[0] in message or _is_possible_cause(error, message)):
                part, message = child, error
                break
        else:
            break
    return part, message


def _is_possible_cause(part_error: str, message: str) -> bool:
    """Return True if the schema may be unsatisfiable, as its message says, because the part is."""
    return part_error.startswith("Unsatisfiable") and re.search(r"required .* unsatisfiable", message) is not None


def _removable_keywords(message: str, schema: dict[str, Any]) -> list[str]:
    """Return the keywords that cause this message and can be removed; empty if there are none."""
    if _LOOK_AROUND.search(message) and "pattern" in schema:
        return ["pattern"]
    if message.startswith(_PROPERTY_COUNT_START):
        return [keyword for keyword in ("minProperties", "maxProperties") if keyword in schema]
    return []


def _translate_message(message: str, schema: dict[str, Any]) -> tuple[str, str]:
    """Return the translation of a message about a schema, and advice, which may be empty."""
    if message.startswith(_NOT_EXCLUSIVE_START):
        return (
            "oneOf: several options may match the same JSON",
            "write anyOf, or schema_lenient=True reads it as anyOf",
        )
    if message.startswith(_PROPERTY_COUNT_START):
        keyword = "minProperties" if "minProperties" in schema else "maxProperties"
        return f"{keyword}: supported only if all properties are required", LENIENT_HINT
    if _LOOK_AROUND.search(message):
        pattern = schema.get("pattern")
        return f"pattern: look-around and \\b are not supported, as in {pattern!r}", LENIENT_HINT
    return _translate_without_advice(message, schema), ""


def _translate_without_advice(message: str, schema: dict[str, Any]) -> str:
    """Return the translation of a message that needs no advice."""
    pattern = REGEX_ERROR.search(message)
    if pattern:
        keyword = "pattern" if "pattern" in schema else "patternProperties"
        return f"{keyword}: {pattern['text']!r}: {pattern['message']}"
    line = first_line(message).replace("`", "'")
    empty_keyword = next((key for key in ("enum", "anyOf", "oneOf", "type") if schema.get(key) == []), None)
    if empty_keyword is not None and line == "Unsatisfiable schema: anyOf is empty":
        return f"{empty_keyword}: the list is empty, so no JSON matches it"
    property_match = _UNSATISFIABLE_PROPERTY.fullmatch(line)
    if property_match:
        return _explain_unsatisfiable_property(property_match[1], schema)
    if line.startswith("Unsatisfiable schema: minimum") and "minimum" not in schema:
        return "no JSON matches it: its parts allow different values"
    for template, sentence in _TRANSLATIONS:
        match = re.fullmatch(template, line)
        if match:
            return match.expand(sentence)
    return f"llguidance rejects it: {line}"


def _explain_unsatisfiable_property(name: str, schema: dict[str, Any]) -> str:
    """Return the reason why a required property cannot exist."""
    is_allowed = name in schema.get("properties", {}) or "patternProperties" in schema
    if schema.get("additionalProperties") is False and not is_allowed:
        return f"required: {name!r} is not one of the properties, and additionalProperties forbids others"
    return f"required: no JSON matches the property {name!r}"
