"""The cases of `imports/` and `exports/`: what a file becomes, or the error about it.

A case begins with ``=== FORMAT: NAME``. The file follows, then a line ``--- becomes``, and the result.

- `imports/`: a file of another tool, and the YAML of the preset with its comments. ``FORMAT#SECTION`` chooses a
  preset, and ``auto`` leaves the format to recognition.
- `exports/`: a preset, and the text in the format, then the sentences about what it lacks. Of a JSON object, only
  the keys are shown whose values differ from those of a preset without steps, which stands there in full.

``python -m tests.presets.foreign.cases`` writes all results anew; look at the differences.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from logitsmith.presets import ImportedPreset, Preset, PresetError, export_preset, import_text
from logitsmith.presets.yaml_reader import parse_yaml

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*ports/*.txt"))
_BECOMES = "--- becomes\n"
_WITHOUT_STEPS = "chain: [dist]\n"


@dataclass(frozen=True)
class Case:
    title: str
    content: str
    expected: str
    is_export: bool

    @property
    def format(self) -> str:
        return self.title.partition(": ")[0].partition("#")[0]

    def imported(self) -> ImportedPreset:
        section = self.title.partition(": ")[0].partition("#")[2] or None
        return import_text(self.content, "file", None if self.format == "auto" else self.format, section)

    def result(self) -> str:
        try:
            return self._export() if self.is_export else self.imported().yaml_text()
        except PresetError as error:
            return f"{type(error).__name__}: {error}\n"

    def _export(self) -> str:
        exported = export_preset(Preset.from_table(parse_yaml(self.content, "file")), self.format)
        text = exported.text
        if text[0] in "[{" and self.content != _WITHOUT_STEPS:
            plain = _values_without_steps(self.format)
            values = {key: value for key, value in _values(text).items() if plain.get(key) != value}
            text = "".join(f"{json.dumps(key)}: {json.dumps(value)}\n" for key, value in values.items())
        return text + "".join(f"# {sentence}\n" for sentence in exported.unsupported_settings)


@cache
def _values_without_steps(form: str) -> dict[str, Any]:
    return _values(export_preset("dist", form).text)


def _values(text: str) -> dict[str, Any]:
    """Return the values of an exported JSON object by key."""
    value = json.loads(text)
    table: dict[str, Any] = value[0] if isinstance(value, list) else value
    if "operation" not in table:
        return table
    return {field["key"]: field["value"] for field in table["operation"]["fields"]}


def read_cases(path: Path) -> list[Case]:
    _, *parts = re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    cases = []
    for part in parts:
        title, _, rest = part.partition("\n")
        content, _, expected = rest.partition(_BECOMES)
        cases.append(Case(title, content, expected, is_export=path.parent.name == "exports"))
    return cases


def write_cases(path: Path, cases: list[Case]) -> None:
    texts = (f"=== {case.title}\n{case.content}{_BECOMES}{case.result()}" for case in cases)
    path.write_text("".join(texts), encoding="utf-8")


if __name__ == "__main__":
    for file in FILES:
        write_cases(file, read_cases(file))
