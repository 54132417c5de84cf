"""Tables on a terminal of any width and in a pipe.

In a pipe, nothing is wrapped. On a terminal that is too narrow, nothing is cut: texts are wrapped between words,
and columns that do not fit continue below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from typing import Literal

from ..text import BOLD, has_styles, output_width, styled, text_width, visible, wrap_words

# Columns below which a wrapped text has only one or two words per line, and goes below its row instead.
_MIN_TEXT_COLUMNS = 20
_SMALL_GAP = 2  # spaces between cells that are not in columns
_BELOW_INDENT = 4  # indentation of what continues below a row


@dataclass(frozen=True)
class Column:
    title: str = ""  # a table without titles has no first line for them
    align: Literal["left", "right"] = "left"  # the side on which the cells are flush
    is_text: bool = False  # Whether the cells may be wrapped. Only the last column can be one.
    is_optional: bool = False  # left out on a terminal on which the table does not fit
    # None for the width of the widest cell. On a terminal, what follows a wider name begins on the next line.
    width: int | None = None
    # for texts, the width below which they are not wrapped in their column, but below their row
    min_width: int = _MIN_TEXT_COLUMNS


@dataclass(frozen=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]  # a cell may have several lines
    gap: int = 3  # spaces between two columns
    indent: int = 0  # spaces before each line
    has_rule: bool = True  # a line below the titles

    @cached_property
    def _widths(self) -> list[int]:
        return [
            max(_cell_width(cell) for cell in (column.title, *(row[number] for row in self.rows)))
            if column.width is None
            else column.width
            for number, column in enumerate(self.columns)
        ]

    @property
    def width(self) -> int:
        """The columns of a terminal that the table needs without wrapping."""
        return self.indent + self._width_of(self._widths)

    def _width_of(self, widths: Sequence[int]) -> int:
        return sum(widths) + self.gap * (len(widths) - 1)

    def render(self, width: int | None = None, *, is_bold: bool = False) -> list[str]:
        """Return the lines. ``width`` is None for a pipe, in which nothing is wrapped."""
        # bold are the titles and the first column
        if width is None:
            return self._lines(self._side_by_side, is_bold)
        if self.width > width and self.columns[-1].is_optional:
            shorter = replace(self, columns=self.columns[:-1], rows=[row[:-1] for row in self.rows])
            return shorter.render(width, is_bold=is_bold)
        has_text = self.columns[-1].is_text
        if has_text and self._text_start <= width:
            return self._lines(partial(self._with_text, width=width), is_bold, width)
        if self.width <= width:
            return self._lines(self._side_by_side, is_bold, width)
        if not has_text and self._widths[0] <= width // 2:
            return self._in_blocks(width, is_bold)
        return self._lines(partial(self._one_after_another, width=width), is_bold, width)

    @property
    def _text_start(self) -> int:
        """The columns before the text, which is the last column."""
        return self.indent + sum(width + self.gap for width in self._widths[:-1])

    def _in_blocks(self, width: int, is_bold: bool) -> list[str]:
        """Return the table as tables below each other, each with the first column and as many others as fit."""
        lines: list[str] = []
        start, count = 1, len(self.columns)
        while start < count:
            end = start + 1
            while (
                end < count
                and self.indent + self._width_of([self._widths[0], *self._widths[start : end + 1]]) <= width
            ):
                end += 1
            chosen = [0, *range(start, end)]
            block = replace(
                self,
                columns=[self.columns[number] for number in chosen],
                rows=[[row[number] for number in chosen] for row in self.rows],
            )
            lines += [*([""] if lines else []), *block.render(is_bold=is_bold)]
            start = end
        return lines

    def _lines(
        self, row_lines: Callable[[Sequence[str], bool], Iterable[str]], is_bold: bool, width: int | None = None
    ) -> list[str]:
        """Return all lines; ``row_lines`` gets the cells of a row, and whether the first one is bold."""
        lines = []
        titles = [column.title for column in self.columns]
        if any(titles):
            title_lines = [line.rstrip() for line in row_lines(titles, False)]
            lines += [styled(line, BOLD) if is_bold else line for line in title_lines]
            if self.has_rule:
                lines.append("─" * min(self.width, width or self.width))
        for row in self.rows:
            lines += [line.rstrip() for line in row_lines(row, is_bold)]
        return lines

    def _side_by_side(self, row: Sequence[str], is_bold: bool) -> Iterator[str]:
        cells = [self._cell_lines(cell, number, is_bold and number == 0) for number, cell in enumerate(row)]
        for parts in zip_longest(*cells):
            padded = (part or " " * width for part, width in zip(parts, self._widths, strict=True))
            yield " " * self.indent + (" " * self.gap).join(padded)

    def _with_text(self, row: Sequence[str], is_bold: bool, width: int) -> Iterator[str]:
        """Yield the lines of a row whose text is beside the other cells if it fits there, or else below them."""
        *cells, text = row
        if self.columns[0].width is not None and text_width(cells[0]) > self._widths[0]:
            for line in wrap_words(" " * self.indent + cells[0], width, self.indent + 2):
                yield styled(line, BOLD) if is_bold else line
            cells[0] = ""
        room = width - self._text_start
        longest_word = max(map(text_width, text.split()), default=0)
        if _cell_width(text) <= room or (self.columns[-1].min_width <= room and longest_word <= room):
            if any(cells) or text:
                yield from self._side_by_side([*cells, "\n".join(wrap_words(text, room))], is_bold)
            return
        if any(cells):
            yield from self._side_by_side([*cells, ""], is_bold)
        indent = " " * (self.indent + _BELOW_INDENT)
        yield from (indent + line for line in wrap_words(text.lstrip(), width - len(indent)))

    def _one_after_another(self, row: Sequence[str], is_bold: bool, width: int) -> Iterator[str]:
        """Yield the lines of a row whose cells follow each other, and then its text."""
        indent = " " * (self.indent + _BELOW_INDENT)
        *cells, text = row if self.columns[-1].is_text else (*row, "")
        lines = [[" " * self.indent]]
        columns = self.indent
        for number, cell in enumerate(cells):
            if not cell:
                continue
            columns += text_width(cell) + _SMALL_GAP
            if columns - _SMALL_GAP > width and len(lines[-1]) > 1:
                lines.append([indent])
                columns = len(indent) + text_width(cell) + _SMALL_GAP
            lines[-1].append(styled(cell, BOLD) if is_bold and number == 0 else cell)
        for start, *parts in lines:
            yield start + (" " * _SMALL_GAP).join(parts)
        if text:
            yield from (indent + line for line in wrap_words(text.lstrip(), width - len(indent)))

    def _cell_lines(self, cell: str, column: int, is_bold: bool) -> list[str]:
        """Return the lines of a cell, padded to the width of its column."""
        width, is_right = self._widths[column], self.columns[column].align == "right"
        lines = []
        for line in cell.split("\n"):
            padding = " " * (width - text_width(line))
            shown = styled(line, BOLD) if is_bold else line
            lines.append(padding + shown if is_right else shown + padding)
        return lines


def _cell_width(cell: str) -> int:
    return max(map(text_width, cell.split("\n")))


def print_table(columns: Sequence[Column | str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with visible control characters: in the width of a terminal, or unwrapped in a pipe."""
    # A title stands for a column of short texts.
    table = Table(
        [Column(column) if isinstance(column, str) else column for column in columns],
        [[visible(cell).expandtabs() for cell in row] for row in rows],
    )
    print("\n".join(table.render(output_width(), is_bold=has_styles(sys.stdout))))


def fact_lines(facts: Sequence[tuple[str, str]], label_width: int, width: int | None) -> list[str]:
    """Return the lines of facts, each with its label before it, or above it if it does not fit."""
    columns = [Column(width=label_width), Column(is_text=True)]
    return Table(columns, facts, gap=2, indent=2).render(width)
