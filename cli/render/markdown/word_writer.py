"""Words on a terminal, one after the other, with lines broken between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style

_JOINER, _EMOJI_VARIANT = "\u200d", "\ufe0f"
_NEVER_FIRST = frozenset("、。，．：；！？）］｝」』】〉》〕…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ")  # noqa: RUF001
"""Characters that begin no line in Chinese and Japanese."""
_NEVER_LAST = frozenset("（［｛「『【〈《〔")  # noqa: RUF001
_LEAST_COLUMNS = 8
"""Text is never narrower than this, however deep it is nested."""


class WordWriter:
    """Writes paragraphs word by word. A word stays where it was written.

    The width of the terminal is read again for each word. A line may end at a blank, and beside a wide
    character such as those of Chinese, Japanese and Korean.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest_prefix = Text()
        self._column = 0
        self._line_start = 0
        """The column in which the text of this line begins."""
        self._blanks = ""
        self._word: list[Segment] = []
        self._out = Text()

    def begin(self, first_prefix: Text, rest_prefix: Text) -> None:
        """Begin a paragraph. The first prefix stands before its first line, the other one before further ones."""
        self._rest_prefix = rest_prefix
        self._start_line(first_prefix)

    def write(self, text: Text) -> None:
        """Write the words of a text. The last one waits until its end is known."""
        base = self._console.get_style(text.style)
        for segment in text.render(self._console):
            style = base + segment.style
            for character in segment.text:
                self._take(character, style)
        self._print()

    def end_word(self) -> None:
        """Write what waits: a blank or the end of the line follows."""
        self._put_word()
        self._print()

    def end(self) -> None:
        """Write what waits, and end the line."""
        self._put_word()
        self._blanks = ""
        self._out.append("\n")
        self._column = 0
        self._print()

    def _take(self, character: str, style: Style | None) -> None:
        if character == "\n":
            self._put_word()
            self._break_line()
        elif character.isspace() and character != "\xa0":
            self._put_word()
            self._blanks += " "
        else:
            if self._may_break_before(character):
                self._put_word()
            self._word.append(Segment(character, style))

    def _may_break_before(self, character: str) -> bool:
        if not self._word:
            return False
        last = self._word[-1].text
        if cell_len(character) == 0 or _JOINER in (last, character) or character == _EMOJI_VARIANT:
            return False
        if cell_len(last) < 2 and cell_len(character) < 2:
            return False
        return character not in _NEVER_FIRST and last not in _NEVER_LAST

    def _put_word(self) -> None:
        """Write the word that waits, on the next line if this one has no room for it."""
        if not self._word:
            return
        width = self._console.width
        columns = sum(cell_len(piece.text) for piece in self._word)
        if self._column > self._line_start and self._column + len(self._blanks) + columns > width:
            self._break_line()
        elif self._column > self._line_start:
            self._append(self._blanks, None)
        self._blanks = ""
        for piece in Segment.simplify(self._word) if self._column + columns <= width else self._word:
            if self._column > self._line_start and self._column + cell_len(piece.text) > self._last_column(width):
                self._break_line()
            self._append(piece.text, piece.style)
        self._word.clear()

    def _last_column(self, width: int) -> int:
        return max(width, self._line_start + _LEAST_COLUMNS)

    def _break_line(self) -> None:
        self._out.append("\n")
        self._blanks = ""
        self._start_line(self._rest_prefix)

    def _start_line(self, prefix: Text) -> None:
        self._out.append_text(prefix)
        self._column = self._line_start = cell_len(prefix.plain)

    def _append(self, text: str, style: Style | None) -> None:
        self._out.append(text, style)
        self._column += cell_len(text)

    def _print(self) -> None:
        if self._out:
            self._console.print(self._out, end="", soft_wrap=True, highlight=False)
            self._out = Text()
