r"""The syntax of regular expressions: lark makes a tree of a pattern.

Patterns have Python's syntax, without what no finite automaton can match: back-references, lookaround, conditions
on groups, atomic groups and possessive repetitions.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError

from .errors import GrammarError
from .regex_tree import (
    Alternatives,
    CharacterClass,
    Concatenation,
    Group,
    Node,
    Position,
    Repetition,
    compile_class,
)

_GRAMMAR = r"""
start: FLAGS* alternatives
alternatives: concatenation ("|" concatenation)*
concatenation: (position | repeatable | repetition)*
repetition: repeatable QUANTIFIER
?repeatable: character | group
position: POSITION
character: CLASS | ESCAPE | DOT | CHARACTER
group: (OPEN | NON_REGULAR) alternatives ")"

FLAGS: /\(\?[aimsuLx]+\)/
COMMENT.3: /\(\?#[^)]*\)/
NON_REGULAR.3: /\(\?(=|!|<=|<!|>|P=|\([^)]*\))/
OPEN.2: /\((?!\?)|\(\?([aimsuLx]*(-[imsx]+)?:|P<[^>]*>)/
QUANTIFIER.2: /([*+?]|\{\d+\}|\{\d*,\d*\})[?+]?/
POSITION.2: /[\^$]|\\[AZzbB]/
CLASS.2: /\[(\^|(?!\^))(\]|[^\]\\]|\\[\s\S])([^\]\\]|\\[\s\S])*\]/
ESCAPE.1: /\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\})/
        | /\\(0[0-7]{0,2}|[1-7][0-7]{2}|[1-9][0-9]?|[\s\S])/
DOT.1: "."
CHARACTER: /[^\\|()\[*+?]/
%ignore COMMENT
"""
_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "u": re.NOFLAG}
# Descriptions of groups that are neither regular nor lookaround, by the character after the question mark
_NON_REGULAR = {">": "an atomic group", "P": "a back-reference", "(": "a condition on a group"}


def parse_regex(pattern: str, flags: int) -> Node:
    """Return the tree of a pattern. Raises ``GrammarError`` with the position if it is invalid or not regular."""
    try:
        node: Node = _TreeMaker().transform(_parser().parse(pattern))
    except VisitError as error:
        raise error.orig_exc from None
    except UnexpectedInput as error:
        raise GrammarError(f"the regex {pattern!r} is invalid: {_problem(error, pattern)}") from None
    return Group(node, added=flags)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic")


def _problem(error: UnexpectedInput, pattern: str) -> str:
    """Return what is wrong in a pattern, and where."""
    position = error.pos_in_stream or 0
    if isinstance(error, UnexpectedToken):
        if error.token.type == "$END":
            return "a closing parenthesis is missing at its end"
        sentences = {
            "QUANTIFIER": "there is nothing to repeat",
            "RPAR": "a closing parenthesis without an opening one",
            "FLAGS": "flags for all of a pattern must be at its beginning",
        }
        return f"{sentences.get(error.token.type, 'unexpected')} at position {position}"
    sign = pattern[position]
    sentences = {
        "[": "a class that does not end",
        "\\": "an escape that does not end",
        "(": "an unknown kind of group",
    }
    return f"{sentences.get(sign, f'unexpected {sign!r}')} at position {position}"


class _TreeMaker(Transformer[Token, Any]):
    """The functions that make nodes of the parts that lark has found, named as the rules."""

    def start(self, children: list[Any]) -> Node:
        *tokens, node = children
        for token in tokens:
            node = Group(node, added=_read_flags(token[2:-1], token))
        return node

    def alternatives(self, children: list[Node]) -> Node:
        return children[0] if len(children) == 1 else Alternatives(tuple(children))

    def concatenation(self, children: list[Node]) -> Node:
        return Concatenation(tuple(children))

    def repetition(self, children: list[Any]) -> Node:
        """Return the node of a repetition. Whether it is lazy does not matter: all ways to match are followed."""
        node, quantifier = children
        if len(quantifier) > 1 and quantifier.endswith("+"):
            raise _non_regular("a possessive repetition", quantifier)
        counts = quantifier.removesuffix("?") if len(quantifier) > 1 else quantifier
        if counts in ("*", "+", "?"):
            return Repetition(node, int(counts == "+"), 1 if counts == "?" else None)
        low, comma, high = counts[1:-1].partition(",")
        min_count, max_count = int(low or 0), (int(high) if high else None) if comma else int(low)
        if max_count is not None and max_count < min_count:
            raise _invalid(f"the least count of {quantifier} is more than the greatest", quantifier)
        return Repetition(node, min_count, max_count)

    def position(self, children: list[Token]) -> Node:
        return Position(children[0][-1].replace("z", "Z"))

    def group(self, children: list[Any]) -> Node:
        opening: Token = children[0]
        if opening.type == "NON_REGULAR":
            raise _non_regular(_NON_REGULAR.get(opening[2], "lookaround"), opening)
        if not opening.endswith(":"):
            return Group(children[1])
        added, _, removed = opening[2:-1].partition("-")
        no_ascii = re.ASCII if "u" in added else re.NOFLAG
        return Group(children[1], _read_flags(added, opening), _read_flags(removed, opening) | no_ascii)

    def character(self, children: list[Token]) -> Node:
        token = children[0]
        if re.fullmatch(r"\\[1-9][0-9]?", token):
            raise _non_regular("a back-reference", token)
        source = re.escape(token) if token.type == "CHARACTER" else str(token)
        try:
            compile_class(source)
        except re.error as error:
            raise _invalid(error.msg, token, error.pos or 0) from None
        return CharacterClass(source)


def _read_flags(letters: str, token: Token) -> int:
    """Return flags by their letters."""
    flags = 0
    for letter in letters:
        if letter not in _FLAGS:
            raise _invalid(f"the flag {letter} is not supported; known: {', '.join(_FLAGS)}", token)
        flags |= int(_FLAGS[letter])
    return flags


def _invalid(problem: str, token: Token, offset: int = 0) -> GrammarError:
    return GrammarError(f"the regex is invalid: {problem} at position {(token.start_pos or 0) + offset}")


def _non_regular(description: str, token: Token) -> GrammarError:
    return GrammarError(
        f"the regex uses {description} at position {token.start_pos}, which cannot be matched in linear time"
    )
