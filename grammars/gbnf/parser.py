"""Reads GBNF, as llama.cpp writes it, and says where it is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NoReturn

from ..errors import GrammarError
from .nodes import (
    EMPTY,
    LAST,
    SURROGATES,
    CharsNode,
    Node,
    RefNode,
    TextNode,
    TokenNode,
    complement,
    make_alt,
    make_repeat,
    make_seq,
    merge_ranges,
)

MAX_DEPTH = 100
"""How deep groups may be nested."""

_LEVELS = 4
"""After so many levels of groups the next becomes a rule: llguidance reads about thirty levels of parentheses."""

MAX_RANGES = 20_000
"""How many separate ranges a class may have; llguidance's work grows with their square."""

MAX_SIGNS = 4
"""How many of ``* + ? {m,n}`` may follow one thing."""

TokenOf = Callable[[str], list[int]]
"""The token ids that a text such as ``<think>`` stands for."""

_SIMPLE = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_SIGNS = ("*", "+", "?", "{")
_HEX = {"x": 2, "u": 4, "U": 8}
_NAME = re.compile(r"[A-Za-z0-9-]+")
_NUMBER = re.compile(r"[0-9]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")


class GbnfParser:
    """Reads the rules of one GBNF text. ``rules`` maps names to bodies, ``places`` to where they are defined.

    ``token_of`` finds the tokens of ``<texts>`` and ``size`` is how many tokens there are; None: not known.
    ``ends``: tokens that end a text, which cannot be named.
    Raises ``GrammarError`` with line and column. The language is that of llama.cpp's parser; refused, where that
    one goes on silently, are a rule defined twice, an empty class, a range or a count that runs backwards.
    """

    def __init__(
        self,
        source: str,
        token_of: TokenOf | None = None,
        size: int | None = None,
        ends: Collection[int] = (),
    ) -> None:
        self.source = source
        self.rules: dict[str, Node] = {}
        self.places: dict[str, int] = {}
        self._token_of = token_of
        self._size = size
        self._ends = ends
        self._at = 0
        self._depth = 0
        self._name_of_rule = ""
        self._skip(True)
        while self._at < len(source):
            self._rule()

    def fail(self, message: str, at: int) -> NoReturn:
        """Raise an error for a place in the text."""
        before = self.source[:at]
        line = before.count("\n") + 1
        raise GrammarError(message, line, at - before.rfind("\n"), self.source)

    def _skip(self, lines: bool) -> None:
        found = (_SPACE_AND_LINES if lines else _SPACE).match(self.source, self._at)
        self._at = found.end() if found else self._at

    def _peek(self) -> str:
        return self.source[self._at : self._at + 1]

    def _rule(self) -> None:
        start = self._at
        name = self._name()
        self._skip(False)
        if not self.source.startswith("::=", self._at):
            self.fail(f"expected ::= after the rule name {name!r}", self._at)
        if name in self.rules:
            line = self.source.count("\n", 0, self.places[name]) + 1
            self.fail(f"rule {name!r} is defined a second time; the first is in line {line}", start)
        self._at += 3
        self._skip(True)
        self.places[name] = start
        self._name_of_rule = name
        self.rules[name] = self._choice()
        if self._at < len(self.source) and self._peek() not in "\r\n":
            self._unexpected()
        self._skip(True)

    def _name(self) -> str:
        found = _NAME.match(self.source, self._at)
        if found is None:
            if self._peek() == "|":
                self.fail("a rule goes on in the next line only after | or inside parentheses", self._at)
            self.fail(f"expected a rule name, not {self._here()}", self._at)
        if self.source.startswith("_", found.end()):
            self.fail("a rule name has letters, digits and dashes, no underscore", found.end())
        self._at = found.end()
        return found.group()

    def _here(self) -> str:
        character = self._peek()
        if not character:
            return "the end of the text"
        return "the end of the line" if character in "\r\n" else repr(character)

    def _unexpected(self) -> NoReturn:
        hints = {")": "this ) was never opened", "]": "this ] was never opened", "}": "this } was never opened"}
        if self.source.startswith("::=", self._at):
            self.fail("a rule begins here, but the one before it goes on behind its last |", self._at)
        hints["'"] = 'a literal stands in double quotes, "like this"'
        self.fail(hints.get(self._peek(), f"{self._here()} cannot stand here"), self._at)

    @property
    def _nested(self) -> bool:
        return self._depth > 0

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            self._skip(True)
            options.append(self._sequence())
        return make_alt(options)

    def _sequence(self) -> Node:
        items: list[Node] = []
        while (item := self._item()) is not None:
            self._skip(self._nested)
            signs = 0
            while self._peek() in _SIGNS:
                signs += 1
                if signs > MAX_SIGNS:
                    self.fail(f"more than {MAX_SIGNS} repetitions of the same thing", self._at)
                item = self._repeated(item)
                self._skip(self._nested)
            items.append(item)
        if self._peek() in _SIGNS:
            self.fail(f"{self._peek()} has nothing before it to repeat", self._at)
        return make_seq(items)

    def _item(self) -> Node | None:
        kinds = {'"': self._literal, "[": self._class, "(": self._group, ".": self._any, "<": self._token}
        kinds["!"] = self._token
        character = self._peek()
        if character in kinds:
            return kinds[character]()
        if not _NAME.match(character):
            return None
        at = self._at
        return RefNode(self._name(), at)

    def _any(self) -> Node:
        self._at += 1
        return CharsNode(complement(()))

    def _group(self) -> Node:
        start = self._at
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"groups are nested more than {MAX_DEPTH} deep", start)
        self._at += 1
        self._skip(True)
        inner = self._choice()
        if self._peek() != ")":
            if self._at >= len(self.source):
                self.fail("this ( is never closed", start)
            if self.source.startswith("::=", self._at):
                self.fail("this ( is not closed before the next rule", start)
            self._unexpected()
        self._at += 1
        self._depth -= 1
        return self._as_rule(inner, start) if self._depth % _LEVELS == _LEVELS - 1 else inner

    def _as_rule(self, inner: Node, start: int) -> Node:
        """Make a group a rule of its own, under a name that none in the text can have."""
        name = f"{self._name_of_rule}_{start}"
        self.rules[name], self.places[name] = inner, start
        return RefNode(name, start)

    def _literal(self) -> Node:
        start = self._at
        self._at += 1
        text: list[str] = []
        while self._peek() != '"':
            at = self._at
            code = self._character(start, '"')
            if SURROGATES[0] <= code <= SURROGATES[1]:
                self.fail("half of a surrogate pair is not a character; write \\U and eight digits", at)
            text.append(chr(code))
        self._at += 1
        return TextNode("".join(text)) if text else EMPTY

    def _class(self) -> Node:
        start = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while self._peek() != "]":
            at = self._at
            low = high = self._character(start, "[")
            if self._peek() == "-" and self.source[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._character(start, "[")
            if high < low:
                self.fail(f"the range {self.source[at : self._at]} runs backwards", at)
            ranges.append((low, high))
        self._at += 1
        if not ranges:
            self.fail("this class is empty; nothing could match it", start)
        found = merge_ranges(ranges)
        if len(found) > MAX_RANGES:
            self.fail(f"this class has {len(found):,} separate ranges; at most {MAX_RANGES:,} are taken", start)
        return CharsNode(complement(found) if negated else found)

    def _character(self, start: int, opened: str) -> int:
        """One character of a literal or a class, which began with ``opened`` at ``start``."""
        character = self._peek()
        if not character:
            self.fail(f"this {opened} is never closed", start)
        if character != "\\":
            self._at += 1
            return ord(character)
        at, letter = self._at, self.source[self._at + 1 : self._at + 2]
        self._at += 2
        if letter in _SIMPLE:
            return ord(_SIMPLE[letter])
        if letter not in _HEX:
            self.fail(f'\\{letter} is no escape; there are \\t \\r \\n \\\\ \\" \\[ \\] \\- \\x \\u \\U', at)
        digits = self.source[self._at : self._at + _HEX[letter]]
        self._at += len(digits)
        if not re.fullmatch(rf"[0-9A-Fa-f]{{{_HEX[letter]}}}", digits):
            self.fail(f"\\{letter} needs {_HEX[letter]} hexadecimal digits", at)
        if int(digits, 16) > LAST:
            self.fail(f"\\{letter}{digits} lies beyond the last character, \\U0010FFFF", at)
        return int(digits, 16)

    def _repeated(self, item: Node) -> Node:
        sign, start = self._peek(), self._at
        self._at += 1
        if sign != "{":
            return make_repeat(item, int(sign == "+"), 1 if sign == "?" else None)
        least = most = self._count(start)
        if self._peek() == ",":
            self._at += 1
            self._skip(self._nested)
            most = None if self._peek() == "}" else self._count(start)
        if self._peek() != "}" or least is None:
            self.fail("a count is {m}, {m,} or {m,n}", start)
        self._at += 1
        if most is not None and most < least:
            self.fail(f"the count {self.source[start : self._at]} runs backwards", start)
        return make_repeat(item, least, most)

    def _count(self, start: int) -> int | None:
        self._skip(self._nested)
        found = _NUMBER.match(self.source, self._at)
        if found is None:
            return None
        if len(found.group()) > 6:
            self.fail("a count has at most six digits", start)
        self._at = found.end()
        self._skip(self._nested)
        return int(found.group())

    def _token(self) -> Node:
        start = self._at
        negated = self._peek() == "!"
        self._at += negated
        found = re.compile(r"<\[([0-9]{1,10})\]>|<(?!\[)[^>]*>").match(self.source, self._at)
        if found is None:
            self.fail("a token is <text> or <[id]>", start)
        self._at = found.end()
        if found[1] is not None:
            self._refuse_end(int(found[1]), negated, start)
            if self._size is not None and int(found[1]) >= self._size:
                self.fail(f"{found.group()}: token ids go from 0 to {self._size - 1}", start)
            return TokenNode(int(found[1]), negated)
        if self._token_of is None:
            self.fail(f"{found.group()} names a token, but there is no vocabulary to find it in", start)
        ids = self._token_of(found.group())
        if len(ids) != 1:
            self.fail(f"{found.group()} is not one token of this model, but {len(ids)}", start)
        self._refuse_end(ids[0], negated, start)
        return TokenNode(ids[0], negated)

    def _refuse_end(self, token: int, negated: bool, at: int) -> None:
        if token in self._ends and not negated:
            self.fail("this token ends the text; it may come where the grammar ends, and nowhere else", at)
