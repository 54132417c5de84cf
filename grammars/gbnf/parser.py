"""Parses GBNF, llama.cpp's notation of grammars."""

from __future__ import annotations

import re
from typing import NoReturn

from .code_points import complement
from .literals import parse_class, parse_literal
from .nodes import CharsNode, Node, RefNode, TokenNode, make_alt, make_repeat, make_seq
from .scanner import Scanner
from .tokens import parse_token

MAX_DEPTH = 100
"""How deep groups may be nested. The parser calls itself for each level, which Python's stack limits."""

MAX_REPETITIONS = 4
"""How many of ``* + ? {m,n}`` may follow one item. Their counts multiply."""

_MAX_COUNT_DIGITS = 6
"""Digits of a count in ``{m,n}``: more repetitions than any text needs, and quick to read as a number."""

_LEVELS_PER_RULE = 4
"""After this many levels of groups the next becomes a rule: llguidance reads about 30 levels of parentheses."""

_REPETITION_SIGNS = ("*", "+", "?", "{")
_NAME = re.compile(r"[A-Za-z0-9-]+")
_NUMBER = re.compile(r"[0-9]+")

_HINTS = {
    ")": "this ) was never opened",
    "]": "this ] was never opened",
    "}": "this } was never opened",
    "'": 'a literal stands in double quotes, "like this"',
}
"""What to say of characters that cannot stand where an item or the end of a rule is expected."""


class GbnfParser:
    """Parses the rules of one GBNF text.

    ``rules``: the rules' bodies by name; ``positions``: the offsets of their definitions; ``tokens``: the tokens
    that the text names, in order. Deeply nested groups are rules of their own, with an underscore in their name,
    which no name in the text can have. Raises ``GrammarError`` with line and column. The language is that of
    llama.cpp's parser, which accepts in silence what is refused here: a rule that is defined twice, an empty
    class, and ranges and counts that run backwards.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.rules: dict[str, Node] = {}
        self.positions: dict[str, int] = {}
        self.tokens: list[TokenNode] = []
        self._scanner = Scanner(source)
        self._depth = 0
        self._rule_name = ""
        self._scanner.skip_blanks(line_ends=True)
        while self._scanner.position < len(source):
            self._parse_rule()

    def _parse_rule(self) -> None:
        scanner = self._scanner
        start = scanner.position
        name = self._parse_name()
        scanner.skip_blanks(line_ends=False)
        if not scanner.is_next("::="):
            scanner.fail(f"expected ::= after the rule name {name!r}")
        if name in self.rules:
            line = scanner.source.count("\n", 0, self.positions[name]) + 1
            scanner.fail(f"rule {name!r} is defined a second time; the first is in line {line}", start)
        scanner.position += 3
        scanner.skip_blanks(line_ends=True)
        self.positions[name] = start
        self._rule_name = name
        self.rules[name] = self._parse_alternatives()
        if scanner.peek() not in ("", "\r", "\n"):
            self._refuse_next()
        scanner.skip_blanks(line_ends=True)

    def _parse_name(self) -> str:
        scanner = self._scanner
        match = scanner.take(_NAME)
        if match is None:
            if scanner.peek() == "|":
                scanner.fail("a rule goes on in the next line only after | or inside parentheses")
            scanner.fail(f"expected a rule name, not {scanner.describe_next()}")
        if scanner.is_next("_"):
            scanner.fail("a rule name has letters, digits and dashes, no underscore")
        return match.group()

    def _refuse_next(self) -> NoReturn:
        """Raise ``GrammarError`` for a character that cannot stand here."""
        scanner = self._scanner
        if scanner.is_next("::="):
            scanner.fail("a rule begins here, but the one before it goes on behind its last |")
        scanner.fail(_HINTS.get(scanner.peek(), f"{scanner.describe_next()} cannot stand here"))

    def _skip_blanks(self) -> None:
        """Skip blanks, and inside a group line ends too."""
        self._scanner.skip_blanks(line_ends=self._depth > 0)

    def _parse_alternatives(self) -> Node:
        options = [self._parse_sequence()]
        while self._scanner.peek() == "|":
            self._scanner.position += 1
            self._scanner.skip_blanks(line_ends=True)
            options.append(self._parse_sequence())
        return make_alt(options)

    def _parse_sequence(self) -> Node:
        scanner = self._scanner
        items: list[Node] = []
        while (item := self._parse_item()) is not None:
            self._skip_blanks()
            repetitions = 0
            while scanner.peek() in _REPETITION_SIGNS:
                repetitions += 1
                if repetitions > MAX_REPETITIONS:
                    scanner.fail(f"more than {MAX_REPETITIONS} repetitions of the same thing")
                item = self._parse_repetition(item)
                self._skip_blanks()
            items.append(item)
        if scanner.peek() in _REPETITION_SIGNS:
            scanner.fail(f"{scanner.peek()} has nothing before it to repeat")
        return make_seq(items)

    def _parse_item(self) -> Node | None:
        """Parse one item of a sequence; None at the end of the sequence."""
        scanner = self._scanner
        start = scanner.position
        item: Node | None = None
        match scanner.peek():
            case '"':
                item = parse_literal(scanner)
            case "[":
                item = parse_class(scanner)
            case "(":
                item = self._parse_group()
            case ".":
                scanner.position += 1
                item = CharsNode(complement(()))
            case "<" | "!":
                item = parse_token(scanner)
                self.tokens.append(item)
            case character if _NAME.match(character):
                item = RefNode(self._parse_name(), start)
        return item

    def _parse_group(self) -> Node:
        scanner = self._scanner
        start = scanner.position
        self._depth += 1
        if self._depth > MAX_DEPTH:
            scanner.fail(f"groups are nested more than {MAX_DEPTH} deep", start)
        scanner.position += 1
        scanner.skip_blanks(line_ends=True)
        body = self._parse_alternatives()
        if scanner.peek() != ")":
            if not scanner.peek():
                scanner.fail("this ( is never closed", start)
            if scanner.is_next("::="):
                scanner.fail("this ( is not closed before the next rule", start)
            self._refuse_next()
        scanner.position += 1
        self._depth -= 1
        if self._depth % _LEVELS_PER_RULE < _LEVELS_PER_RULE - 1:
            return body
        name = f"{self._rule_name}_{start}"
        self.rules[name], self.positions[name] = body, start
        return RefNode(name, start)

    def _parse_repetition(self, item: Node) -> Node:
        """Parse one of ``* + ? {m} {m,} {m,n}``, which repeats the item."""
        scanner = self._scanner
        sign, start = scanner.peek(), scanner.position
        scanner.position += 1
        if sign != "{":
            return make_repeat(item, int(sign == "+"), 1 if sign == "?" else None)
        least = most = self._parse_count(start)
        if scanner.peek() == ",":
            scanner.position += 1
            self._skip_blanks()
            most = None if scanner.peek() == "}" else self._parse_count(start)
        if scanner.peek() != "}" or least is None:
            scanner.fail("a count is {m}, {m,} or {m,n}", start)
        scanner.position += 1
        if most is not None and most < least:
            scanner.fail(f"the count {scanner.source[start : scanner.position]} runs backwards", start)
        return make_repeat(item, least, most)

    def _parse_count(self, start: int) -> int | None:
        """Parse a number of the repetition that begins at ``start``; None if there is no number."""
        self._skip_blanks()
        match = self._scanner.take(_NUMBER)
        if match is None:
            return None
        if len(match.group()) > _MAX_COUNT_DIGITS:
            self._scanner.fail("a count has at most six digits", start)
        self._skip_blanks()
        return int(match.group())
