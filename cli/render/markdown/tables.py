"""A table of Markdown, as rich prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from .inline import styled_text
from .leaves import inline_tokens

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import JustifyMethod

_JUSTIFY: dict[str, JustifyMethod] = {
    "text-align:left": "left",
    "text-align:center": "center",
    "text-align:right": "right",
}


def table(tokens: Sequence[Token]) -> Table:
    """The table of these tokens: cells are wrapped where it is wider than the terminal."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    row = []
    for number, token in enumerate(tokens):
        if token.type in ("th_open", "td_open"):
            cell = styled_text(inline_tokens(tokens[number + 1].content))
            if token.type == "th_open":
                justify = _JUSTIFY.get(str(token.attrGet("style")), "left")
                shown.add_column(cell, justify=justify, overflow="fold")
            else:
                row.append(cell)
        elif token.type == "tr_close" and row:
            shown.add_row(*row)
            row = []
    return shown
