"""llguidance's errors about a JSON Schema: with the path in the schema, and in words of ours."""

from __future__ import annotations

import re
from typing import Any

from llguidance import LLMatcher

from .errors import REGEX_ERROR, GrammarError, first_line
from .json_schema import LENIENT_HINT, ONE_LINE_STYLE, TOO_DEEP, SchemaPart, children, json_schema_to_lark
from .tokenizer import BYTE_VOCABULARY, PARSER_LIMITS, tokenizer_of

_PREFIX = re.compile(r"^at \d+\(\d+\): failed to compile JSON schema: ")
_SHARED = ("$defs", "definitions", "$schema", "x-guidance")
"""The keys of a schema that a part of it may need."""
_MAX_TRIALS = 400
"""How many parts of a schema are compiled to find the one that is wrong: a second's work at most."""
_MAX_REMOVALS = 200

_NOT_EXCLUSIVE = "oneOf"
_LOOK_AROUND = re.compile(r"look-?arounds?,? .*not supported|look-around, including")
_PROPERTY_COUNT = "min/maxProperties only supported"
_UNFIT_PROPERTY = re.compile(r"Unsatisfiable schema: required property '(.*)' is unsatisfiable")
_SENTENCES = (
    (r"Unsatisfiable schema: Regex is empty.*", "no text fits its pattern, format and length together"),
    (r"Unsatisfiable schema: required item is unsatisfiable", "minItems: no JSON fits an item"),
    (r"Unsatisfiable schema: incompatible types", "no JSON fits it: its parts ask for different types"),
    (r"Unsatisfiable schema: integer interval (.*) contains no integer values", r"no whole number is within \1"),
    (r"Unsatisfiable schema: minProperties > maxProperties", "minProperties is greater than maxProperties"),
    (r"Unsatisfiable schema: schema is false", "no JSON fits it"),
    (r"Unsatisfiable schema: (.*)", r"no JSON fits it: \1"),
    (r"Expected positive integer for '(\w+)', got (.*)", r"\1: \2 is not a whole number ≥ 0"),
    (r"Expected f64 for '(\w+)', got (.*)", r"\1: \2 is not a number"),
    (r"Expected array for '(\w+)', got (.*)", r"\1: \2 is not a list"),
    (r"Expected string for '(\w+)'(?: item)?, got (.*)", r"\1: \2 is not a text"),
    (r"(\S+) must be a string or array of strings", r"\1: a text or a list of texts is needed"),
    (r"(\S+) must be a string, got (.*)", r"\1: \2 is not a text"),
    (r"(\S+) must be an array.*", r"\1: a list is needed"),
    (r"(\S+) must be an object.*", r"\1: an object is needed"),
    (r"Failed to generate regex for float range.*", "a limit of this size is not supported"),
    (r"invalid multiple of.*", "multipleOf: a number above 0 is needed"),
    (r"patternProperty regexes /(.*)/ and /(.*)/ are.*", r"patternProperties: a key may match \1 and \2"),
    (r"Resource '(.*)' is not present.*", r"$ref: '\1' is another document; only this schema is read"),
    (r"Anchor '(.*)' does not exist", r"$ref: the schema has no anchor '\1'"),
    (r"Pointer '(.*)' does not exist", r"$ref: the schema has no '#\1'"),
    (r"unknown field '(.*?)', expected one of (.*)", r"x-guidance: unknown key '\1'; there are \2"),
)  # fmt: skip


def schema_engine_error(schema: dict[str, Any]) -> str:
    """Return what llguidance says against a schema; empty if nothing."""
    try:
        lark = json_schema_to_lark(schema, ONE_LINE_STYLE)
    except GrammarError as error:
        return str(error)
    matcher = LLMatcher(tokenizer_of(BYTE_VOCABULARY), lark, log_level=0, limits=PARSER_LIMITS)
    return _PREFIX.sub("", matcher.get_error())


def schema_error(message: str, schema: dict[str, Any]) -> GrammarError:
    """Make llguidance's message about a schema an error that names the path of the part that is wrong."""
    message = _PREFIX.sub("", message)
    if message.startswith('failed to parse "%json": recursion limit'):
        return GrammarError(TOO_DEEP)
    part, message = find_wrong_part(schema, message)
    sentence, advice = _sentence(message, part.schema)
    # A keyword that the sentence begins with belongs to the path.
    keyword, colon, rest = sentence.partition(": ")
    if colon and keyword in part.schema:
        return GrammarError(f"{part.pointer}/{keyword}: {rest}", advice=advice)
    return GrammarError(f"{part.pointer}: {sentence}" if part.pointer else sentence, advice=advice)


def loosen(schema: dict[str, Any]) -> list[str]:
    """Change a schema until llguidance takes it, where that only allows more; return the paths of the changes.

    ``oneOf`` becomes ``anyOf`` where its options may overlap; patterns with look-around and counts of properties
    that are not supported are removed. Other errors stay.
    """
    changes: list[str] = []
    for _ in range(_MAX_REMOVALS):
        message = schema_engine_error(schema)
        if not message:
            break
        (pointer, part), message = find_wrong_part(schema, message)
        if message.startswith(_NOT_EXCLUSIVE) and "oneOf" in part:
            options = {"anyOf": part.pop("oneOf")}
            if "anyOf" in part:
                part["allOf"] = [*part.get("allOf", []), options]
            else:
                part |= options
            changes.append(f"{pointer}/oneOf (read as anyOf)")
            continue
        keywords = _removable(message, part)
        if not keywords:
            break
        for keyword in keywords:
            del part[keyword]
            changes.append(f"{pointer}/{keyword}")
    return changes


def find_wrong_part(schema: dict[str, Any], message: str) -> tuple[SchemaPart, str]:
    """Return the smallest part of a schema that llguidance refuses as it refuses the whole, and its message."""
    shared = {key: schema[key] for key in _SHARED if key in schema}
    part = SchemaPart("", schema)
    trials = 0
    visited = {id(schema)}
    while trials < _MAX_TRIALS:
        for child in children(schema, part):
            trials += 1
            if id(child.schema) in visited or trials > _MAX_TRIALS:
                continue
            visited.add(id(child.schema))
            error = schema_engine_error({**shared, **child.schema})
            if error and (error.split("\n")[0] in message or _because_of_a_part(message, error)):
                part, message = child, error
                break
        else:
            break
    return part, message


def _because_of_a_part(message: str, error: str) -> bool:
    """True if a part that no JSON fits may be why no JSON fits the whole."""
    return error.startswith("Unsatisfiable") and re.search(r"required .* unsatisfiable", message) is not None


def _removable(message: str, schema: dict[str, Any]) -> list[str]:
    """The keywords whose removal answers this message; none if there are none."""
    if _LOOK_AROUND.search(message) and "pattern" in schema:
        return ["pattern"]
    if message.startswith(_PROPERTY_COUNT):
        return [keyword for keyword in ("minProperties", "maxProperties") if keyword in schema]
    return []


def _sentence(message: str, schema: dict[str, Any]) -> tuple[str, str]:
    """Return what a message says of a schema, and advice; empty advice if there is none."""
    if message.startswith(_NOT_EXCLUSIVE):
        return (
            "oneOf: several of its options may fit at once",
            "write anyOf, or schema_lenient=True reads it as anyOf",
        )
    if message.startswith(_PROPERTY_COUNT):
        keyword = "minProperties" if "minProperties" in schema else "maxProperties"
        return f"{keyword}: it is supported only where all properties are required", LENIENT_HINT
    if _LOOK_AROUND.search(message):
        pattern = schema.get("pattern")
        return f"pattern: look-around and \\b are not supported, as in {pattern!r}", LENIENT_HINT
    return _engine_sentence(message, schema), ""


def _engine_sentence(message: str, schema: dict[str, Any]) -> str:
    """What a message of the engine says, in words of ours where we have them."""
    pattern = REGEX_ERROR.search(message)
    if pattern:
        keyword = "pattern" if "pattern" in schema else "patternProperties"
        return f"{keyword}: {pattern['text']!r}: {pattern['message']}"
    line = first_line(message).replace("`", "'")
    empty = next((key for key in ("enum", "anyOf", "oneOf", "type") if schema.get(key) == []), None)
    if empty is not None and line == "Unsatisfiable schema: anyOf is empty":
        return f"{empty}: the list is empty, so no JSON fits it"
    unfit = _UNFIT_PROPERTY.fullmatch(line)
    if unfit:
        return _unfit_property(unfit[1], schema)
    if line.startswith("Unsatisfiable schema: minimum") and "minimum" not in schema:
        return "no JSON fits it: its parts allow different values"
    for template, sentence in _SENTENCES:
        match = re.fullmatch(template, line)
        if match:
            return match.expand(sentence)
    return f"llguidance refuses it: {line}"


def _unfit_property(name: str, schema: dict[str, Any]) -> str:
    """Why a property that has to be there cannot be."""
    is_open = name in schema.get("properties", {}) or "patternProperties" in schema
    if schema.get("additionalProperties") is False and not is_open:
        return f"required: {name!r} is none of the properties, and additionalProperties forbids others"
    return f"required: no JSON fits the property {name!r}"
