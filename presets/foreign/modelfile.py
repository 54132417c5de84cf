"""Ollama's Modelfile: one instruction per line. A quoted value may span several lines.

The grammar follows Ollama's parser. The case of instructions does not matter. ``#`` begins a comment only at the
start of a line. A value is plain, in ``"`` or in three of them. It is kept as it stands. Quotes end only at the
end of a line.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PresetError

INSTRUCTIONS = (
    *("from", "parameter", "system", "template", "message", "adapter", "license", "renderer", "parser"),
    *("requires", "draft"),
)


@dataclass(frozen=True)
class Instruction:
    """An instruction in lower case, its value, and its line; ``parameter`` is the name behind PARAMETER."""

    name: str
    value: str
    line: int
    parameter: str = ""


def parse_modelfile(text: str, origin: str) -> list[Instruction]:
    """Return the instructions; raises ``PresetError`` with the line of an unknown or unfinished one."""
    lines = text.split("\n")
    instructions: list[Instruction] = []
    number = 0
    while number < len(lines):
        line, start = lines[number].lstrip(" \t"), number + 1
        number += 1
        if not line or line.startswith("#"):
            continue
        name, _, value = _cut(line)
        if name.lower() not in INSTRUCTIONS:
            raise PresetError(f"{origin}: line {start}: {name!r} is no instruction of a Modelfile")
        parameter = ""
        if name.lower() == "parameter":
            parameter, _, value = _cut(value)
        while _unquoted(value) is None:
            if number == len(lines):
                raise PresetError(f"{origin}: line {start}: the quotes of {name} are not closed")
            value += "\n" + lines[number]
            number += 1
        unquoted = _unquoted(value) or ""
        if not value.strip():
            raise PresetError(f"{origin}: line {start}: {name} {parameter}".rstrip() + " has no value")
        instructions.append(Instruction(name.lower(), unquoted, start, parameter))
    return instructions


def _cut(line: str) -> tuple[str, str, str]:
    """The first word, the blank behind it, and the rest."""
    end = next((index for index, char in enumerate(line) if char in " \t"), len(line))
    return line[:end], line[end : end + 1], line[end:].lstrip(" \t")


def _unquoted(value: str) -> str | None:
    """The value without its quotes; None if they are not closed yet."""
    text = value.strip()
    for quotes in ('"""', '"'):
        if text.startswith(quotes):
            closed = len(text) >= 2 * len(quotes) and text.endswith(quotes)
            return text[len(quotes) : -len(quotes)] if closed else None
    return text
