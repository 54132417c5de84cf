"""Models that are split over several files: ``NAME-00001-of-00003.gguf`` and so on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf", re.IGNORECASE | re.DOTALL)
"""llama.cpp's SPLIT_PREFIX format; its tools write all numbers with five digits."""


class PartName(NamedTuple):
    """The name of one part. ``stem``: what all parts begin with; ``number`` counts from 1."""

    stem: str
    number: int
    total: int


def parse_part_name(name: str) -> PartName | None:
    """Return what the name of a part says; None if the name is not that of a part."""
    match = _PART.fullmatch(name)
    if match is None:
        return None
    number, total = int(match["number"]), int(match["total"])
    return PartName(match["stem"], number, total) if 1 <= number <= total else None


def part_paths(path: Path) -> list[Path]:
    """Return the paths of all parts of the model that a file belongs to, in order; only ``path`` if it is no part.

    Whether the files exist is not checked.
    """
    part = parse_part_name(path.name)
    if part is None:
        return [path]
    suffix = path.name[-len(".gguf") :]
    names = (f"{part.stem}-{number:05}-of-{part.total:05}{suffix}" for number in range(1, part.total + 1))
    return [path.with_name(name) for name in names]


def model_bytes(path: Path) -> int:
    """Return the size of the model that a file belongs to: of all its parts that exist."""
    return sum(part.stat().st_size for part in part_paths(path) if part.is_file())


def first_part(path: Path) -> Path:
    """Return the first part of the model that a file belongs to, if that part exists; else ``path``."""
    part = parse_part_name(path.name)
    if part is None or part.number == 1:
        return path
    first = part_paths(path)[0]
    return first if first.is_file() else path
