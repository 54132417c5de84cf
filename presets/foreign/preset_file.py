"""A file that may be a preset of another tool."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...common.text import unknown_name
from ..errors import PresetError
from .other_keys import other_keys
from .table import first_content_line, parse_json, parse_yaml_1_1

# A line that may begin a table in YAML. Other texts, such as long Modelfiles, are not read as YAML, which is slow.
_YAML_LINE_PATTERN = re.compile(r"\s*(?:---|[%?!&]|.*:(?:\s|$))")

# keys that identify a preset, and do not affect sampling
LABEL_KEYS = frozenset(other_keys("labels"))


class MissingSectionError(PresetError):
    """The file holds several presets, and no section was chosen.

    Attributes:
        origin: the path of the file, as messages name it.
        names: names of the presets in the file.
    """

    def __init__(self, origin: str, names: Sequence[str]) -> None:
        listed = ", ".join(names)
        super().__init__(
            f"the file holds {len(names)} presets", origin=origin, advice=f"choose a section: {listed}"
        )
        self.names = tuple(names)


@dataclass(frozen=True)
class PresetFile:
    """A file that may be a preset of another tool. Every method raises ``PresetError`` that names the file.

    Attributes:
        text: the content, with every newline as ``\\n``.
        origin: the path of the file, with which each error message begins.
        section: name of the chosen preset, if the file holds several; None if no name was given.
    """

    text: str
    origin: str
    section: str | None = None

    @cached_property
    def first_line(self) -> str:
        """The first line that is no comment; empty if there is none."""
        return first_content_line(self.text)

    @cached_property
    def json_objects(self) -> Sequence[Mapping[str, Any]]:
        """The objects of a JSON text, which may be a list of them; none for another text."""
        try:
            value = self.json() if self.first_line.lstrip()[:1] in ("{", "[") else []
        except PresetError:
            return []
        entries = value if isinstance(value, list) else [value]
        return entries if all(isinstance(entry, Mapping) for entry in entries) else []

    @cached_property
    def json_object(self) -> Mapping[str, Any]:
        """The object of a JSON text; an empty one for another text."""
        return self.json_objects[0] if self.json_objects and self.first_line.lstrip()[0] == "{" else {}

    @cached_property
    def yaml_object(self) -> Mapping[Any, Any]:
        """The table of a YAML text that is not JSON; an empty one for another text."""
        if not _YAML_LINE_PATTERN.match(self.first_line) or self.first_line.lstrip()[0] in "{[":
            return {}
        try:
            return self.yaml_table()
        except PresetError:
            return {}

    def json(self) -> Any:
        """Return the value of a JSON text."""
        return parse_json(self.text, self.origin)

    def json_table(self) -> Mapping[Any, Any]:
        """Return the keys and values of a JSON object."""
        return self.table(self.json())

    def yaml_table(self) -> Mapping[Any, Any]:
        """Return the keys and values of a YAML text by the rules of YAML 1.1; of an empty text, none."""
        value = parse_yaml_1_1(self.text, self.origin)
        return self.table({} if value is None else value)

    def table(self, value: Any) -> Mapping[Any, Any]:
        """Return a value that must be a table of keys and values."""
        if not isinstance(value, Mapping):
            raise PresetError(f"{self.origin}: a table of keys and values is needed")
        return value

    def choose(self, names: Sequence[str]) -> int:
        """Return the index of the chosen preset, which may be the only one.

        Raises ``MissingSectionError`` if the file holds several and none is chosen.
        """
        if self.section is None:
            if len(names) == 1:
                return 0
            raise MissingSectionError(self.origin, names)
        if self.section in names:
            return list(names).index(self.section)
        raise PresetError(f"{self.origin}: {unknown_name('section', self.section, names)}")

    def reject_section(self) -> None:
        """Raise ``PresetError`` if a preset was chosen, since the file holds one only."""
        if self.section is not None:
            raise PresetError(f"{self.origin}: the file holds one preset only, and no section {self.section!r}")


def known_share(keys: Collection[str], known_keys: Container[str]) -> float:
    """Return the share of the keys that are known; 0 without keys. Keys that name a preset do not count."""
    settings = [key for key in keys if key not in LABEL_KEYS]
    return sum(key in known_keys for key in settings) / len(settings) if settings else 0.0
