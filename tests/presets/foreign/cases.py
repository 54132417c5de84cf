"""The cases of `imports/`: a file of another tool, and the preset that it becomes or the error about it.

A case begins with ``=== FORMAT: NAME``, where ``FORMAT#SECTION`` chooses a preset, and ``auto`` leaves the format
to recognition. The file follows, then a line ``--- becomes``, and the YAML of the preset with its comments.
``python -m tests.presets.foreign.cases`` writes all results anew; look at the differences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from logitsmith.presets import ImportedPreset, PresetError, import_text

FILES = sorted((Path(__file__).parent / "imports").glob("*.txt"))
_BECOMES = "--- becomes\n"


@dataclass(frozen=True)
class Case:
    title: str
    content: str
    expected: str

    def imported(self) -> ImportedPreset:
        form, _, section = self.title.partition(": ")[0].partition("#")
        return import_text(self.content, "file", None if form == "auto" else form, section or None)

    def result(self) -> str:
        """Return what an import gives: the YAML of the preset, or the message of the error."""
        try:
            return self.imported().yaml_text()
        except PresetError as error:
            return f"{type(error).__name__}: {error}\n"


def read_cases(path: Path) -> list[Case]:
    _, *parts = re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    cases = []
    for part in parts:
        title, _, rest = part.partition("\n")
        content, _, expected = rest.partition(_BECOMES)
        cases.append(Case(title, content, expected))
    return cases


def write_cases(path: Path, cases: list[Case]) -> None:
    texts = (f"=== {case.title}\n{case.content}{_BECOMES}{case.result()}" for case in cases)
    path.write_text("".join(texts), encoding="utf-8")


if __name__ == "__main__":
    for file in FILES:
        write_cases(file, read_cases(file))
