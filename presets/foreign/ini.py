"""llama.cpp's INI files (common/preset.cpp), which no usual INI reader reads the same way.

A line is ``[section]``, ``key = value``, a comment or blank. Only comments and blank lines may be indented.
``;`` and ``#`` begin a comment anywhere, also inside a value, with no blank before them. A section that stands
twice counts from its last header on. Keys before a header are the section ``default``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import PresetError

DEFAULT_SECTION = "default"

_HEADER = re.compile(r"\[[ \t]*([^\]]+)\][ \t]*([;#].*)?")
_ENTRY = re.compile(r"([a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(.*)")
_COMMENT = re.compile(r"[ \t]*[;#]")


@dataclass
class IniSection:
    """The entries of a section, the line of each, and the part of a value that a comment sign cut off."""

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    cut: dict[str, str] = field(default_factory=dict)


def parse_ini(text: str, origin: str) -> dict[str, IniSection]:
    """Return the sections by name, in their order; raises ``PresetError`` with the line that is not INI."""
    sections: dict[str, IniSection] = {}
    name = DEFAULT_SECTION
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip(" \t") or _COMMENT.match(line):
            continue
        header, entry = _HEADER.fullmatch(line), _ENTRY.fullmatch(line)
        if header:
            name = header[1].strip()
            sections[name] = IniSection()
        elif entry:
            section = sections.setdefault(name, IniSection())
            key, value = entry[1], entry[2]
            comment = _COMMENT.search(value)
            section.values[key] = (value[: comment.start()] if comment else value).rstrip(" \t")
            section.lines[key] = number
            section.cut.pop(key, None)
            if comment and comment[0] in ";#" and comment.start() > 0:
                section.cut[key] = value[comment.start() :]
        else:
            raise PresetError(f"{origin}: line {number}: {line[:60]!r} is not [section] or key = value")
    return sections
