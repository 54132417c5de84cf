"""Keys and values of another tool's file, read by the names that the rules use; each fault names its key and
place.

llama.cpp's INI files (common/preset.cpp) are read as no usual INI reader reads them. A line is ``[section]``,
``key = value``, a comment or blank. Only comments and blank lines may be indented. ``;`` and ``#`` begin a
comment anywhere, also inside a value, with no space before them. A section that occurs twice counts from its
last header on. Keys before a header are the section ``default``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from ...common.strict_json import json_problem, parse_strict_json
from ...common.text import short_repr
from ..errors import PresetError
from ..yaml_reader import BoundedLoader, parse_yaml, read_text

_TRUE = ("true", "yes", "on", "1", "enabled")
_FALSE = ("false", "no", "off", "0", "disabled")


class ForeignTable:
    """A table of keys and values.

    ``spellings`` lists the names that the file may use for a key; the first that is set counts. ``lines`` are
    those of the file's own names. null and an empty text count as absent. Numbers may be texts, and whole
    numbers may be written as ``256.0``. Every method raises ``PresetError`` with the file and the key as the
    file spells it. Defaults that are asked for are remembered, so that `used_default` tells them.
    """

    def __init__(
        self,
        values: Mapping[Any, Any],
        origin: str,
        spellings: Mapping[str, tuple[str, ...]] | None = None,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        self.values = {str(key): value for key, value in values.items()}
        self.origin = origin
        self._spellings = spellings or {}
        self._lines = lines or {}
        self._defaults: dict[str, Any] = {}

    def key_in_file(self, key: str) -> str:
        """The key as the file writes it."""
        names = self._spellings.get(key, (key,))
        return next((name for name in names if self._has_value(name)), names[0])

    def is_set(self, key: str) -> bool:
        """True if the file sets the key."""
        return self._has_value(self.key_in_file(key))

    def used_default(self, key: str) -> Any:
        """The default that was used for a key that the file does not set; None if there was none."""
        return None if self.is_set(key) else self._defaults.get(key)

    def raw_value(self, key: str) -> Any:
        """The value as it stands; None if it is absent."""
        return self.values.get(self.key_in_file(key)) if self.is_set(key) else None

    def value_error(self, key: str, needed: str) -> PresetError:
        """The error for a value of another kind than ``needed``."""
        value = short_repr(self.values.get(self.key_in_file(key)))
        return PresetError(f"{self.origin_of(key)}: {value} is not {needed}")

    def origin_of(self, key: str) -> str:
        """What a complaint about a key begins with: the file and the line, if they are known, and the key."""
        spelled = self.key_in_file(key)
        line = f"line {self._lines[spelled]}: " if spelled in self._lines else ""
        return f"{self.origin}: {line}{spelled}" if self.origin else f"{line}{spelled}"

    @overload
    def number(self, key: str, default: float) -> float: ...
    @overload
    def number(self, key: str, default: None = None) -> float | None: ...
    def number(self, key: str, default: float | None = None) -> float | None:
        """The value as a finite number."""
        if not self.is_set(key):
            return self._use_default(key, default)
        value = self.raw_value(key)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self.value_error(key, "a number")
        try:
            number = float(
                "" if isinstance(value, str) and "_" in value else value
            )  # 1_0 is a number in Python only
        except (ValueError, OverflowError):
            raise self.value_error(key, "a number") from None
        if not math.isfinite(number):
            raise self.value_error(key, "a finite number")
        return number

    @overload
    def integer(self, key: str, default: int) -> int: ...
    @overload
    def integer(self, key: str, default: None = None) -> int | None: ...
    def integer(self, key: str, default: int | None = None) -> int | None:
        """The value as a whole number."""
        if not self.is_set(key):
            return self._use_default(key, default)
        value = self.raw_value(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        number = self.number(key)
        if number is None or not number.is_integer():
            raise self.value_error(key, "a whole number")
        return int(number)

    def boolean(self, key: str, default: bool) -> bool:
        """The value as true or false; words and 0 and 1 count too."""
        if not self.is_set(key):
            return default
        word = str(self.raw_value(key)).strip().lower()
        if word.removesuffix(".0") not in (*_TRUE, *_FALSE):
            raise self.value_error(key, "true or false")
        return word.removesuffix(".0") in _TRUE

    def string(self, key: str) -> str | None:
        """The value as a text; None if it is absent or empty."""
        if not self.is_set(key):
            return None
        value = self.raw_value(key)
        if not isinstance(value, str):
            raise self.value_error(key, "a text")
        return self._encodable(key, value)

    def strings(self, key: str) -> list[str]:
        """The value as a list of texts, empty ones left out; one text counts as a list of one."""
        value = self.raw_value(key)
        items = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in items):
            raise self.value_error(key, "a list of texts")
        return [self._encodable(key, item) for item in items if item]

    def unknown_keys(self, known: Iterable[str]) -> list[str]:
        """The keys that are set and not among the known ones, in the file's order."""
        spellings = {name for names in self._spellings.values() for name in names}
        allowed = {*known, *spellings}
        return [key for key, value in self.values.items() if key not in allowed and value is not None]

    def _has_value(self, name: str) -> bool:
        return self.values.get(name) not in (None, "")

    def _use_default(self, key: str, default: Any) -> Any:
        self._defaults[key] = default
        return default

    def _encodable(self, key: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.value_error(key, "a text that UTF-8 can hold") from None
        return text


def read_lines(path: Path, origin: str) -> str:
    """Return the text of a file, its line ends as ``\\n``; raises ``PresetError`` for a file that is no text."""
    return unify_newlines(read_text(path, origin))


def unify_newlines(text: str) -> str:
    """Return the text with ``\n`` for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str, origin: str) -> Any:
    """Return the value of a JSON text; raises ``PresetError`` with line and column if it is not JSON."""
    try:
        return parse_strict_json(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise PresetError(f"{origin}: {place}: broken JSON: {json_problem(error)}") from None
    except RecursionError:
        raise PresetError(f"{origin}: it is nested too deeply") from None
    except ValueError as error:
        raise PresetError(f"{origin}: broken JSON: {error}") from None


def parse_yaml_1_1(text: str, origin: str) -> Any:
    """Return the value of a YAML text by the rules of YAML 1.1, which these tools read: ``no`` is false.

    Raises ``PresetError`` with line and column if it is not YAML, or stands for too much.
    """
    try:
        return parse_yaml(text, origin, BoundedLoader)
    except PresetError:
        raise
    except ValueError as error:  # a date such as 2024-99-99
        raise PresetError(f"{origin}: {error}") from None
    except (
        LookupError,
        AttributeError,
        TypeError,
        ArithmeticError,
    ):  # what PyYAML raises for `!!int ""` and the like
        raise PresetError(f"{origin}: a value does not fit its tag") from None


DEFAULT_SECTION = "default"

_HEADER = re.compile(r"\[[ \t]*([^\]]+)\][ \t]*([;#].*)?")
_ENTRY = re.compile(r"([a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(.*)")
_COMMENT = re.compile(r"[ \t]*[;#]")


@dataclass
class IniSection:
    """The entries of a section, the line of each, and the part of a value that a comment sign cut off."""

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    cut_off_text: dict[str, str] = field(default_factory=dict)


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
            section.cut_off_text.pop(key, None)
            if comment and comment[0] in ";#" and comment.start() > 0:
                section.cut_off_text[key] = value[comment.start() :]
        else:
            raise PresetError(f"{origin}: line {number}: {line[:60]!r} is not [section] or key = value")
    return sections


BREAKERS = ["\n", ":", '"', "*"]
"""The default of all tools."""

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
"""A text in double or single quotes."""


def read_breakers(table: ForeignTable, key: str, default: Sequence[str]) -> list[str]:
    """DRY's sequence breakers: a list, a JSON array as text, or quoted texts separated by commas."""
    value: Any = table.raw_value(key)
    if value is None:
        return list(default)
    if isinstance(value, str):
        text = value.strip()
        try:
            # Not strict: a YAML text in double quotes holds a line break itself, not a backslash and n.
            value = json.loads(text if text.startswith("[") else f"[{text}]", strict=False)
        except (ValueError, RecursionError):
            value = _loose_texts(text)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise table.value_error(key, "a list of texts, or quoted texts separated by commas")
    return [part for part in value if part]


def _loose_texts(text: str) -> list[str]:
    """Texts between commas that are no JSON: with or without quotes, and brackets around all."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    parts: list[str] = re.findall(rf"\s*(?:{_QUOTED})|[^,]+", text)
    return [_unquoted(part.strip()) for part in parts if part.strip()]


def _unquoted(part: str) -> str:
    if re.fullmatch(_QUOTED, part) is None:
        return part
    try:
        return str(json.loads(f'"{part[1:-1]}"' if part[0] == "'" else part, strict=False))
    except ValueError:  # an escape that JSON does not know, or a double quote in single ones
        return part[1:-1]
