"""The parser of GBNF, llama.cpp's notation of grammars.

The source is parsed into the bodies of its rules. Token references are later resolved with a vocabulary.
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

MAX_DEPTH = 100  # Maximum nesting depth of groups. The parser is recursive, and Python's call stack is limited.

MAX_REPETITIONS = 4  # Maximum number of ``* + ? {m,n}`` after one item. Their counts multiply.

_MAX_COUNT_DIGITS = 6  # Maximum number of digits of a count in ``{m,n}``. No text needs more repetitions.

# Every fourth level of groups becomes a rule, because llguidance reads only about 30 levels of parentheses
_LEVELS_PER_RULE = 4

_REPETITION_SIGNS = ("*", "+", "?", "{")
_NAME_PATTERN = re.compile(r"[A-Za-z0-9-]+")
_NUMBER_PATTERN = re.compile(r"[0-9]+")

# the error message about a character that is found where an item or the end of a rule is expected
_PROBLEM_BY_CHARACTER = {
    ")": "this ) was never opened",
    "]": "this ] was never opened",
    "}": "this } was never opened",
    "'": 'a literal is written in double quotes, "like this"',
}


class GbnfParser:
    """The parser of one GBNF source, which its constructor parses."""

    # Raises ``GrammarError`` with line and column.

    # The syntax is llama.cpp's. Some errors that llama.cpp accepts silently are rejected: a second definition of a
    # rule, an empty class, a range whose end precedes its start, and a count whose maximum is below its minimum.

    def __init__(self, source: str) -> None:
        self.source = source  # the text of the grammar
        # bodies of the rules, by name. Deeply nested groups are separate rules with an underscore in their names,
        # which names in the source cannot have.
        self.rules: dict[str, Node] = {}
        # for each rule, the offset of its definition in the source, characters
        self.positions: dict[str, int] = {}
        self.tokens: list[TokenNode] = []  # the token references, in the order of the source
        self._scanner = _Scanner(source)
        self._depth = 0
        self._rule_name = ""
        self._scanner.skip_whitespace(includes_newlines=True)
        while self._scanner.position < len(source):
            self._parse_rule()

    def _parse_rule(self) -> None:
        scanner = self._scanner
        start = scanner.position
        name = self._parse_name()
        scanner.skip_whitespace(includes_newlines=False)
        if not scanner.is_next("::="):
            scanner.fail(f"expected ::= after the rule name {name!r}")
        if name in self.rules:
            line = scanner.source.count("\n", 0, self.positions[name]) + 1
            scanner.fail(f"rule {name!r} is already defined in line {line}", start)
        scanner.position += 3
        scanner.skip_whitespace(includes_newlines=True)
        self.positions[name] = start
        self._rule_name = name
        self.rules[name] = self._parse_alternatives()
        if scanner.peek() not in ("", "\r", "\n"):
            self._reject_next()
        scanner.skip_whitespace(includes_newlines=True)

    def _parse_name(self) -> str:
        scanner = self._scanner
        match = scanner.read(_NAME_PATTERN)
        if match is None:
            if scanner.peek() == "|":
                scanner.fail("a rule continues in the next line only after | or inside parentheses")
            scanner.fail(f"expected a rule name, got {scanner.describe_next()}")
        if scanner.is_next("_"):
            scanner.fail("a rule name must consist of letters, digits and dashes, without an underscore")
        return match.group()

    def _reject_next(self) -> NoReturn:
        """Raise ``GrammarError`` for the next character, which is not allowed here."""
        scanner = self._scanner
        if scanner.is_next("::="):
            scanner.fail("a rule begins here, but the previous rule continues after its last |")
        scanner.fail(_PROBLEM_BY_CHARACTER.get(scanner.peek(), f"{scanner.describe_next()} is not allowed here"))

    def _skip_whitespace(self) -> None:
        """Skip whitespace and comments. Newlines are skipped only inside a group."""
        self._scanner.skip_whitespace(includes_newlines=self._depth > 0)

    def _parse_alternatives(self) -> Node:
        options = [self._parse_sequence()]
        while self._scanner.peek() == "|":
            self._scanner.position += 1
            self._scanner.skip_whitespace(includes_newlines=True)
            options.append(self._parse_sequence())
        return make_alt(options)

    def _parse_sequence(self) -> Node:
        scanner = self._scanner
        items: list[Node] = []
        while (item := self._parse_item()) is not None:
            self._skip_whitespace()
            repetition_count = 0
            while scanner.peek() in _REPETITION_SIGNS:
                repetition_count += 1
                if repetition_count > MAX_REPETITIONS:
                    scanner.fail(f"more than {MAX_REPETITIONS} repetitions of the same item")
                item = self._parse_repetition(item)
                self._skip_whitespace()
            items.append(item)
        if scanner.peek() in _REPETITION_SIGNS:
            scanner.fail(f"{scanner.peek()} has nothing before it to repeat")
        return make_seq(items)

    def _parse_item(self) -> Node | None:
        """Parse one item of a sequence. Return None at the end of the sequence."""
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
            case character if _NAME_PATTERN.match(character):  # a rule name begins with any of its characters
                item = RefNode(self._parse_name(), start)
        return item

    def _parse_group(self) -> Node:
        scanner = self._scanner
        start = scanner.position
        self._depth += 1
        if self._depth > MAX_DEPTH:
            scanner.fail(f"groups are nested more than {MAX_DEPTH} levels deep", start)
        scanner.position += 1
        scanner.skip_whitespace(includes_newlines=True)
        body = self._parse_alternatives()
        if scanner.peek() != ")":
            if not scanner.peek():
                scanner.fail("this ( is never closed", start)
            if scanner.is_next("::="):
                scanner.fail("this ( is not closed before the next rule", start)
            self._reject_next()
        scanner.position += 1
        self._depth -= 1
        if self._depth % _LEVELS_PER_RULE < _LEVELS_PER_RULE - 1:
            return body
        name = f"{self._rule_name}_{start}"
        self.rules[name] = body
        self.positions[name] = start
        return RefNode(name, start)

    def _parse_repetition(self, item: Node) -> Node:
        """Parse one of ``* + ? {m} {m,} {m,n}``, and return the repetition of the item."""
        scanner = self._scanner
        start = scanner.position
        sign = scanner.peek()
        scanner.position += 1
        match sign:
            case "*":
                return make_repeat(item, 0, None)
            case "+":
                return make_repeat(item, 1, None)
            case "?":
                return make_repeat(item, 0, 1)
            case _:
                return self._parse_counted_repetition(item, start)

    def _parse_counted_repetition(self, item: Node, start: int) -> Node:
        """Parse ``{m}``, ``{m,}`` or ``{m,n}`` after the opening brace."""
        scanner = self._scanner
        min_count = self._parse_count(start)
        max_count = min_count
        if scanner.peek() == ",":
            scanner.position += 1
            self._skip_whitespace()
            max_count = None if scanner.peek() == "}" else self._parse_count(start)
        if scanner.peek() != "}" or min_count is None:
            scanner.fail("a count must be {m}, {m,} or {m,n}", start)
        scanner.position += 1
        if max_count is not None and max_count < min_count:
            written_count = scanner.source[start : scanner.position]
            scanner.fail(f"the count {written_count} has a maximum below its minimum", start)
        return make_repeat(item, min_count, max_count)

    def _parse_count(self, start: int) -> int | None:
        """Parse a number of the repetition that begins at ``start``. Return None if there is no number."""
        self._skip_whitespace()
        match = self._scanner.read(_NUMBER_PATTERN)
        if match is None:
            return None
        if len(match.group()) > _MAX_COUNT_DIGITS:
            self._scanner.fail("a count has at most six digits", start)
        self._skip_whitespace()
        return int(match.group())


def _parse_literal(scanner: _Scanner) -> Node:
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


# Maximum number of separate ranges of a class. llguidance's work grows with the square of this number.
MAX_RANGES = 20_000


def _parse_class(scanner: _Scanner) -> Node:
    start = scanner.position
    scanner.position += 1
    is_negated = scanner.skip("^")
    ranges: list[tuple[int, int]] = []
    while scanner.peek() != "]":
        ranges.append(_parse_range(scanner, start))
    scanner.position += 1
    if not ranges:
        scanner.fail("this class is empty, so that nothing matches it", start)
    merged_ranges = merge_ranges(ranges)
    if len(merged_ranges) > MAX_RANGES:
        scanner.fail(f"this class has {len(merged_ranges):,} separate ranges; the limit is {MAX_RANGES:,}", start)
    return CharsNode(complement(merged_ranges) if is_negated else merged_ranges)


def _parse_range(scanner: _Scanner, class_start: int) -> tuple[int, int]:
    """Parse one character of a class, or a range of characters."""
    start = scanner.position
    low = _parse_character(scanner, class_start, "[")
    high = low
    is_range = scanner.is_next("-") and not scanner.is_next("-]")
    is_last_character = scanner.position + 1 == len(scanner.source)
    if is_range and not is_last_character:
        scanner.position += 1
        high = _parse_character(scanner, class_start, "[")
    if high < low:
        text = scanner.source[start : scanner.position]
        ends_at_newline = "\n" in text or "\r" in text
        if ends_at_newline:  # the closing bracket is missing, because nobody writes such a range
            scanner.fail("this [ is never closed", class_start)
        scanner.fail(f"the range {text} ends before its start", start)
    return low, high


_CHARACTER_BY_ESCAPE = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_DIGIT_COUNT_BY_ESCAPE = {"x": 2, "u": 4, "U": 8}


def _parse_character(scanner: _Scanner, start: int, opening: str) -> int:
    """Parse one character of a literal or class, and return its code point."""
    character = scanner.peek()
    if not character:
        scanner.fail(f"this {opening} is never closed", start)
    if character != "\\":
        scanner.position += 1
        return ord(character)
    position = scanner.position
    escape_letter = scanner.source[position + 1 : position + 2]
    scanner.position += 2
    if escape_letter in _CHARACTER_BY_ESCAPE:
        return ord(_CHARACTER_BY_ESCAPE[escape_letter])
    if escape_letter not in _DIGIT_COUNT_BY_ESCAPE:
        scanner.fail(
            f'\\{escape_letter} is not an escape; allowed are \\t \\r \\n \\\\ \\" \\[ \\] \\- \\x \\u \\U',
            position,
        )
    digit_count = _DIGIT_COUNT_BY_ESCAPE[escape_letter]
    digits = scanner.source[scanner.position : scanner.position + digit_count]
    scanner.position += len(digits)
    if not re.fullmatch(rf"[0-9A-Fa-f]{{{digit_count}}}", digits):
        scanner.fail(f"\\{escape_letter} must be followed by {digit_count} hexadecimal digits", position)
    if int(digits, 16) > LAST_CODE_POINT:
        scanner.fail(f"\\{escape_letter}{digits} is above the last character, \\U0010FFFF", position)
    return int(digits, 16)


# An id, as in <[2]>, or the text of a token, as in <think>. An id of 32 bits has at most ten digits.
_TOKEN_REFERENCE_PATTERN = re.compile(r"<\[[0-9]{1,10}\]>|<(?!\[)[^>]*>")


def _parse_token(scanner: _Scanner) -> TokenNode:
    """Parse a token reference: ``<[id]>``, ``<text>``, or one of them after ``!``. Raises ``GrammarError``."""
    start = scanner.position
    is_negated = scanner.skip("!")
    match = scanner.read(_TOKEN_REFERENCE_PATTERN)
    if match is None:
        scanner.fail("a token reference must be <text> or <[id]>", start)
    return TokenNode(match.group(), is_negated, start)


_SPACES_PATTERN = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_WHITESPACE_PATTERN = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")


class _Scanner:
    """A reader of GBNF source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0  # offset of the next character

    def peek(self) -> str:
        return self.source[self.position : self.position + 1]

    def skip(self, character: str) -> bool:
        """Skip the next character if it is this one. Return whether it was skipped."""
        is_next = self.peek() == character
        if is_next:
            self.position += 1
        return is_next

    def is_next(self, text: str) -> bool:
        """Return True if the source continues with this text."""
        return self.source.startswith(text, self.position)

    def read(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read the text that matches the pattern. Return None if the pattern does not match here."""
        match = pattern.match(self.source, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def skip_whitespace(self, *, includes_newlines: bool) -> None:
        """Skip spaces, tabs and comments, and optionally newlines."""
        self.read(_WHITESPACE_PATTERN if includes_newlines else _SPACES_PATTERN)

    def describe_next(self) -> str:
        """Return the next character as it is shown in an error message."""
        character = self.peek()
        if not character:
            return "the end of the text"
        return "the end of the line" if character in "\r\n" else repr(character)

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise ``GrammarError`` for an offset in the source; None = the current position."""
        raise GrammarError.in_source(message, self.source, self.position if position is None else position)


def find_token_ids(nodes: Iterable[TokenNode], source: str, vocabulary: Vocabulary | None) -> dict[str, int]:
    """Return the id of each referenced token, by its reference; without a vocabulary only references by id."""
    # Raises ``GrammarError`` if the vocabulary lacks a token, or if a reference to an end-of-generation token is
    # not negated.
    ids: dict[str, int] = {}
    for node in nodes:
        try:
            ids[node.reference] = _find_token_id(node, vocabulary)
        except GrammarError as error:
            raise GrammarError.in_source(error.message, source, node.position) from None
    return ids


_ID_REFERENCE = re.compile(r"<\[([0-9]+)\]>")


def _find_token_id(node: TokenNode, vocabulary: Vocabulary | None) -> int:
    id_match = _ID_REFERENCE.fullmatch(node.reference)
    if vocabulary is None:
        if id_match is None:
            raise GrammarError(f"{node.reference} refers to a token, which needs a model's vocabulary")
        return int(id_match[1])
    if id_match is not None:
        token = int(id_match[1])
    else:
        tokens = vocabulary.tokenize(node.reference.encode(), special=True)
        if len(tokens) != 1:
            raise GrammarError(f"{node.reference} is not one token of this model but {len(tokens)}")
        token = tokens[0]
    if token in vocabulary.eog and not node.is_negated:
        raise GrammarError(
            "this token ends the text; leave it out, since the model may end wherever a sentence is complete"
        )
    if token >= vocabulary.size:
        raise GrammarError(f"{node.reference}: the token id must be from 0 to {vocabulary.size - 1}")
    return token
