"""Keys and values of another tool's file; each error message names the key and its place in the file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from ...common.strict_json import json_problem, parse_strict_json
from ...common.text import short_repr
from ..errors import PresetError
from ..yaml_reader import BoundedLoader, parse_yaml, read_text
from . import lists

_Value = TypeVar("_Value")

_TRUE_WORDS = ("true", "yes", "on", "1", "enabled")
_FALSE_WORDS = ("false", "no", "off", "0", "disabled")


class ForeignTable:
    # null and an empty string count as absent. Numbers may be written as strings, and integers as ``256.0``.
    # Methods raise ``PresetError`` for a value of another type, with the file and the key as the file writes it. A
    # default that a method returns is remembered for `used_default`.

    def __init__(
        self,
        values: Mapping[Any, Any],
        origin: str,
        spellings: Mapping[str, tuple[str, ...]] | None = None,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        # ``spellings``: for a key, the names that the file may use for it; the first name that has a value counts.
        # A key without an entry has one name, the key itself. ``lines``: the line number of each key, counted from
        # 1.
        self.values = {str(key): value for key, value in values.items()}
        self.origin = origin  # the path of the file, with which each error message begins; empty if it is unknown
        self._spellings = spellings or {}
        self._line_numbers = lines or {}
        self._defaults: dict[str, Any] = {}

    def key_in_file(self, key: str) -> str:
        names = self._spellings.get(key, (key,))
        return next((name for name in names if self._has_value(name)), names[0])

    def is_set(self, key: str) -> bool:
        return self._has_value(self.key_in_file(key))

    def used_default(self, key: str) -> Any:
        """Return the default that replaced an absent key; None if the file sets the key or no default was used."""
        return None if self.is_set(key) else self._defaults.get(key)

    def raw_value(self, key: str) -> Any:
        return self.values.get(self.key_in_file(key)) if self.is_set(key) else None

    def value_error(self, key: str, allowed_values: str) -> PresetError:
        # ``allowed_values``: a noun phrase such as ``a list of numbers``
        value = short_repr(self.values.get(self.key_in_file(key)))
        return PresetError(f"{value} is not {allowed_values}", origin=self.origin_of(key))

    def origin_of(self, key: str) -> str:
        """Return the start of a message about a key: the file and the line, if known, and the key in the file."""
        name = self.key_in_file(key)
        line = f"line {self._line_numbers[name]}: " if name in self._line_numbers else ""
        return f"{self.origin}: {line}{name}" if self.origin else f"{line}{name}"

    @overload
    def number(self, key: str, default: float) -> float: ...
    @overload
    def number(self, key: str, default: None = None) -> float | None: ...
    def number(self, key: str, default: float | None = None) -> float | None:
        """Return the value as a finite number; the default if the key is absent."""
        if not self.is_set(key):
            return self._use_default(key, default)
        value = self.raw_value(key)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self.value_error(key, "a number")
        if isinstance(value, str) and "_" in value:  # only Python reads 1_0 as 10
            raise self.value_error(key, "a number")
        try:
            number = float(value)
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
        if not self.is_set(key):
            return self._use_default(key, default)
        value = self.raw_value(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        number = self.number(key)
        if number is None or not number.is_integer():
            raise self.value_error(key, "an integer")
        return int(number)

    def boolean(self, key: str, default: bool) -> bool:
        """Return the value as a boolean; 0, 1, yes, no, on, off, enabled and disabled are allowed, too."""
        if not self.is_set(key):
            return default
        word = str(self.raw_value(key)).strip().lower().removesuffix(".0")  # 1.0 means 1
        if word in _TRUE_WORDS:
            return True
        if word in _FALSE_WORDS:
            return False
        raise self.value_error(key, "true or false")

    def string(self, key: str) -> str | None:
        """Return the value as a string; None if the key is absent or the string is empty."""
        if not self.is_set(key):
            return None
        value = self.raw_value(key)
        if not isinstance(value, str):
            raise self.value_error(key, "a string")
        return self._check_encodable(key, value)

    def strings(self, key: str) -> list[str]:
        """Return the value as a list of strings, without empty ones; a single string becomes a list."""
        value = self.raw_value(key)
        if value is None:
            return []
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in items):
            raise self.value_error(key, "a list of strings")
        return [self._check_encodable(key, item) for item in items if item]

    def read(self, key: str, reader: Callable[[Any], _Value]) -> _Value:
        """Return what a reader of `lists` makes of the value, which is set."""
        try:
            return reader(self.raw_value(key))
        except ValueError as error:
            raise PresetError(str(error), origin=self.origin_of(key)) from None

    def unknown_keys(self, known_keys: Iterable[str]) -> list[str]:
        """Return the keys of the file that are neither known nor a spelling of a key, in the file's order."""
        spellings = {name for names in self._spellings.values() for name in names}
        allowed = {*known_keys, *spellings}
        return [key for key, value in self.values.items() if key not in allowed and value is not None]

    def _has_value(self, name: str) -> bool:
        return self.values.get(name) not in (None, "")

    def _use_default(self, key: str, default: Any) -> Any:
        self._defaults[key] = default
        return default

    def _check_encodable(self, key: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.value_error(key, "a string that UTF-8 can encode") from None
        return text


def read_lines(path: Path, origin: str) -> str:
    """Return the text of a file, with every newline as ``\\n``; raise ``PresetError`` if the file is not text."""
    return unify_newlines(read_text(path, origin))


def unify_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str, origin: str) -> Any:
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
    """Return the value of a YAML text by the rules of YAML 1.1, which the other tools use: ``no`` is false."""
    try:
        return parse_yaml(text, origin, BoundedLoader)
    except PresetError:
        raise
    except ValueError as error:  # such as the date 2024-99-99
        raise PresetError(f"{origin}: {error}") from None
    except (LookupError, AttributeError, TypeError, ArithmeticError):  # PyYAML raises these for `!!int ""`
        raise PresetError(f"{origin}: a value does not match its YAML tag") from None


def first_content_line(text: str) -> str:
    """Return the first line with text that is not a comment; empty if there is no such line."""
    for line in text.split("\n"):
        is_comment = line.lstrip().startswith(("#", ";"))
        if line.strip() and not is_comment:
            return line
    return ""


# penalty window that includes all tokens, for tools without a special value: longer than any context
UNLIMITED_WINDOW_TOKENS = 1_000_000


def read_window(table: ForeignTable, key: str, default: int) -> int:
    """Return a penalty window in tokens; -1, all tokens, for a window that is longer than any text."""
    window = table.integer(key, default)
    return -1 if window >= UNLIMITED_WINDOW_TOKENS else window


def read_breakers(table: ForeignTable, key: str, default: Sequence[str]) -> list[str]:
    """Return DRY's sequence breakers, given as a list, a JSON array in a string, or quoted strings with commas."""
    if table.raw_value(key) is None:
        return list(default)
    return table.read(key, lists.read_strings)
