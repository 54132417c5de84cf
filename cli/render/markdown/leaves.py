"""The blocks of a Markdown text that hold no further blocks: paragraphs, headings, code, tables, rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

_BULLETS = "•◦▪"
_FAINT = Style(dim=True)
_KINDS = {
    "paragraph_open": "paragraph",
    "heading_open": "heading",
    "fence": "code",
    "code_block": "code",
    "hr": "rule",
    "table_open": "table",
}


@dataclass(frozen=True)
class Leaf:
    """A block without further blocks.

    Attributes:
        kind: ``paragraph``, ``heading``, ``code``, ``rule`` or ``table``.
        content: its source, without the marks of the block.
        start: its first line in the source.
        end: the line behind its last one.
        block_start: the first line of the block of the top level that it is in.
        first_prefix: what stands before its first line: bullets, and the bars of quotes.
        rest_prefix: what stands before its further lines.
        info: of code: its language; of a heading: its level.
        tokens: of a table: all of its tokens.
    """

    kind: str
    content: str
    start: int
    end: int
    block_start: int
    first_prefix: Text
    rest_prefix: Text
    info: str = ""
    tokens: tuple[Token, ...] = ()


@cache
def _parser() -> MarkdownIt:
    """The parser, without what changes the meaning of lines that were read before, and without HTML."""
    return _make_parser()


@cache
def _block_parser() -> MarkdownIt:
    """The same, without a look inside paragraphs: it takes half of the time."""
    return _make_parser().disable("inline")


def _make_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    known = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    known.block.ruler.at("table", _table_with_bars, {"alt": ["paragraph", "reference"]})
    return known.disable(["lheading", "reference", "html_block", "html_inline"])


def _table_with_bars(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Find a table whose head begins with a bar. Other heads are printed before it is known what they are."""
    from markdown_it.rules_block import table

    place = state.bMarks[start_line] + state.tShift[start_line]
    return state.src[place : place + 1] == "|" and table(state, start_line, end_line, silent)


def inline_tokens(source: str) -> Sequence[Token]:
    """The tokens of a paragraph's source."""
    return _parser().parseInline(source)[0].children or ()


def leaves(source: str) -> list[Leaf]:
    """The leaves of a source, in order, and in front of each the marks of the lists and quotes that it is in."""
    return list(_Walk(_block_parser().parse(source)).leaves())


@dataclass
class _Container:
    """A quote, or an item of a list; ``marker`` stands before its first line."""

    marker: str
    rest: str
    is_marked: bool = False
    """True once the marker was used."""


@dataclass
class _Walk:
    tokens: Sequence[Token]
    containers: list[_Container] = field(default_factory=list)
    block_start: int = 0
    lists: list[str] = field(default_factory=list)
    """The bullets of the open lists; empty for those with numbers."""

    def leaves(self) -> Iterator[Leaf]:
        """Yield the leaves."""
        number = 0
        while number < len(self.tokens):
            token = self.tokens[number]
            kind = _KINDS.get(token.type)
            if token.level == 0 and token.map:
                self.block_start = token.map[0]
            if kind is None:
                self._enter_or_leave(token)
            elif kind == "table":
                end = _end_of_table(self.tokens, number)
                yield self._leaf(kind, token, tokens=tuple(self.tokens[number:end]))
                number = end - 1
            elif kind in ("paragraph", "heading"):
                yield self._leaf(kind, token, self.tokens[number + 1].content, token.tag)
                number += 2
            else:
                yield self._leaf(kind, token, token.content, token.info.strip())
            number += 1

    def _enter_or_leave(self, token: Token) -> None:
        if token.type == "bullet_list_open":
            depth = sum(1 for bullet in self.lists if bullet)
            self.lists.append(_BULLETS[depth % len(_BULLETS)])
        elif token.type == "ordered_list_open":
            self.lists.append("")
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            self.lists.pop()
        elif token.type == "list_item_open":
            marker = f"{self.lists[-1] or token.info + token.markup} "
            self.containers.append(_Container(marker, " " * len(marker)))
        elif token.type == "blockquote_open":
            self.containers.append(_Container("│ ", "│ "))
        elif token.type in ("list_item_close", "blockquote_close"):
            self.containers.pop()

    def _leaf(
        self, kind: str, token: Token, content: str = "", info: str = "", tokens: tuple[Token, ...] = ()
    ) -> Leaf:
        first = "".join(each.rest if each.is_marked else each.marker for each in self.containers)
        rest = "".join(each.rest for each in self.containers)
        for each in self.containers:
            each.is_marked = True
        start, end = token.map or (0, 0)
        prefixes = Text(first, _FAINT), Text(rest, _FAINT)
        return Leaf(kind, content, start, end, self.block_start, *prefixes, info, tokens)


def _end_of_table(tokens: Sequence[Token], start: int) -> int:
    """The number of the token behind the end of the table that begins there."""
    return next(number for number in range(start, len(tokens)) if tokens[number].type == "table_close") + 1
