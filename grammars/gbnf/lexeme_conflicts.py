"""Finds lexemes between which a greedy lexer would decide wrongly."""

from __future__ import annotations

from .automaton_overlap import Overlap, StepBudget, compare_automata
from .bit_sets import bit_indices, union
from .follow_sets import FollowSets, Leaf
from .lark import expression
from .nodes import CharsNode, LexemeNode, Node, Rules, TextNode, TokenNode, walk
from .position_automaton import PositionAutomaton, TooLargeError, build_automaton

MAX_LEXEMES = 600
"""With more lexemes than this none are compared, all are split: comparisons grow with their square."""

MAX_STEPS = 1_000_000
"""How many steps the comparisons of a grammar may take; after that all lexemes are split."""

_TOKEN_BYTE = 1 << 0xFF
"""The leading byte of a token, as a set: 0xFF, with which no text begins."""


class LexemeConflicts:
    """Finds the lexemes to split. Remembers what it has compared."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._automata: dict[str, PositionAutomaton | None] = {}
        self._keys: dict[int, str] = {}
        self._kept: list[LexemeNode] = []  # keeps lexemes alive, so that no id is used again
        self._overlaps: dict[tuple[str | None, str | None], Overlap] = {}
        self._budget = StepBudget(MAX_STEPS)

    def too_large(self, parts: Rules) -> set[int]:
        """The ids of the lexemes to split because of their size, or because there are too many to compare."""
        lexemes = _lexemes(parts)
        if self._compares_none(lexemes):
            return {id(lexeme) for lexeme in lexemes if not _is_one_character(lexeme.node)}
        return {id(lexeme) for lexeme in lexemes if self._automaton(lexeme) is None}

    def conflicting(self, parts: Rules, root: str) -> set[int]:
        """The ids of the lexemes to split because they can go on where another may have ended."""
        if self._compares_none(_lexemes(parts)):
            return set()  # each is one character
        try:
            return self._conflicting(FollowSets(parts, root, self._is_nullable))
        except TooLargeError:
            return self.too_large(parts)

    def _compares_none(self, lexemes: list[LexemeNode]) -> bool:
        return len(lexemes) > MAX_LEXEMES or self._budget.remaining < 0

    def _conflicting(self, sets: FollowSets) -> set[int]:
        keys = [None if isinstance(leaf, TokenNode) else self._key(leaf) for leaf in sets.leaves]
        leading_bytes = [self._leading_bytes(leaf) for leaf in sets.leaves]
        concurrent = sets.concurrent_leaves(lambda i, j: self._overlap(keys[i], keys[j]).share_a_text)
        conflicting = 0
        for index, others in enumerate(concurrent):
            next_bytes = union(leading_bytes[follower] for follower in bit_indices(sets.follow[index]))
            for other in bit_indices(others & ~conflicting):
                if self._overlap(keys[index], keys[other]).continuing_bytes & next_bytes:
                    conflicting |= 1 << other
        return {id(sets.leaves[index]) for index in bit_indices(conflicting)}

    def _overlap(self, first: str | None, second: str | None) -> Overlap:
        """What two leaves have in common; None is a token."""
        self._budget.spend(1)
        overlap = self._overlaps.get((first, second))
        if overlap is None:
            if first is None or second is None:
                # Two tokens may be the same one. A token is never taken for a text.
                overlap = Overlap(first is second, 0)
            else:
                overlap = self._compare(first, second)
            self._overlaps[first, second] = overlap
        return overlap

    def _compare(self, first_key: str, second_key: str) -> Overlap:
        first, second = self._automata[first_key], self._automata[second_key]
        if first is None or second is None or not first.leading_bytes & second.leading_bytes:
            return Overlap(False, 0)
        return compare_automata(first, second, self._budget)

    def _key(self, lexeme: LexemeNode) -> str:
        """The lexeme's expression, under which equal lexemes share one automaton."""
        if id(lexeme) not in self._keys:
            self._keys[id(lexeme)] = expression(lexeme.node)
            self._kept.append(lexeme)
        return self._keys[id(lexeme)]

    def _automaton(self, lexeme: LexemeNode) -> PositionAutomaton | None:
        """The automaton of a lexeme, None if it is too large."""
        key = self._key(lexeme)
        if key not in self._automata:
            try:
                self._automata[key] = build_automaton(lexeme.node, self._rules)
            except TooLargeError:
                self._automata[key] = None
        return self._automata[key]

    def _is_nullable(self, leaf: Leaf) -> bool:
        automaton = None if isinstance(leaf, TokenNode) else self._automaton(leaf)
        return automaton is not None and automaton.is_nullable

    def _leading_bytes(self, leaf: Leaf) -> int:
        automaton = None if isinstance(leaf, TokenNode) else self._automaton(leaf)
        return _TOKEN_BYTE if automaton is None else automaton.leading_bytes


def _is_one_character(node: Node) -> bool:
    return isinstance(node, CharsNode) or (isinstance(node, TextNode) and len(node.text) == 1)


def _lexemes(parts: Rules) -> list[LexemeNode]:
    return [node for part in parts.values() for node in walk(part) if isinstance(node, LexemeNode)]
