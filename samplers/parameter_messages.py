"""What a sampler's parameters may be, in words; and a parameter that is not, as one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .base import Sampler

_WORDS = {True: "true", False: "false", None: "null"}
_BOUNDS = ("ge", "gt", "le", "lt")
_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "dict_type": "a table",
    "list_type": "a list",
    "finite_number": "a finite number",
}
"""What is needed, by the type of pydantic's error."""


def allowed_values(field: FieldInfo) -> str:
    """The range of a parameter in words: ``0..1``, ``≥ 0``, ``include or exclude``; empty: any value."""
    bounds = {name: getattr(rule, name) for rule in field.metadata for name in _BOUNDS if hasattr(rule, name)}
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if low is not None and high is not None and "ge" in bounds and "le" in bounds:
        return f"{low:g}..{high:g}"
    limits = []
    if low is not None:
        limits.append(f"{'≥' if 'ge' in bounds else '>'} {low:g}")
    if high is not None:
        limits.append(f"{'≤' if 'le' in bounds else '<'} {high:g}")
    if limits or get_origin(field.annotation) is not Literal:
        return " and ".join(limits)
    words = [str(choice).lower() if isinstance(choice, bool) else choice for choice in get_args(field.annotation)]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def shown_value(value: object) -> str:
    """The value in a message: as Python writes it, but true, false and null as presets do."""
    return _WORDS[value] if isinstance(value, bool | None) else repr(value)


def parameter_message(cls: type[Sampler], error: ValidationError) -> str:
    """One sentence for the first parameter that pydantic refused: ``.p: 1.5 is not within 0..1``."""
    problems = error.errors()
    first = problems[0]
    # A parameter of several types has a problem for each, at the same place with the type's name behind it.
    is_union = first["loc"][-1:] in (("int",), ("str",))
    path_parts = first["loc"][:-1] if is_union else first["loc"]
    is_key = path_parts[-1:] == ("[key]",)
    path = "".join(f".{part}" for part in (path_parts[:-2] if is_key else path_parts))
    field = cls.model_fields.get(str(first["loc"][0])) if first["loc"] else None
    allowed = allowed_values(field) if field is not None else ""
    same_path = [problem for problem in problems if problem["loc"][:-1] == path_parts] if is_union else [first]
    kind = _kind_in_words(cls, same_path)
    got = first["input"]
    if kind:
        return f"{path}: {'the key ' if is_key else ''}{shown_value(got)} is not {kind}" + (
            f" ({allowed})" if allowed else ""
        )
    if first["type"].startswith(("greater_than", "less_than")) and allowed:
        return f"{path}: {shown_value(got)} is not {'within ' if '..' in allowed else ''}{allowed}"
    if first["type"] == "literal_error":
        return f"{path}: {shown_value(got)} is not {allowed}"
    message = first["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(got, Mapping) else f"{got!r}: "
    return f"{path}: {shown}{message[:1].lower()}{message[1:]}"


def _kind_in_words(cls: type[Sampler], problems: list[ErrorDetails]) -> str:
    """The types that a parameter takes, ``a whole number or a text``; empty if the type is not the problem."""
    kinds = [_KINDS[problem["type"]] for problem in problems if problem["type"] in _KINDS]
    words = " or ".join(dict.fromkeys(kinds))
    has_example = problems[0]["type"] == "dict_type" and cls.about.example is not None
    return f"{words} such as {cls.about.example}" if words and has_example else words
