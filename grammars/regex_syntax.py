r"""The parser of regular expressions, which makes a tree of a pattern.

Patterns have Python's syntax, without the parts that no finite automaton can match: back-references, lookaround,
conditions on groups, atomic groups and possessive repetitions.
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

// such as (?i)
FLAGS: /\(\?[aimsuLx]+\)/
COMMENT.3: /\(\?#[^)]*\)/
NON_REGULAR.3: /\(\?(=|!|<=|<!|>|P=|\([^)]*\))/
// such as ( or (?: or (?i-s: or (?P<name>
OPEN.2: /\((?!\?)|\(\?([aimsuLx]*(-[imsx]+)?:|P<[^>]*>)/
// such as * or {2,5}, and a last ? of a lazy or + of a possessive repetition
QUANTIFIER.2: /([*+?]|\{\d+\}|\{\d*,\d*\})[?+]?/
POSITION.2: /[\^$]|\\[AZzbB]/
// a closing bracket that comes first belongs to the class, as in []a]
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
    """The functions that make a node for each part of a pattern, named as the rules of the grammar."""

    def start(self, children: list[Any]) -> Node:
        *flag_tokens, node = children
        for token in flag_tokens:
            node = Group(node, added=_read_flags(token.strip("(?)"), token))
        return node

    def alternatives(self, children: list[Node]) -> Node:
        return children[0] if len(children) == 1 else Alternatives(tuple(children))

    def concatenation(self, children: list[Node]) -> Node:
        return Concatenation(tuple(children))

    def repetition(self, children: list[Any]) -> Node:
        """Return the node of a repetition. A lazy one is the same, because all ways to match are followed."""
        node, quantifier = children
        has_suffix = len(quantifier) > 1
        if has_suffix and quantifier.endswith("+"):
            raise _non_regular("a possessive repetition", quantifier)
        counts = quantifier.removesuffix("?") if has_suffix else quantifier
        if counts == "*":
            return Repetition(node, min_count=0, max_count=None)
        if counts == "+":
            return Repetition(node, min_count=1, max_count=None)
        if counts == "?":
            return Repetition(node, min_count=0, max_count=1)
        min_text, comma, max_text = counts.strip("{}").partition(",")
        min_count = int(min_text or 0)
        if not comma:
            return Repetition(node, min_count, max_count=min_count)
        max_count = int(max_text) if max_text else None
        if max_count is not None and max_count < min_count:
            raise _invalid(f"the least count of {quantifier} is more than the greatest", quantifier)
        return Repetition(node, min_count, max_count)

    def position(self, children: list[Token]) -> Node:
        return Position(children[0][-1].replace("z", "Z"))

    def group(self, children: list[Any]) -> Node:
        opening: Token = children[0]
        inner_node: Node = children[1]
        if opening.type == "NON_REGULAR":
            sign_after_question_mark = opening[2]
            raise _non_regular(_NON_REGULAR.get(sign_after_question_mark, "lookaround"), opening)
        if not opening.endswith(":"):
            return Group(inner_node)
        added_letters, _, removed_letters = opening.strip("(?:").partition("-")
        added = _read_flags(added_letters, opening)
        removed = _read_flags(removed_letters, opening)
        if "u" in added_letters:  # Unicode is the opposite of ASCII, and has no flag of its own
            removed |= re.ASCII
        return Group(inner_node, added, removed)

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
