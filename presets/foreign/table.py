"""The keys and values of a foreign file, read by the names that the rules use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, overload

from ...common.text import shorten
from ..errors import PresetError

_TRUE = ("true", "yes", "on", "1", "enabled")
_FALSE = ("false", "no", "off", "0", "disabled")


class ForeignTable:
    """A table of keys and values.

    ``spellings`` lists the names that the file may use for a key; the first that is set counts. ``lines`` are
    those of the file's own names. null and an empty text count as absent. Numbers may be texts, and whole
    numbers may be written as ``256.0``. Every method raises ``PresetError`` with the file and the key as the
    file spells it. Defaults that are asked for are remembered, so that `default_of` tells them.
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

    def spelled(self, key: str) -> str:
        """The key as the file writes it."""
        names = self._spellings.get(key, (key,))
        return next((name for name in names if self._is_set(name)), names[0])

    def is_given(self, key: str) -> bool:
        """True if the file sets the key."""
        return self._is_set(self.spelled(key))

    def default_of(self, key: str) -> Any:
        """The default that was used for a key that the file does not set; None if there was none."""
        return None if self.is_given(key) else self._defaults.get(key)

    def raw(self, key: str) -> Any:
        """The value as it stands; None if it is absent."""
        return self.values.get(self.spelled(key)) if self.is_given(key) else None

    def fault(self, key: str, needed: str) -> PresetError:
        """The error for a value of another kind than ``needed``."""
        value = shorten(self.values.get(self.spelled(key)))
        return PresetError(f"{self.origin_of(key)}: {value} is not {needed}")

    def origin_of(self, key: str) -> str:
        """What a complaint about a key begins with: the file and the line, if they are known, and the key."""
        spelled = self.spelled(key)
        line = f"line {self._lines[spelled]}: " if spelled in self._lines else ""
        return f"{self.origin}: {line}{spelled}" if self.origin else f"{line}{spelled}"

    @overload
    def number(self, key: str, default: float) -> float: ...
    @overload
    def number(self, key: str, default: None = None) -> float | None: ...
    def number(self, key: str, default: float | None = None) -> float | None:
        """The value as a finite number."""
        if not self.is_given(key):
            return self._use_default(key, default)
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self.fault(key, "a number")
        try:
            number = float(
                "" if isinstance(value, str) and "_" in value else value
            )  # 1_0 is a number in Python only
        except (ValueError, OverflowError):
            raise self.fault(key, "a number") from None
        if not math.isfinite(number):
            raise self.fault(key, "a finite number")
        return number

    @overload
    def whole_number(self, key: str, default: int) -> int: ...
    @overload
    def whole_number(self, key: str, default: None = None) -> int | None: ...
    def whole_number(self, key: str, default: int | None = None) -> int | None:
        """The value as a whole number."""
        if not self.is_given(key):
            return self._use_default(key, default)
        value = self.raw(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        number = self.number(key)
        if number is None or not number.is_integer():
            raise self.fault(key, "a whole number")
        return int(number)

    def flag(self, key: str, default: bool) -> bool:
        """The value as true or false; words and 0 and 1 count too."""
        if not self.is_given(key):
            return default
        word = str(self.raw(key)).strip().lower()
        if word.removesuffix(".0") not in (*_TRUE, *_FALSE):
            raise self.fault(key, "true or false")
        return word.removesuffix(".0") in _TRUE

    def text(self, key: str) -> str | None:
        """The value as a text; None if it is absent or empty."""
        if not self.is_given(key):
            return None
        value = self.raw(key)
        if not isinstance(value, str):
            raise self.fault(key, "a text")
        return self._encodable(key, value)

    def texts(self, key: str) -> list[str]:
        """The value as a list of texts, empty ones left out; one text counts as a list of one."""
        value = self.raw(key)
        items = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in items):
            raise self.fault(key, "a list of texts")
        return [self._encodable(key, item) for item in items if item]

    def unknown(self, known: Iterable[str]) -> list[str]:
        """The keys that are set and not among the known ones, in the file's order."""
        spellings = {name for names in self._spellings.values() for name in names}
        allowed = {*known, *spellings}
        return [key for key, value in self.values.items() if key not in allowed and value is not None]

    def _is_set(self, name: str) -> bool:
        return self.values.get(name) not in (None, "")

    def _use_default(self, key: str, default: Any) -> Any:
        self._defaults[key] = default
        return default

    def _encodable(self, key: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.fault(key, "a text that UTF-8 can hold") from None
        return text
