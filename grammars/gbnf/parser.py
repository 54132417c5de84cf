"""The parser of GBNF, llama.cpp's notation of grammars.

A text becomes the bodies of its rules. The tokens that it names are found in a vocabulary later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from ..errors import GrammarError
from ..tokenizer import Vocabulary
from .nodes import (
    EMPTY,
    LAST_CODE_POINT,
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
        self._scanner = _Scanner(source)
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
                item = _parse_literal(scanner)
            case "[":
                item = _parse_class(scanner)
            case "(":
                item = self._parse_group()
            case ".":
                scanner.position += 1
                item = CharsNode(complement(()))
            case "<" | "!":
                item = _parse_token(scanner)
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
        min_count = max_count = self._parse_count(start)
        if scanner.peek() == ",":
            scanner.position += 1
            self._skip_blanks()
            max_count = None if scanner.peek() == "}" else self._parse_count(start)
        if scanner.peek() != "}" or min_count is None:
            scanner.fail("a count is {m}, {m,} or {m,n}", start)
        scanner.position += 1
        if max_count is not None and max_count < min_count:
            scanner.fail(f"the count {scanner.source[start : scanner.position]} runs backwards", start)
        return make_repeat(item, min_count, max_count)

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


def _parse_literal(scanner: _Scanner) -> Node:
    """Parse a text in double quotes. Raises ``GrammarError``."""
    start = scanner.position
    scanner.position += 1
    characters: list[str] = []
    while scanner.peek() != '"':
        position = scanner.position
        code = _parse_character(scanner, start, '"')
        if SURROGATES[0] <= code <= SURROGATES[1]:
            scanner.fail("half of a surrogate pair is not a character; write \\U and eight digits", position)
        characters.append(chr(code))
    scanner.position += 1
    return TextNode("".join(characters)) if characters else EMPTY


MAX_RANGES = 20_000
"""How many separate ranges a class may have. llguidance's work grows with their square."""


def _parse_class(scanner: _Scanner) -> Node:
    """Parse a character class in brackets. Raises ``GrammarError``."""
    start = scanner.position
    scanner.position += 1
    is_negated = scanner.peek() == "^"
    scanner.position += is_negated
    ranges: list[tuple[int, int]] = []
    while scanner.peek() != "]":
        ranges.append(_parse_range(scanner, start))
    scanner.position += 1
    if not ranges:
        scanner.fail("this class is empty; nothing could match it", start)
    merged = merge_ranges(ranges)
    if len(merged) > MAX_RANGES:
        scanner.fail(f"this class has {len(merged):,} separate ranges; at most {MAX_RANGES:,} are taken", start)
    return CharsNode(complement(merged) if is_negated else merged)


def _parse_range(scanner: _Scanner, class_start: int) -> tuple[int, int]:
    """Parse one character of a class, or a range of characters."""
    start = scanner.position
    low = high = _parse_character(scanner, class_start, "[")
    # A dash before the closing bracket is a dash.
    if scanner.peek() == "-" and scanner.source[scanner.position + 1 : scanner.position + 2] not in ("]", ""):
        scanner.position += 1
        high = _parse_character(scanner, class_start, "[")
    if high < low:
        text = scanner.source[start : scanner.position]
        if "\n" in text or "\r" in text:  # nobody types a range that ends with a line end
            scanner.fail("this [ is never closed", class_start)
        scanner.fail(f"the range {text} runs backwards", start)
    return low, high


_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEXADECIMAL_DIGITS = {"x": 2, "u": 4, "U": 8}


def _parse_character(scanner: _Scanner, start: int, opening: str) -> int:
    """Parse one character and return its code point. Its literal or class began with ``opening`` at ``start``."""
    character = scanner.peek()
    if not character:
        scanner.fail(f"this {opening} is never closed", start)
    if character != "\\":
        scanner.position += 1
        return ord(character)
    position, letter = scanner.position, scanner.source[scanner.position + 1 : scanner.position + 2]
    scanner.position += 2
    if letter in _ESCAPES:
        return ord(_ESCAPES[letter])
    if letter not in _HEXADECIMAL_DIGITS:
        scanner.fail(f'\\{letter} is no escape; there are \\t \\r \\n \\\\ \\" \\[ \\] \\- \\x \\u \\U', position)
    count = _HEXADECIMAL_DIGITS[letter]
    digits = scanner.source[scanner.position : scanner.position + count]
    scanner.position += len(digits)
    if not re.fullmatch(rf"[0-9A-Fa-f]{{{count}}}", digits):
        scanner.fail(f"\\{letter} needs {count} hexadecimal digits", position)
    if int(digits, 16) > LAST_CODE_POINT:
        scanner.fail(f"\\{letter}{digits} lies beyond the last character, \\U0010FFFF", position)
    return int(digits, 16)


_REFERENCE = re.compile(r"<\[[0-9]{1,10}\]>|<(?!\[)[^>]*>")


def _parse_token(scanner: _Scanner) -> TokenNode:
    """Parse ``<[id]>`` or ``<text>``, with or without ``!`` before it. Raises ``GrammarError``."""
    start = scanner.position
    is_negated = scanner.peek() == "!"
    scanner.position += is_negated
    match = scanner.take(_REFERENCE)
    if match is None:
        scanner.fail("a token is <text> or <[id]>", start)
    return TokenNode(match.group(), is_negated, start)


_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANKS_AND_LINE_ENDS = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")


class _Scanner:
    """A GBNF text and the position up to which it was read: ``position``, an offset in characters."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0

    def peek(self) -> str:
        """The next character; empty at the end of the text."""
        return self.source[self.position : self.position + 1]

    def is_next(self, text: str) -> bool:
        """True if this text comes next."""
        return self.source.startswith(text, self.position)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what the pattern matches here; None if it matches nothing."""
        match = pattern.match(self.source, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def skip_blanks(self, line_ends: bool) -> None:
        """Skip blanks and comments, and with ``line_ends`` line ends too."""
        self.take(_BLANKS_AND_LINE_ENDS if line_ends else _BLANKS)

    def describe_next(self) -> str:
        """The next character as an error message names it."""
        character = self.peek()
        if not character:
            return "the end of the text"
        return "the end of the line" if character in "\r\n" else repr(character)

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise ``GrammarError`` for a position in the text; None: the current position."""
        raise GrammarError.at(message, self.source, self.position if position is None else position)


def find_token_ids(nodes: Iterable[TokenNode], source: str, vocabulary: Vocabulary | None) -> dict[str, int]:
    """Return the id of each token, by its reference.

    Raises ``GrammarError`` for a token that the vocabulary does not have, and for one that ends a text and is not
    negated.

    Args:
        nodes: the tokens.
        source: the grammar's text, for error messages.
        vocabulary: where to look; None: only ``<[id]>`` is accepted.
    """
    ids: dict[str, int] = {}
    for node in nodes:
        try:
            ids[node.reference] = _find_token_id(node, vocabulary)
        except GrammarError as error:
            raise GrammarError.at(error.message, source, node.position) from None
    return ids


_ID = re.compile(r"<\[([0-9]+)\]>")


def _find_token_id(node: TokenNode, vocabulary: Vocabulary | None) -> int:
    numbered = _ID.fullmatch(node.reference)
    if vocabulary is None:
        if numbered is None:
            raise GrammarError(f"{node.reference} names a token, but there is no vocabulary to find it in")
        return int(numbered[1])
    if numbered is not None:
        token = int(numbered[1])
    else:
        tokens = vocabulary.tokenize(node.reference.encode(), special=True)
        if len(tokens) != 1:
            raise GrammarError(f"{node.reference} is not one token of this model, but {len(tokens)}")
        token = tokens[0]
    if token in vocabulary.eog and not node.negated:
        raise GrammarError("this token ends the text; it may come where the grammar ends, and nowhere else")
    if token >= vocabulary.size:
        raise GrammarError(f"{node.reference}: token ids go from 0 to {vocabulary.size - 1}")
    return token
