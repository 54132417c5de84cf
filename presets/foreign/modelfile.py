"""Modelfiles: one instruction per line.

The format follows Ollama's parser. The case of instructions does not matter. ``#`` begins a comment only at the
start of a line. A value is plain, or in ``"`` or three of them; a quoted value may span several lines. A value is
kept as it is written. Quotes end only at the end of a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import PresetError
from .table import first_content_line

INSTRUCTIONS = (
    *("from", "parameter", "system", "template", "message", "adapter", "license", "renderer", "parser"),
    *("requires", "draft"),
)

_ROLES = ("system", "user", "assistant")
_INSTRUCTION_PATTERN = re.compile(rf"[ \t]*(?:{'|'.join(INSTRUCTIONS)})[ \t]+\S", re.IGNORECASE)


def is_modelfile(text: str) -> bool:
    """Return True if a text begins with an instruction, perhaps after comments."""
    return _INSTRUCTION_PATTERN.match(first_content_line(text)) is not None


@dataclass(frozen=True)
class Instruction:
    """An instruction of a Modelfile."""

    name: str  # the instruction, in lower case
    value: str  # the value, without quotes; of a MESSAGE, its text without the role
    line: int  # line number, counted from 1
    parameter: str = ""  # name of the parameter, for PARAMETER; otherwise empty


def parse_modelfile(text: str, origin: str) -> list[Instruction]:
    # A ``PresetError`` names the line of an unknown or incomplete instruction.
    lines = text.split("\n")
    instructions: list[Instruction] = []
    line_index = 0
    while line_index < len(lines):
        line, start_line = lines[line_index].lstrip(" \t"), line_index + 1
        line_index += 1
        if not line or line.startswith("#"):
            continue
        name, value = _split_word(line)
        if name.lower() not in INSTRUCTIONS:
            raise PresetError(f"{origin}: line {start_line}: {name!r} is not an instruction of a Modelfile")
        parameter = ""
        if name.lower() == "parameter":
            parameter, value = _split_word(value)
        elif name.lower() == "message":
            role, value = _split_word(value)
            if role not in _ROLES:
                raise PresetError(
                    f"{origin}: line {start_line}: {role!r} is not a role of a MESSAGE: {', '.join(_ROLES)}"
                )
        while _unquote(value) is None:
            if line_index == len(lines):
                raise PresetError(f"{origin}: line {start_line}: the quotes of {name} are not closed")
            value += "\n" + lines[line_index]
            line_index += 1
        unquoted = _unquote(value) or ""
        if not value.strip():
            raise PresetError(f"{origin}: line {start_line}: {name} {parameter}".rstrip() + " has no value")
        instructions.append(Instruction(name.lower(), unquoted, start_line, parameter))
    return instructions


def _split_word(line: str) -> tuple[str, str]:
    """Return the first word of a line, and the text after it."""
    end = next((index for index, char in enumerate(line) if char in " \t"), len(line))
    return line[:end], line[end:].lstrip(" \t")


def _unquote(value: str) -> str | None:
    """Return the value without quotes; None if the quotes are not closed yet."""
    text = value.strip()
    for quotes in ('"""', '"'):
        if text.startswith(quotes):
            is_closed = len(text) >= 2 * len(quotes) and text.endswith(quotes)
            return text[len(quotes) : -len(quotes)] if is_closed else None
    return text
