"""A Markdown text that grows, and of which each part is printed once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from .inline import CODE, settled_length, styled_text
from .leaves import Leaf, inline_tokens, leaves
from .word_writer import WordWriter

if TYPE_CHECKING:
    from rich.console import Console

_FAINT = Style(dim=True)
_HEADING = Style(bold=True)
_TOP_HEADING = Style(bold=True, underline=True)
_UNDECIDED_LINE = re.compile(r"[\s>]*(?:[-*+_#=~`|:.)\d\s]*|(?:```|~~~).*|[-*+>.)\d\s]*\|.*)")
"""The beginning of a line that may become a mark of a block, the first line of code, or that of a table."""
_ENDS_WORD = re.compile(r"[\s\u1100-\U0010ffff]")
"""Blanks, and wide characters, between which a line may be broken. Other text cannot end a word."""
_MARKS_OF_BLANK_LINES = re.compile(r"[\s>]*")


class MarkdownStream:
    """Prints a Markdown text while it grows.

    Words of paragraphs and lines of code are printed as soon as it is certain what they are; tables when they are
    complete. What is printed stays as it is.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._writer = WordWriter(console)
        self._tail = ""
        """The source from the last block of the top level on, and a blank line before it."""
        self._finished = 0
        """How many leaves of it are printed."""
        self._shown = 0
        """How many characters of the next leaf are printed, of code how many lines."""
        self._is_begun = False
        """True if the beginning of the next leaf is printed."""
        self._is_first = True

    def feed(self, text: str) -> None:
        """Take more text, and print what is certain now. It has no control characters but tab and newline."""
        self._tail += text
        if _ENDS_WORD.search(text):
            self._advance(is_end=False)

    def finish(self) -> None:
        """Print the rest. The text is complete; what was unfinished Markdown is text."""
        self._advance(is_end=True)
        self._tail, self._finished = "", 0

    def _advance(self, *, is_end: bool) -> None:
        source = self._tail if is_end else self._decided_source()
        found = leaves(source)
        for number in range(self._finished, len(found)):
            is_last = number == len(found) - 1
            self._show(found, number, source, is_closed=is_end or not is_last)
        if not is_end:
            self._forget_finished(found)

    def _decided_source(self) -> str:
        """The source without a last line of which it is not known what it begins."""
        head, newline, last = self._tail.rpartition("\n")
        return head + newline if _UNDECIDED_LINE.fullmatch(last) else self._tail

    def _show(self, found: list[Leaf], number: int, source: str, *, is_closed: bool) -> None:
        leaf = found[number]
        if leaf.kind == "paragraph":
            content = leaf.content if is_closed else _settled(leaf.content)
            if content:
                self._begin(found, number, source)
                self._show_paragraph(content, is_closed)
        elif leaf.kind == "code" and (is_closed or _has_first_line(leaf, source)):
            self._begin(found, number, source)
            self._show_code(leaf, source, is_closed)
        elif is_closed:
            self._begin(found, number, source)
            self._show_whole(leaf)
        if is_closed:
            self._finished += 1
            self._shown, self._is_begun = 0, False

    def _begin(self, found: list[Leaf], number: int, source: str) -> None:
        """Print the blank line before a leaf, and what stands in front of its first line."""
        if self._is_begun:
            return
        leaf = found[number]
        if not self._is_first and (_has_gap(found, number, source.split("\n")) or leaf.kind == "heading"):
            self._console.print()
        self._is_begun, self._is_first = True, False
        if leaf.kind in ("paragraph", "heading"):
            self._writer.begin(leaf.first_prefix, leaf.rest_prefix)

    def _show_paragraph(self, content: str, is_closed: bool) -> None:
        text = _inline(content.rstrip())  # a blank before the end of a line is dropped
        self._writer.write(text[self._shown :])
        self._shown = max(self._shown, len(text))
        if content[-1:].isspace():
            self._writer.end_word()
        if is_closed:
            self._writer.end()

    def _show_code(self, leaf: Leaf, source: str, is_closed: bool) -> None:
        """Print further lines of code, without anything before them: so they can be copied from the screen."""
        lines = leaf.content.removesuffix("\n").split("\n") if leaf.content else []
        if not is_closed and not source.endswith("\n") and lines:
            lines.pop()
        if self._shown == 0:
            marker = leaf.first_prefix if leaf.first_prefix.plain.strip() else ""
            self._print_line(Text.assemble(marker, (f"```{leaf.info}", _FAINT)))
            self._shown = 1
        for line in lines[self._shown - 1 :]:
            self._print_line(Text(line, CODE))
            self._shown += 1
        if is_closed:
            self._print_line(Text("```", _FAINT))

    def _show_whole(self, leaf: Leaf) -> None:
        if leaf.kind == "heading":
            text = _inline(leaf.content)
            text.stylize(_TOP_HEADING if leaf.info in ("h1", "h2") else _HEADING)
            self._writer.write(text)
            self._writer.end()
        elif leaf.kind == "rule":
            self._print_line(Text("─" * min(self._console.width, 40), _FAINT))
        else:
            from .tables import table

            self._console.print(table(leaf.tokens))

    def _print_line(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)

    def _forget_finished(self, found: list[Leaf]) -> None:
        """Cut off the blocks of the top level that are printed; they are not parsed again."""
        if not found or found[-1].block_start == found[0].block_start:
            return
        start = found[-1].block_start
        lines = self._tail.split("\n")
        printed = sum(1 for leaf in found if leaf.block_start < start)
        self._finished -= printed
        self._tail = "\n" * _has_gap(found, printed, lines) + "\n".join(lines[start:])


def _has_gap(found: list[Leaf], number: int, lines: list[str]) -> bool:
    """Return whether a blank line of the source, or one of marks of quotes alone, is before a leaf."""
    end_before = found[number - 1].end if number else 0
    return any(_MARKS_OF_BLANK_LINES.fullmatch(line) for line in lines[end_before : found[number].start])


def _inline(source: str) -> Text:
    return styled_text(inline_tokens(source))


def _settled(content: str) -> str:
    """The part of an unfinished paragraph that stays. A last line that begins with a bar may be a table's head."""
    before, _, last = content.rpartition("\n")
    content = before if last.lstrip().startswith("|") else content
    content = content[: settled_length(content)]
    return content[: settled_length(content)]  # a backslash at the end of what is left may break the line


def _has_first_line(leaf: Leaf, source: str) -> bool:
    """True if the line with the language is complete."""
    return source.count("\n") > leaf.start
