"""Markdown on a terminal, printed while the model writes it.

Output is only appended, and never changed. So nothing flickers, nothing is printed twice, and the terminal may be
resized at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from rich.console import Console, JustifyMethod

_CODE = Style(color="cyan")
_FAINT = Style(dim=True)
_HEADING = Style(bold=True)
_TOP_HEADING = Style(bold=True, underline=True)

# A beginning of a line whose kind of block is not certain yet
_UNDECIDED_LINE = re.compile(
    r"""
    [\s>]*                      # marks of quotes
    (?:
        [-*+_#=~`|:.)\d\s]*     # only characters that may become the mark of a block
      | (?:```|~~~).*           # the first line of code, whose language is not complete
      | [-*+>.)\d\s]*\|.*       # a row of a table, maybe in a list or quote
    )
    """,
    re.VERBOSE,
)
# A character that may end a word: whitespace, or a wide character, next to which a line may be wrapped.
_ENDS_WORD = re.compile(r"[\s\u1100-\U0010ffff]")


class MarkdownStream:
    """A printer of a Markdown text that grows."""

    # A leaf is a block without inner blocks, such as a paragraph. Words of paragraphs and lines of code are shown
    # as soon as their meaning is certain. A table is printed when it is complete. Printed output is never changed.

    def __init__(self, console: Console) -> None:
        self._console = console
        self._writer = WordWriter(console)
        # The source from the last block of the top level to the end, and a blank line before that block.
        self._tail = ""
        self._finished_leaf_count = 0  # number of leaves of ``_tail`` that are completely printed
        # What is printed of the next leaf: the number of characters; for code, the number of lines
        self._printed_length = 0
        self._has_begun_leaf = False  # whether a part of the next leaf is printed
        self._is_first_leaf = True  # whether no leaf of the text has been begun

    def feed(self, text: str) -> None:
        """Append text, which has no control characters but tab and newline, and print what is certain now."""
        self._tail += text
        if _ENDS_WORD.search(text):
            self._advance(is_end=False)

    def finish(self) -> None:
        """Print the rest of the text. Marks without a counterpart are printed as text."""
        self._advance(is_end=True)
        self._tail = ""
        self._finished_leaf_count = 0

    def _advance(self, *, is_end: bool) -> None:
        source = self._tail if is_end else self._decided_source()
        all_leaves = leaves(source)
        for number in range(self._finished_leaf_count, len(all_leaves)):
            is_last = number == len(all_leaves) - 1
            self._show(all_leaves, number, source, is_closed=is_end or not is_last)
        if not is_end:
            self._drop_finished_blocks(all_leaves)

    def _decided_source(self) -> str:
        """Return the source without the last line, if it is uncertain which kind of block that line begins."""
        earlier_lines, newline, last_line = self._tail.rpartition("\n")
        is_undecided = _UNDECIDED_LINE.fullmatch(last_line) is not None
        return earlier_lines + newline if is_undecided else self._tail

    def _show(self, all_leaves: list[_Leaf], number: int, source: str, *, is_closed: bool) -> None:
        """Print as much of a leaf as is certain; a closed leaf cannot grow any more."""
        leaf = all_leaves[number]
        if leaf.kind == "paragraph":
            content = leaf.content if is_closed else _settled_paragraph(leaf.content)
            if content:
                self._begin(all_leaves, number, source)
                self._show_paragraph(content, is_closed)
        elif leaf.kind == "code":
            is_first_line_complete = source.count("\n") > leaf.start
            if is_closed or is_first_line_complete:  # the first line names the language
                self._begin(all_leaves, number, source)
                self._show_code(leaf, source, is_closed)
        elif is_closed:
            self._begin(all_leaves, number, source)
            self._show_closed(leaf)
        if is_closed:
            self._finished_leaf_count += 1
            self._printed_length = 0
            self._has_begun_leaf = False

    def _begin(self, all_leaves: list[_Leaf], number: int, source: str) -> None:
        """Print the blank line before a leaf, and the prefix of its first line."""
        if self._has_begun_leaf:
            return
        leaf = all_leaves[number]
        needs_blank_line = leaf.kind == "heading" or _has_gap(all_leaves, number, source.split("\n"))
        if needs_blank_line and not self._is_first_leaf:
            self._console.print()
        self._has_begun_leaf = True
        self._is_first_leaf = False
        if leaf.kind in ("paragraph", "heading"):
            self._writer.begin(leaf.first_prefix, leaf.rest_prefix)

    def _show_paragraph(self, content: str, is_closed: bool) -> None:
        text = _inline(content.rstrip())  # Markdown drops trailing spaces of a line
        self._writer.write(text[self._printed_length :])
        self._printed_length = max(self._printed_length, len(text))
        if content[-1:].isspace():
            self._writer.end_word()
        if is_closed:
            self._writer.end()

    def _show_code(self, leaf: _Leaf, source: str, is_closed: bool) -> None:
        """Print the next complete lines of code, without a prefix, so that they can be copied from the screen."""
        lines = leaf.content.removesuffix("\n").split("\n") if leaf.content else []
        is_last_line_complete = is_closed or source.endswith("\n")
        if lines and not is_last_line_complete:
            lines.pop()
        if self._printed_length == 0:
            marker = leaf.first_prefix if leaf.first_prefix.plain.strip() else ""
            self._print_line(Text.assemble(marker, (f"```{leaf.info}", _FAINT)))
            self._printed_length = 1
        printed_code_lines = self._printed_length - 1  # without the line of the opening fence
        for line in lines[printed_code_lines:]:
            self._print_line(Text(line, _CODE))
            self._printed_length += 1
        if is_closed:
            self._print_line(Text("```", _FAINT))

    def _show_closed(self, leaf: _Leaf) -> None:
        """Print a heading, a rule or a table, which are only printed when they are complete."""
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

    def _drop_finished_blocks(self, all_leaves: list[_Leaf]) -> None:
        """Remove the printed blocks of the top level from the source, so that they are not parsed again."""
        if not all_leaves:
            return
        last_block_start = all_leaves[-1].block_start
        dropped_count = sum(1 for leaf in all_leaves if leaf.block_start < last_block_start)
        if dropped_count == 0:
            return
        lines = self._tail.split("\n")
        blank_line = "\n" if _has_gap(all_leaves, dropped_count, lines) else ""
        self._finished_leaf_count -= dropped_count
        self._tail = blank_line + "\n".join(lines[last_block_start:])


_BLANK_LINE = re.compile(r"[\s>]*")


def _has_gap(all_leaves: list[_Leaf], number: int, lines: list[str]) -> bool:
    """Return whether a blank line precedes a leaf. A line with only marks of quotes counts as a blank line."""
    end_before = all_leaves[number - 1].end if number > 0 else 0
    lines_between = lines[end_before : all_leaves[number].start]
    return any(_BLANK_LINE.fullmatch(line) for line in lines_between)


def _settled_paragraph(content: str) -> str:
    """Return the certain part of an unfinished paragraph, without a last line that may be a table's header."""
    earlier_lines, _, last_line = content.rpartition("\n")
    return settled(earlier_lines if last_line.lstrip().startswith("|") else content)


@dataclass(frozen=True)
class _Leaf:
    """A block that contains no other blocks."""

    kind: str  # ``paragraph``, ``heading``, ``code``, ``rule`` or ``table``
    content: str  # without its marks
    start: int  # index of the first line in the source
    end: int  # index of the line after the last line
    block_start: int  # index of the first line of the surrounding block of the top level
    first_prefix: Text  # text in front of the first line: bullets, and bars of quotes
    rest_prefix: Text  # text in front of all following lines
    info: str = ""  # language of code, or level of a heading such as ``h1``; empty for other kinds
    tokens: tuple[Token, ...] = ()  # parser's tokens of a table; empty for other kinds


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
    """Return the leaves of a source in order. The prefixes of a leaf show the surrounding lists and quotes."""
    return list(_Walk(_block_parser().parse(source)).leaves())


@dataclass
class _Walk:
    """A pass over the parser's tokens."""

    tokens: Sequence[Token]
    # open quotes and items of lists, the outermost first
    containers: list[_Container] = field(default_factory=list)
    block_start: int = 0  # index of the first line of the current block of the top level
    # bullet of each open list; an empty string for a numbered list
    list_bullets: list[str] = field(default_factory=list)

    def leaves(self) -> Iterator[_Leaf]:
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
                yield self._leaf(kind, token, content=self.tokens[number + 1].content, info=token.tag)
                number += 2
            else:
                yield self._leaf(kind, token, content=token.content, info=token.info.strip())
            number += 1

    def _enter_or_leave(self, token: Token) -> None:
        if token.type == "bullet_list_open":
            depth = sum(1 for bullet in self.list_bullets if bullet)
            self.list_bullets.append(_BULLETS[depth % len(_BULLETS)])
        elif token.type == "ordered_list_open":
            self.list_bullets.append("")
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            self.list_bullets.pop()
        elif token.type == "list_item_open":
            marker = f"{self.list_bullets[-1] or token.info + token.markup} "
            self.containers.append(_Container(marker, " " * len(marker)))
        elif token.type == "blockquote_open":
            self.containers.append(_Container("│ ", "│ "))
        elif token.type in ("list_item_close", "blockquote_close"):
            self.containers.pop()

    def _leaf(
        self, kind: str, token: Token, content: str = "", info: str = "", tokens: tuple[Token, ...] = ()
    ) -> _Leaf:
        first_prefix = ""
        rest_prefix = ""
        for container in self.containers:
            first_prefix += container.rest_prefix if container.is_begun else container.first_prefix
            rest_prefix += container.rest_prefix
            container.is_begun = True
        start, end = token.map or (0, 0)
        return _Leaf(
            kind,
            content,
            start,
            end,
            self.block_start,
            first_prefix=Text(first_prefix, _FAINT),
            rest_prefix=Text(rest_prefix, _FAINT),
            info=info,
            tokens=tokens,
        )


@dataclass
class _Container:
    """A quote, or an item of a list."""

    first_prefix: str  # text in front of the first line
    rest_prefix: str  # text in front of all following lines
    is_begun: bool = False  # True if a leaf has used ``first_prefix``


@cache
def _parser() -> MarkdownIt:
    """Return the parser, without HTML, and without syntax that changes the meaning of earlier lines."""
    return _make_parser()


@cache
def _block_parser() -> MarkdownIt:
    """Return a parser of blocks that does not parse the text inside of paragraphs, and needs half of the time."""
    return _make_parser().disable("inline")


def _make_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.block.ruler.at("table", _table_with_bars, {"alt": ["paragraph", "reference"]})
    return parser.disable(["lheading", "reference", "html_block", "html_inline"])


def _table_with_bars(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Parse a table whose header begins with a bar."""
    # A header without a bar looks like a paragraph, which is printed before the next line is known.
    from markdown_it.rules_block import table

    position = state.bMarks[start_line] + state.tShift[start_line]
    begins_with_bar = state.src.startswith("|", position)
    return begins_with_bar and table(state, start_line, end_line, silent)


def _inline(source: str) -> Text:
    """Return a paragraph's source as text with styles."""
    return _styled_text(_parser().parseInline(source)[0].children or ())


_STYLES = {
    "strong": Style(bold=True),
    "em": Style(italic=True),
    "s": Style(strike=True),
    "link": Style(underline=True),
}


def _styled_text(tokens: Sequence[Token]) -> Text:
    """Return a paragraph's tokens as text with styles. The address of a link follows the link's text."""
    text = Text()
    styles: list[Style] = []
    open_links: list[_OpenLink] = []
    for token in tokens:
        name, _, open_or_close = token.type.rpartition("_")
        if open_or_close == "open" and name in _STYLES:
            styles.append(_STYLES[name])
            if name == "link":
                open_links.append(_OpenLink(str(token.attrGet("href") or ""), len(text)))
        elif open_or_close == "close" and name in _STYLES:
            styles.pop()
            if name == "link":
                link = open_links.pop()
                _append_address(text, link.address, link.start)
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


class _OpenLink(NamedTuple):
    address: str
    start: int  # length of the text before the link


def _append_address(text: Text, address: str, start: int) -> None:
    """Append the address of a link, unless the text of the link from ``start`` on is the address."""
    if text.plain[start:] != address:
        text.append(f" ({address})", _FAINT)


_JUSTIFY: dict[str, JustifyMethod] = {
    "text-align:left": "left",
    "text-align:center": "center",
    "text-align:right": "right",
}


def _table(tokens: Sequence[Token]) -> Table:
    """Return these tokens as a table, whose cells are wrapped if the table is wider than the terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    row = []
    for number, token in enumerate(tokens):
        if token.type in ("th_open", "td_open"):
            cell = _inline(tokens[number + 1].content)
            if token.type == "th_open":
                justify = _JUSTIFY.get(str(token.attrGet("style")), "left")
                table.add_column(cell, justify=justify, overflow="fold")
            else:
                row.append(cell)
        elif token.type == "tr_close" and row:
            table.add_row(*row)
            row = []
    return table


def settled(source: str) -> str:
    """Return the beginning of an unfinished paragraph whose meaning no later text can change."""
    # The meaning of the text after a mark that opens emphasis, code or a link is uncertain until the closing mark.
    while True:
        source = _UNFINISHED_MARKS.sub("", source)
        env = {_FIRST_OPEN_MARK: len(source)}
        _settling_parser().parseInline(source, env)
        first_open_mark = env[_FIRST_OPEN_MARK]
        if first_open_mark == len(source):
            return source
        source = source[:first_open_mark]


# Marks at the end whose meaning depends on the next character. A backslash may break the line.
_UNFINISHED_MARKS = re.compile(r"(?:[*_~`]|\\\s*)+\Z")
# Keys of a parser's environment: the index of the first open mark, and a list of `_MarkRun`
_FIRST_OPEN_MARK = "first open mark"
_RUNS = "runs"
_OPEN_AUTOLINK = re.compile(r"<[^\s<>]*\Z")
_OPEN_ENTITY = re.compile(r"&[#\w]*\Z")
# The beginning of the address of a link, and of its title, such as ``(https://example.org "A ti``
_OPEN_ADDRESS = re.compile(
    r"""
    \(\s*
    (?: <[^<>\n]*>? | (?!<)\S* )              # the address, maybe in angle brackets
    (?:
        \s+
        (?:
            "(?: \\. | [^"\\] )*\\?"?         # the title in double quotes,
          | '(?: \\. | [^'\\] )*\\?'?         # in single quotes,
          | \([^()]*\)?                       # or in parentheses
        )?
        \s*
    )?
    \Z
    """,
    re.DOTALL | re.VERBOSE,
)


class _MarkRun(NamedTuple):
    """Equal marks that follow each other, such as ``**``."""

    delimiter_count: int  # number of the parser's delimiters before the run
    position: int  # index of the run in the source


@cache
def _settling_parser() -> MarkdownIt:
    """Return a parser that finds the first open mark: one that later text may close."""
    # Without the later text, the parser takes an open mark for a character.
    parser = _make_parser()
    rules = parser.inline.ruler
    rules.at("backticks", _code_or_open_mark)
    rules.before("strikethrough", "runs", _remember_run)
    rules.push("open_mark", _note_open_mark)  # the last rule, so that it gets the marks that no other rule takes
    parser.inline.ruler2.after("balance_pairs", "open_emphasis", _note_open_emphasis)
    return parser


def _note_open(state: StateInline, position: int) -> None:
    state.env[_FIRST_OPEN_MARK] = min(state.env[_FIRST_OPEN_MARK], position)


def _code_or_open_mark(state: StateInline, silent: bool) -> bool:
    from markdown_it.rules_inline import backtick

    position = state.pos
    token_count_before = len(state.tokens)
    is_read = backtick(state, silent)
    if is_read and not silent:
        new_tokens = state.tokens[token_count_before:]
        is_code = any(token.type == "code_inline" for token in new_tokens)
        if not is_code:
            _note_open(state, position)
    return is_read


def _remember_run(state: StateInline, silent: bool) -> bool:
    is_outside_links = state.level == 0
    if not silent and is_outside_links and state.src[state.pos] in "*_~":
        runs = state.env.setdefault(_RUNS, [])
        runs.append(_MarkRun(len(state.delimiters), state.pos))
    return False


def _note_open_emphasis(state: StateInline) -> None:
    """Note the first run that opens emphasis, and is neither closed nor inside of closed emphasis."""
    number = 0
    while number < len(state.delimiters):
        delimiter = state.delimiters[number]
        is_closed = delimiter.end >= 0
        if is_closed:
            number = delimiter.end
        elif delimiter.open:
            # the delimiter belongs to the last run that began before it
            runs_before = [run for run in state.env[_RUNS] if run.delimiter_count <= number]
            _note_open(state, max(run.position for run in runs_before))
            return
        number += 1


def _note_open_mark(state: StateInline, silent: bool) -> bool:
    if not silent and _may_become_mark(state):
        _note_open(state, state.pos)
    return False


def _may_become_mark(state: StateInline) -> bool:
    rest = state.src[state.pos :]
    if rest == "!" or _OPEN_AUTOLINK.match(rest) or _OPEN_ENTITY.match(rest):
        return True
    if not rest.startswith(("[", "![")):
        return False
    label_end = state.md.helpers.parseLinkLabel(state, state.pos + rest.index("["))
    if label_end < 0:  # the label is not closed yet
        return True
    text_after_label = state.src[label_end + 1 :]
    return not text_after_label or _OPEN_ADDRESS.match(text_after_label) is not None


_JOINER = "\u200d"
_EMOJI_VARIANT = "\ufe0f"
# Characters that must not begin a line in Chinese and Japanese.
_NEVER_FIRST = frozenset("、。，．：；！？）］｝」』】〉》〕…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ")  # noqa: RUF001
_NEVER_LAST = frozenset("（［｛「『【〈《〔")  # noqa: RUF001
_MIN_COLUMNS = 8  # minimum width of text, however deep the list or quote around it is nested


class WordWriter:
    """A writer of paragraphs that prints word by word, and never moves a printed word."""

    # The width of the terminal is read again for each word. A line may be wrapped at a space, or next to a wide
    # character of Chinese, Japanese or Korean.

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest_prefix = Text()
        self._column = 0
        self._line_start = 0  # the column in which the text of this line begins, after the prefix
        self._pending_spaces = ""
        self._word: list[Segment] = []
        self._out = Text()

    def begin(self, first_prefix: Text, rest_prefix: Text) -> None:
        """Begin a paragraph with prefixes for its first line and for all following lines."""
        self._rest_prefix = rest_prefix
        self._start_line(first_prefix)

    def write(self, text: Text) -> None:
        """Write the words of a text, except the last word, which more text may continue."""
        base = self._console.get_style(text.style)
        for segment in text.render(self._console):
            style = base + segment.style
            for character in segment.text:
                self._add_character(character, style)
        self._print()

    def end_word(self) -> None:
        """Write the pending word. A space or the end of the line follows."""
        self._put_word()
        self._print()

    def end(self) -> None:
        """Write the pending word, and end the line."""
        self._put_word()
        self._pending_spaces = ""
        self._out.append("\n")
        self._column = 0
        self._print()

    def _add_character(self, character: str, style: Style | None) -> None:
        if character == "\n":
            self._put_word()
            self._break_line()
        elif character.isspace() and character != "\xa0":
            self._put_word()
            self._pending_spaces += " "
        else:
            if self._may_break_before(character):
                self._put_word()
            self._word.append(Segment(character, style))

    def _may_break_before(self, character: str) -> bool:
        if not self._word:
            return False
        last_character = self._word[-1].text
        is_joined = _JOINER in (last_character, character)
        if cell_len(character) == 0 or is_joined or character == _EMOJI_VARIANT:
            return False
        is_beside_wide_character = cell_len(last_character) >= 2 or cell_len(character) >= 2
        if not is_beside_wide_character:
            return False
        return character not in _NEVER_FIRST and last_character not in _NEVER_LAST

    def _put_word(self) -> None:
        """Write the pending word, on the next line if the word does not fit on this line."""
        if not self._word:
            return
        width = self._console.width
        word_width = sum(cell_len(segment.text) for segment in self._word)
        if self._has_text_in_line:
            if self._column + len(self._pending_spaces) + word_width > width:
                self._break_line()
            else:
                self._append(self._pending_spaces, None)
        self._pending_spaces = ""
        fits = self._column + word_width <= width
        segments = Segment.simplify(self._word) if fits else self._word  # a long word may be split anywhere
        for segment in segments:
            last_column = max(width, self._line_start + _MIN_COLUMNS)
            if self._has_text_in_line and self._column + cell_len(segment.text) > last_column:
                self._break_line()
            self._append(segment.text, segment.style)
        self._word.clear()

    @property
    def _has_text_in_line(self) -> bool:
        return self._column > self._line_start

    def _break_line(self) -> None:
        self._out.append("\n")
        self._pending_spaces = ""
        self._start_line(self._rest_prefix)

    def _start_line(self, prefix: Text) -> None:
        self._out.append_text(prefix)
        self._line_start = cell_len(prefix.plain)
        self._column = self._line_start

    def _append(self, text: str, style: Style | None) -> None:
        self._out.append(text, style)
        self._column += cell_len(text)

    def _print(self) -> None:
        if self._out:
            self._console.print(self._out, end="", soft_wrap=True, highlight=False)
            self._out = Text()
