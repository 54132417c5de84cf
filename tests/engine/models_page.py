"""The tables of the manual's page on models, which the tests of this room compare with what the engine does."""

import re
from dataclasses import dataclass

from ..docs.markdown import ROOT

_PAGE = (ROOT / "docs" / "models.md").read_text()


def _rows(heading):
    """The cells of the table below a heading, without its first two lines."""
    section = _PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@dataclass(frozen=True)
class Row:
    """Return what the page says of an architecture."""

    runs: str
    batch: str
    lookup: str
    common_beginning: str


ARCHITECTURES = {
    name: Row(*cells) for _, names, *cells in _rows("Architectures") for name in re.findall("`(.+?)`", names)
}
SENTENCES = dict(_rows("Files that are rejected"))
