"""Markdown on a terminal, shown while it is written.

A text is only appended to: no line that is on the screen is changed. So nothing flickers, nothing is shown twice,
and a window may change its size at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token
    from rich.console import Console, JustifyMethod

_CODE = Style(color="cyan")
_FAINT = Style(dim=True)
_HEADING = Style(bold=True)
_TOP_HEADING = Style(bold=True, underline=True)

_UNDECIDED_LINE = re.compile(r"[\s>]*(?:[-*+_#=~`|:.)\d\s]*|(?:```|~~~).*|[-*+>.)\d\s]*\|.*)")
"""The beginning of a line that may become a mark of a block, the first line of code, or that of a table."""
_ENDS_WORD = re.compile(r"[\s\u1100-\U0010ffff]")
"""Blanks, and wide characters, between which a line may be broken. Other text cannot end a word."""


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

    def _show(self, found: list[_Leaf], number: int, source: str, *, is_closed: bool) -> None:
        leaf = found[number]
        if leaf.kind == "paragraph":
            content = leaf.content if is_closed else _settled(leaf.content)
            if content:
                self._begin(found, number, source)
                self._show_paragraph(content, is_closed)
        elif leaf.kind == "code" and (is_closed or source.count("\n") > leaf.start):  # its language is complete
            self._begin(found, number, source)
            self._show_code(leaf, source, is_closed)
        elif is_closed:
            self._begin(found, number, source)
            self._show_whole(leaf)
        if is_closed:
            self._finished += 1
            self._shown, self._is_begun = 0, False

    def _begin(self, found: list[_Leaf], number: int, source: str) -> None:
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

    def _show_code(self, leaf: _Leaf, source: str, is_closed: bool) -> None:
        """Print further lines of code, without anything before them: so they can be copied from the screen."""
        lines = leaf.content.removesuffix("\n").split("\n") if leaf.content else []
        if not is_closed and not source.endswith("\n") and lines:
            lines.pop()
        if self._shown == 0:
            marker = leaf.first_prefix if leaf.first_prefix.plain.strip() else ""
            self._print_line(Text.assemble(marker, (f"```{leaf.info}", _FAINT)))
            self._shown = 1
        for line in lines[self._shown - 1 :]:
            self._print_line(Text(line, _CODE))
            self._shown += 1
        if is_closed:
            self._print_line(Text("```", _FAINT))

    def _show_whole(self, leaf: _Leaf) -> None:
        if leaf.kind == "heading":
            text = _inline(leaf.content)
            text.stylize(_TOP_HEADING if leaf.info in ("h1", "h2") else _HEADING)
            self._writer.write(text)
            self._writer.end()
        elif leaf.kind == "rule":
            self._print_line(Text("─" * min(self._console.width, 40), _FAINT))
        else:
            self._console.print(_table(leaf.tokens))

    def _print_line(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)

    def _forget_finished(self, found: list[_Leaf]) -> None:
        """Cut off the blocks of the top level that are printed; they are not parsed again."""
        if not found or found[-1].block_start == found[0].block_start:
            return
        start = found[-1].block_start
        lines = self._tail.split("\n")
        printed = sum(1 for leaf in found if leaf.block_start < start)
        self._finished -= printed
        self._tail = "\n" * _has_gap(found, printed, lines) + "\n".join(lines[start:])


_MARKS_OF_BLANK_LINES = re.compile(r"[\s>]*")


def _has_gap(found: list[_Leaf], number: int, lines: list[str]) -> bool:
    """Return whether a blank line of the source, or one of marks of quotes alone, is before a leaf."""
    end_before = found[number - 1].end if number else 0
    return any(_MARKS_OF_BLANK_LINES.fullmatch(line) for line in lines[end_before : found[number].start])


def _settled(content: str) -> str:
    """The part of an unfinished paragraph that stays. A last line that begins with a bar may be a table's head."""
    before, _, last = content.rpartition("\n")
    content = before if last.lstrip().startswith("|") else content
    content = content[: settled_length(content)]
    return content[: settled_length(content)]  # a backslash at the end of what is left may break the line


@dataclass(frozen=True)
class _Leaf:
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


_BULLETS = "•◦▪"
_KINDS = {
    "paragraph_open": "paragraph",
    "heading_open": "heading",
    "fence": "code",
    "code_block": "code",
    "hr": "rule",
    "table_open": "table",
}


def leaves(source: str) -> list[_Leaf]:
    """The leaves of a source, in order, and in front of each the marks of the lists and quotes that it is in."""
    return list(_Walk(_block_parser().parse(source)).leaves())


@dataclass
class _Walk:
    """A pass over the tokens of a source."""

    tokens: Sequence[Token]
    containers: list[_Container] = field(default_factory=list)
    block_start: int = 0
    lists: list[str] = field(default_factory=list)
    """The bullets of the open lists; empty for those with numbers."""

    def leaves(self) -> Iterator[_Leaf]:
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
                start = number
                while self.tokens[number].type != "table_close":
                    number += 1
                yield self._leaf(kind, token, tokens=tuple(self.tokens[start : number + 1]))
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
    ) -> _Leaf:
        first = "".join(each.rest if each.is_marked else each.marker for each in self.containers)
        rest = "".join(each.rest for each in self.containers)
        for each in self.containers:
            each.is_marked = True
        start, end = token.map or (0, 0)
        prefixes = Text(first, _FAINT), Text(rest, _FAINT)
        return _Leaf(kind, content, start, end, self.block_start, *prefixes, info, tokens)


@dataclass
class _Container:
    """A quote, or an item of a list; ``marker`` stands before its first line."""

    marker: str
    rest: str
    is_marked: bool = False
    """True once the marker was used."""


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


def _inline(source: str) -> Text:
    """The text of a paragraph's source, with its styles."""
    return _styled_text(_parser().parseInline(source)[0].children or ())


_STYLES = {
    "strong": Style(bold=True),
    "em": Style(italic=True),
    "s": Style(strike=True),
    "link": Style(underline=True),
}


def _styled_text(tokens: Sequence[Token]) -> Text:
    """The text of a paragraph's tokens, with its styles. The address of a link stands behind it."""
    text = Text()
    styles: list[Style] = []
    links: list[tuple[str, int]] = []
    for token in tokens:
        name, _, end = token.type.rpartition("_")
        if end == "open" and name in _STYLES:
            styles.append(_STYLES[name])
            if name == "link":
                links.append((str(token.attrGet("href") or ""), len(text)))
        elif end == "close" and name in _STYLES:
            styles.pop()
            if name == "link":
                _append_address(text, *links.pop())
        elif token.type in ("softbreak", "hardbreak"):
            text.append("\n")
        elif token.type == "code_inline":
            text.append(token.content, Style.combine([*styles, _CODE]))
        elif token.type == "image":
            start = len(text)
            text.append(token.content, Style.combine([*styles, _STYLES["link"]]))
            _append_address(text, str(token.attrGet("src") or ""), start)
        else:
            text.append(token.content, Style.combine([Style.null(), *styles]))
    return text


def _append_address(text: Text, address: str, start: int) -> None:
    if text.plain[start:] != address:
        text.append(f" ({address})", _FAINT)


_JUSTIFY: dict[str, JustifyMethod] = {
    "text-align:left": "left",
    "text-align:center": "center",
    "text-align:right": "right",
}


def _table(tokens: Sequence[Token]) -> Table:
    """The table of these tokens: cells are wrapped where it is wider than the terminal."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    row = []
    for number, token in enumerate(tokens):
        if token.type in ("th_open", "td_open"):
            cell = _inline(tokens[number + 1].content)
            if token.type == "th_open":
                justify = _JUSTIFY.get(str(token.attrGet("style")), "left")
                shown.add_column(cell, justify=justify, overflow="fold")
            else:
                row.append(cell)
        elif token.type == "tr_close" and row:
            shown.add_row(*row)
            row = []
    return shown


def settled_length(source: str) -> int:
    """How many characters of an unfinished paragraph mean the same, whatever follows them.

    A mark that opens emphasis, code or a link leaves open what stands behind it, until its counterpart comes.
    """
    scan = _Scan(source)
    while scan.place < len(source) and scan.cut is None:
        scan.step()
    places = [opener.place for opener in scan.openers]
    return min([*places, len(source) if scan.cut is None else scan.cut])


@dataclass
class _Opener:
    """A mark without its counterpart so far.

    Attributes:
        count: its characters that nothing has closed yet.
        length: all of its characters.
        can_close: True if it could also be the counterpart of an earlier mark.
    """

    place: int
    mark: str
    count: int
    length: int = 1
    can_close: bool = False


_AUTOLINK = re.compile(
    r"<(?:[a-z][a-z\d+.-]{1,31}:[^\s<>]*|[\w.!#$%&'*+/=?^`{|}~-]+@[a-z\d-]+(?:\.[a-z\d-]+)*)>",
    re.ASCII | re.IGNORECASE,
)
"""An address with a scheme, or of mail, as CommonMark has it. Between other angle brackets, marks count."""
_OPEN_AUTOLINK = re.compile(r"<[^\s<>]*\Z")
_OPEN_ENTITY = re.compile(r"&[#\w]*\Z")
_OPEN_ADDRESS = re.compile(r"\([^)\n]*\Z")
_ADDRESS = re.compile(r"\([^)\n]*\)")


class _Scan:
    """A pass over the source. ``cut``: where something begins whose kind is not known yet."""

    def __init__(self, source: str) -> None:
        self.source, self.place = source, 0
        self.openers: list[_Opener] = []
        self.cut: int | None = None

    def step(self) -> None:
        """Take a mark, or a character."""
        character = self.source[self.place]
        if character == "\\":
            self._take_escape()
        elif character == "`":
            self._take_code()
        elif character in "*_~":
            self._take_emphasis(character)
        elif character in "!<&":
            self._take_short(character)
        elif character == "[":
            self.openers.append(_Opener(self.place, "[", 1))
            self.place += 1
        elif character == "]":
            self._take_bracket()
        else:
            self.place += 1

    def _take_escape(self) -> None:
        """A backslash before the end of a line breaks the line, if there is a further one."""
        if self.source[self.place + 1 :].strip():
            self.place += 2
        else:
            self.cut = self.place

    def _run_end(self) -> int:
        end = self.place
        while end < len(self.source) and self.source[end] == self.source[self.place]:
            end += 1
        return end

    def _take_code(self) -> None:
        end = self._run_end()
        run = self.source[self.place : end]
        closing = re.compile(rf"(?<!`){run}(?!`)").search(self.source, end)
        if closing is None or closing.end() == len(self.source):
            self.cut = self.place
        else:
            self.place = closing.end()

    def _take_short(self, character: str) -> None:
        """An exclamation mark before a link makes a picture; ``<`` and ``&`` may begin an address, an entity."""
        rest = self.source[self.place :]
        if character == "!" and rest.startswith("!["):
            self.openers.append(_Opener(self.place, "[", 1))
            self.place += 2
        elif rest == "!" or _OPEN_AUTOLINK.match(rest) or _OPEN_ENTITY.match(rest):
            self.cut = self.place
        else:
            link = _AUTOLINK.match(rest)
            self.place += 1 if link is None else link.end()

    def _take_bracket(self) -> None:
        opener = next((each for each in reversed(self.openers) if each.mark == "["), None)
        rest = self.source[self.place + 1 :]
        if opener is None:
            self.place += 1
        elif not rest or _OPEN_ADDRESS.match(rest):
            self.cut = opener.place
        else:
            self.openers.remove(opener)
            address = _ADDRESS.match(rest)
            self.place += 1 + (0 if address is None else address.end())

    def _take_emphasis(self, mark: str) -> None:
        end = self._run_end()
        if end == len(self.source):
            self.cut = self.place
            return
        before = self.source[self.place - 1] if self.place else " "
        opens, closes = _flanks(before, self.source[end], mark)
        count = end - self.place
        if mark == "~":
            count -= count % 2  # what is struck out has pairs of tildes around it
        length = count
        if closes:
            count = self._close(mark, count, opens)
        if opens and count:
            self.openers.append(_Opener(self.place, mark, count, length, closes))
        self.place = end

    def _close(self, mark: str, count: int, can_open: bool) -> int:
        """Take away what these marks close; returns how many marks are left.

        Marks that open and close match unless their lengths add up to a multiple of 3; two such multiples match.
        """
        length = count
        for opener in [each for each in reversed(self.openers) if each.mark == mark]:
            both_ways = mark != "~" and (can_open or opener.can_close)
            if both_ways and (opener.length + length) % 3 == 0 and length % 3:
                continue
            closed = min(count, opener.count)
            opener.count -= closed
            count -= closed
            if not opener.count:
                self.openers.remove(opener)
            if not count:
                break
        return count


def _flanks(before: str, after: str, mark: str) -> tuple[bool, bool]:
    """Whether a mark between these characters can open and can close emphasis, by CommonMark's rules."""
    is_left = not after.isspace() and (not _is_punctuation(after) or before.isspace() or _is_punctuation(before))
    is_right = not before.isspace() and (
        not _is_punctuation(before) or after.isspace() or _is_punctuation(after)
    )  # fmt: skip
    if mark != "_":
        return is_left, is_right
    return is_left and (not is_right or _is_punctuation(before)), is_right and (
        not is_left or _is_punctuation(after)
    )


def _is_punctuation(character: str) -> bool:
    return not character.isalnum() and not character.isspace()


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
            last_column = max(width, self._line_start + _LEAST_COLUMNS)
            if self._column > self._line_start and self._column + cell_len(piece.text) > last_column:
                self._break_line()
            self._append(piece.text, piece.style)
        self._word.clear()

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
