"""The marks inside a paragraph: emphasis, code, links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it.token import Token

CODE = Style(color="cyan")
_FAINT = Style(dim=True)
_STYLES = {
    "strong": Style(bold=True),
    "em": Style(italic=True),
    "s": Style(strike=True),
    "link": Style(underline=True),
}
_AUTOLINK = re.compile(
    r"<(?:[a-z][a-z\d+.-]{1,31}:[^\s<>]*|[\w.!#$%&'*+/=?^`{|}~-]+@[a-z\d-]+(?:\.[a-z\d-]+)*)>",
    re.ASCII | re.IGNORECASE,
)
"""An address with a scheme, or of mail, as CommonMark has it. Between other angle brackets, marks count."""
_OPEN_AUTOLINK = re.compile(r"<[^\s<>]*\Z")
_OPEN_ENTITY = re.compile(r"&[#\w]*\Z")
_OPEN_ADDRESS = re.compile(r"\([^)\n]*\Z")
_ADDRESS = re.compile(r"\([^)\n]*\)")


def styled_text(tokens: Sequence[Token]) -> Text:
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
            text.append(token.content, Style.combine([*styles, CODE]))
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
