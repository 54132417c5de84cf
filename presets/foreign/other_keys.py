"""The table of keys of other tools that set nothing in a preset: other_keys.txt."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_suffix(".txt")


def other_keys(section: str) -> tuple[str, ...]:
    """Return the keys of a section, such as that of a tool."""
    return _sections()[section]


@cache
def _sections() -> dict[str, tuple[str, ...]]:
    _, *parts = re.split(r"^\[(.+)\]", _FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    names, texts = parts[::2], parts[1::2]
    return {name: tuple(shlex.split(text, comments=True)) for name, text in zip(names, texts, strict=True)}
