"""Small pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a ``|`` in a cell is escaped, and a line break in a cell becomes a space."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def code(text: str) -> str:
    """Text as inline code; backticks in it are fenced by longer ones."""
    if not text:
        return ""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(text: str, language: str = "") -> str:
    """Text as a fenced block."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def plain(text: str) -> str:
    """Text in which no character is markup."""
    return re.sub(r"([\\`*_>\[\]#])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def prose(docstring: str) -> str:
    """A docstring as Markdown: double backticks become single ones, everything else between them is plain."""
    pieces = re.split(r"(``.+?``|`.+?`)", docstring, flags=re.DOTALL)
    return "".join(code(piece.strip("`")) if piece.startswith("`") else plain(piece) for piece in pieces)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
