"""A file that may be a preset of another tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...common.text import unknown_name
from ..errors import PresetError
from .table import parse_json, parse_yaml_1_1


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
