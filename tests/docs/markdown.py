"""Code blocks and commands in Markdown files, for the tests of the manual."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MANUAL = sorted(path for path in (ROOT / "docs").rglob("*.md"))
FILES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "examples").rglob("*.md")), *MANUAL]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(text, language):
    """The fenced blocks of a language."""
    return [body for name, body in _FENCE.findall(text) if name == language]


def without_blocks(text):
    return _FENCE.sub("", text)


def console_commands(text):
    """The commands of console blocks: lines that begin with $, with their continuation lines."""
    for block in blocks(text, "console"):
        lines = iter(block.splitlines())
        for line in lines:
            command = line
            while command.rstrip().endswith(("\\", "|")):
                command = command.rstrip().removesuffix("\\") + next(lines)
            if command.startswith("$ "):
                yield command.removeprefix("$ ")


def name_of(path):
    return path.relative_to(ROOT).as_posix()
