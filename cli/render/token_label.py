"""A token in a few columns of a terminal."""

from __future__ import annotations

import sys


def token_label(data: bytes, columns: int = sys.maxsize) -> str:
    """A token in quotes, at most so many columns wide; what is cut off is replaced by an ellipsis.

    Bytes that are not UTF-8, as a part of a character, are escapes without quotes: ``\\xe6\\x97``.
    """
    from .text import visible

    try:
        label = visible(repr(data.decode()))
    except UnicodeDecodeError:
        return shortened(repr(data)[2:-1], columns)
    return label if display_width(label) <= columns else shortened(label[:-1], columns - 1) + label[-1]


def shortened(text: str, columns: int) -> str:
    """The text, cut with an ellipsis where it is wider than so many columns."""
    if display_width(text) <= columns:
        return text
    kept = ""
    for character in text:
        if display_width(kept + character) > columns - 1:
            break
        kept += character
    return f"{kept}…"


def display_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    from rich.cells import cell_len

    return cell_len(text)
