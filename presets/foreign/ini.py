"""llama.cpp's INI files, which differ from the usual ones (common/preset.cpp).

A line is ``[section]``, ``key = value``, a comment, or a blank line. Only comments and blank lines may be
indented. ``;`` and ``#`` begin a comment anywhere, even inside a value and without a space before them. If a
section occurs twice, only the part after its last header counts. Keys before the first header belong to the
section ``default``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import PresetError

# a line that begins an INI file: a header, or a key with a value
INI_LINE_PATTERN = re.compile(r"[ \t]*\[[^\]=,{}\"]*\][ \t]*([;#].*)?|[A-Za-z_][\w.-]*[ \t]*=.*")
DEFAULT_SECTION = "default"  # name of the section that contains the keys before the first header

_HEADER_PATTERN = re.compile(r"\[[ \t]*([^\]]+)\][ \t]*([;#].*)?")
_ENTRY_PATTERN = re.compile(r"([a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(.*)")
_COMMENT_PATTERN = re.compile(r"[ \t]*[;#]")


@dataclass
class IniSection:
    """The entries of a section of an INI file."""

    values: dict[str, str] = field(default_factory=dict)
    line_numbers: dict[str, int] = field(default_factory=dict)  # line number of each key, counted from 1
    # for each key: the text after the value that became a comment by a ``;`` or ``#``
    cut_off_text_by_key: dict[str, str] = field(default_factory=dict)


def parse_ini(text: str, origin: str) -> dict[str, IniSection]:
    """Return the sections by name, in the file's order."""
    sections: dict[str, IniSection] = {}
    name = DEFAULT_SECTION
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip(" \t") or _COMMENT_PATTERN.match(line):
            continue
        header, entry = _HEADER_PATTERN.fullmatch(line), _ENTRY_PATTERN.fullmatch(line)
        if header:
            name = header[1].strip()
            sections[name] = IniSection()
        elif entry:
            section = sections.setdefault(name, IniSection())
            key, value = entry[1], entry[2]
            comment = _COMMENT_PATTERN.search(value)
            section.values[key] = (value[: comment.start()] if comment else value).rstrip(" \t")
            section.line_numbers[key] = number
            section.cut_off_text_by_key.pop(key, None)
            if comment and comment[0] in ";#" and comment.start() > 0:
                section.cut_off_text_by_key[key] = value[comment.start() :]
        else:
            raise PresetError(f"{origin}: line {number}: {line[:60]!r} is not [section] or key = value")
    return sections


def ini_keys(text: str) -> list[str]:
    """Return the keys of all sections, also of a file that has other lines."""
    entries = map(_ENTRY_PATTERN.fullmatch, text.split("\n"))
    return list(dict.fromkeys(entry[1] for entry in entries if entry is not None))
