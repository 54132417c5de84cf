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
    title: str = ""  # if no column has a title, the table has no line of titles
    align: Literal["left", "right"] = "left"
    is_text: bool = False  # whether the cells may be wrapped, which is possible in the last column only
    is_optional: bool = False  # whether the column is left out if the table does not fit on the terminal
    # None: the width of the widest cell. If a cell of the first column is wider than this, the other cells of
    # its row begin on the next line.
    width: int | None = None
    min_width: int = _MIN_TEXT_COLUMNS  # a text that has less room in its column is placed below its row


@dataclass(frozen=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]  # a cell may have several lines
    gap: int = 3  # spaces between two columns
    indent: int = 0  # spaces before each line
    has_rule: bool = True  # a line below the titles

    @cached_property
    def _widths(self) -> list[int]:
        """The width of each column."""
        widths = []
        for number, column in enumerate(self.columns):
            if column.width is not None:
                widths.append(column.width)
            else:
                cells = [column.title, *(row[number] for row in self.rows)]
                widths.append(max(_cell_width(cell) for cell in cells))
        return widths

    @property
    def width(self) -> int:
        """The columns of a terminal that the table needs without wrapping."""
        return self.indent + self._width_of(self._widths)

    def _width_of(self, widths: Sequence[int]) -> int:
        return sum(widths) + self.gap * (len(widths) - 1)

    def render(self, width: int | None = None, *, is_bold: bool = False) -> list[str]:
        """Return the lines. ``width`` is None for a pipe, in which nothing is wrapped."""
        # ``is_bold``: whether the titles and the first column are bold.
        if width is None:
            return self._lines(self._side_by_side, is_bold)
        if self.width > width and self.columns[-1].is_optional:
            without_last_column = replace(self, columns=self.columns[:-1], rows=[row[:-1] for row in self.rows])
            return without_last_column.render(width, is_bold=is_bold)
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
        start = 1
        while start < len(self.columns):
            end = start + 1
            while end < len(self.columns) and self._block_width(start, end + 1) <= width:
                end += 1
            column_numbers = [0, *range(start, end)]
            block = replace(
                self,
                columns=[self.columns[number] for number in column_numbers],
                rows=[[row[number] for number in column_numbers] for row in self.rows],
            )
            if lines:
                lines.append("")
            lines += block.render(is_bold=is_bold)
            start = end
        return lines

    def _block_width(self, start: int, end: int) -> int:
        """Return the width of a table of the first column and the columns from ``start`` to before ``end``."""
        return self.indent + self._width_of([self._widths[0], *self._widths[start:end]])

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
        lines_of_cells = [
            self._cell_lines(cell, number, is_bold=is_bold and number == 0) for number, cell in enumerate(row)
        ]
        indent = " " * self.indent
        gap = " " * self.gap
        for cell_lines in zip_longest(*lines_of_cells):  # None for a cell that has fewer lines
            padded = [line or " " * width for line, width in zip(cell_lines, self._widths, strict=True)]
            yield indent + gap.join(padded)

    def _with_text(self, row: Sequence[str], is_bold: bool, width: int) -> Iterator[str]:
        """Yield the lines of a row whose text is beside the other cells if it fits there, or else below them."""
        *cells, text = row
        is_name_too_wide = self.columns[0].width is not None and text_width(cells[0]) > self._widths[0]
        if is_name_too_wide:
            for line in wrap_words(" " * self.indent + cells[0], width, self.indent + 2):
                yield styled(line, BOLD) if is_bold else line
            cells[0] = ""
        room = width - self._text_start
        longest_word_width = max((text_width(word) for word in text.split()), default=0)
        can_be_wrapped_beside = self.columns[-1].min_width <= room and longest_word_width <= room
        if _cell_width(text) <= room or can_be_wrapped_beside:
            if any(cells) or text:
                wrapped_text = "\n".join(wrap_words(text, room))
                yield from self._side_by_side([*cells, wrapped_text], is_bold)
            return
        if any(cells):
            yield from self._side_by_side([*cells, ""], is_bold)
        yield from self._text_below(text, width)

    def _text_below(self, text: str, width: int) -> Iterator[str]:
        """Yield the lines of a text below its row."""
        indent = " " * (self.indent + _BELOW_INDENT)
        for line in wrap_words(text.lstrip(), width - len(indent)):
            yield indent + line

    def _one_after_another(self, row: Sequence[str], is_bold: bool, width: int) -> Iterator[str]:
        """Yield the lines of a row whose cells follow each other, and then its text."""
        *cells, text = row if self.columns[-1].is_text else (*row, "")
        gap = " " * _SMALL_GAP
        line_indent = self.indent
        line_cells: list[str] = []  # the cells of the current line
        line_width = line_indent  # columns of the current line
        for number, cell in enumerate(cells):
            if not cell:
                continue
            needed_width = text_width(cell) + (_SMALL_GAP if line_cells else 0)
            if line_cells and line_width + needed_width > width:
                yield " " * line_indent + gap.join(line_cells)
                line_cells = []
                line_indent = self.indent + _BELOW_INDENT
                line_width = line_indent
                needed_width = text_width(cell)
            line_cells.append(styled(cell, BOLD) if is_bold and number == 0 else cell)
            line_width += needed_width
        yield " " * line_indent + gap.join(line_cells)
        if text:
            yield from self._text_below(text, width)

    def _cell_lines(self, cell: str, column: int, is_bold: bool) -> list[str]:
        """Return the lines of a cell, padded to the width of its column."""
        is_right = self.columns[column].align == "right"
        lines = []
        for line in cell.split("\n"):
            padding = " " * (self._widths[column] - text_width(line))
            styled_line = styled(line, BOLD) if is_bold else line
            lines.append(padding + styled_line if is_right else styled_line + padding)
        return lines


def _cell_width(cell: str) -> int:
    return max(map(text_width, cell.split("\n")))


def print_table(columns: Sequence[Column | str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with visible control characters: in the width of a terminal, or unwrapped in a pipe."""
    # ``columns``: a string is the title of a column whose other properties are the defaults.
    table = Table(
        [Column(column) if isinstance(column, str) else column for column in columns],
        [[visible(cell).expandtabs() for cell in row] for row in rows],
    )
    print("\n".join(table.render(output_width(), is_bold=has_styles(sys.stdout))))


def fact_lines(facts: Sequence[tuple[str, str]], label_width: int, width: int | None) -> list[str]:
    """Return the lines of facts, each with its label before it, or above it if it does not fit."""
    columns = [Column(width=label_width), Column(is_text=True)]
    return Table(columns, facts, gap=2, indent=2).render(width)
