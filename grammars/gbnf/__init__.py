"""GBNF, llama.cpp's notation of grammars, and its translation for the engine that makes the masks."""

from __future__ import annotations

from collections.abc import Collection

from .completion import shortest_suffix
from .lark import to_lark
from .lexemes import cut
from .nodes import Node, Rules, TokenNode, walk
from .parser import GbnfParser, TokenOf
from .rule_checks import check
from .shortest_texts import ShortestTexts
from .simplify import plain
from .tail_recursion import regular_rules, without_tail_recursion

__all__ = ["Node", "Rules", "ShortestTexts", "read", "shortest_suffix", "to_lark_grammar", "tokens_of"]


def read(
    source: str,
    root: str = "root",
    token_of: TokenOf | None = None,
    size: int | None = None,
    ends: Collection[int] = (),
) -> Rules:
    """Read GBNF into rules and check them; see `GbnfParser`. Raises ``GrammarError`` with line and column."""
    reader = GbnfParser(source, token_of, size, ends)
    check(reader, root)
    return reader.rules


def to_lark_grammar(rules: Rules, root: str = "root", ends: frozenset[int] = frozenset()) -> str:
    """Translate rules to llguidance's Lark; ``ends``: tokens that no negated token stands for."""
    looped = without_tail_recursion(plain(rules))
    return to_lark(cut(looped, regular_rules(looped), root), looped, root, ends)


def tokens_of(rules: Rules) -> set[int]:
    """The ids of the tokens that the rules name."""
    return {node.id for body in rules.values() for node in walk(body) if isinstance(node, TokenNode)}
