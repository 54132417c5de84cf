"""The division of a grammar into lexemes, which llguidance's lexer reads as regular expressions.

Large lexemes make masks fast. But the lexer is greedy and never goes back: it ends a lexeme only if no lexeme that
it may be reading can continue. Suppose that two lexemes start together, and that one can continue where the other
has ended. Then the lexer would reject some texts of the grammar, so the lexeme that continues is split. Lexemes of
one character never continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from ..errors import GrammarError
from .automaton import Overlap, PositionAutomaton, StepBudget, TooLargeError, build_automaton, compare_automata
from .lark import expression
from .nodes import (
    AltNode,
    CharsNode,
    LexemeNode,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    TokenNode,
    bit_indices,
    children,
    make_alt,
    union,
    walk,
)
from .rules import is_regular

MAX_NODES = 100_000
"""Maximum number of nodes of a grammar after lexemes are split. A lexeme counts as one node."""


def split_into_lexemes(rules: Rules, regular: set[str], root: str) -> dict[str, Node]:
    """Return the bodies of the rules for llguidance's parser, by name. Their regular parts are lexemes.

    These rules are the start rule, the rules that are not regular, and regular rules that are too large for one
    lexeme. Raises ``GrammarError`` for more than ``MAX_NODES`` nodes.

    Args:
        rules: the bodies of the grammar's rules, by name.
        regular: the names of the regular rules.
        root: the start rule.
    """
    parts = {name: _put_into_lexemes(rules[name], regular) for name in _irregular_rules(rules, regular, root)}
    if root in regular:
        return parts
    conflicts = _LexemeConflicts(rules)
    numbers = count()
    while True:
        _reject_too_many_nodes(parts)
        to_split = conflicts.find_too_large(parts)
        # A lexeme that is too large may refer to one rule many times. Copies of the rule would make the grammar
        # much larger.
        copies_rules = not to_split
        to_split = to_split or conflicts.find_conflicting(parts, root)
        if not to_split:
            return parts
        splitter = _LexemeSplitter(to_split, rules, copies_rules, numbers)
        parts = {name: splitter.split(part) for name, part in parts.items()}
        parts |= {name: part for name, part in splitter.new_rules.items() if name not in parts}


def _reject_too_many_nodes(parts: Rules) -> None:
    node_count = sum(1 for part in parts.values() for _ in walk(part))
    if node_count > MAX_NODES:
        raise GrammarError(f"the grammar is too large: {node_count:,} parts; the limit is {MAX_NODES:,}")


def _irregular_rules(rules: Rules, regular: set[str], root: str) -> list[str]:
    """Return the names of the start rule and of the irregular rules that it refers to, directly or not."""
    reached = {root: None}
    pending = [root]
    while pending:
        for node in walk(rules[pending.pop()]):
            if isinstance(node, RefNode) and node.name not in regular and node.name not in reached:
                reached[node.name] = None
                pending.append(node.name)
    return list(reached)


def _put_into_lexemes(node: Node, regular: set[str]) -> Node:
    """Replace the largest regular parts of a node by lexemes."""
    if is_regular(node, regular):
        return LexemeNode(node)
    match node:
        case SeqNode(items):
            return SeqNode(tuple(_group_regular_items(items, regular)))
        case AltNode(options):
            regular_options = [option for option in options if is_regular(option, regular)]
            lexemes = [LexemeNode(make_alt(regular_options))] if regular_options else []
            irregular_options = [option for option in options if not is_regular(option, regular)]
            return AltNode((*lexemes, *(_put_into_lexemes(option, regular) for option in irregular_options)))
        case RepeatNode(item, min_count, max_count):
            return RepeatNode(_put_into_lexemes(item, regular), min_count, max_count)
        case _:
            return node


def _group_regular_items(items: tuple[Node, ...], regular: set[str]) -> list[Node]:
    """Return the items of a sequence. Consecutive regular items become one lexeme."""
    grouped: list[Node] = []
    run: list[Node] = []
    for item in (*items, None):
        if item is not None and is_regular(item, regular):
            run.append(item)
            continue
        if run:
            grouped.append(LexemeNode(SeqNode(tuple(run)) if len(run) > 1 else run[0]))
            run = []
        if item is not None:
            grouped.append(_put_into_lexemes(item, regular))
    return grouped


_MAX_LEXEMES = 600
"""With more lexemes than this, all are split without comparisons, whose number grows with the square."""

_MAX_STEPS = 1_000_000
"""Maximum number of steps of a grammar's comparisons. With more steps, all lexemes are split."""

_TOKEN_BYTE = 1 << 0xFF
"""The set of leading bytes of a token reference: 0xFF, with which no text begins."""


class _LexemeConflicts:
    """Finds the lexemes that must be split. Results of comparisons are cached."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._automata: dict[str, PositionAutomaton | None] = {}
        self._keys: dict[int, str] = {}
        self._kept: list[LexemeNode] = []  # keeps lexemes alive, so that Python does not reuse their ids
        self._overlaps: dict[tuple[str | None, str | None], Overlap] = {}
        self._budget = StepBudget(_MAX_STEPS)

    def find_too_large(self, parts: Rules) -> set[int]:
        """Return the ids of the lexemes that are too large, or of all lexemes if they are too many to compare."""
        lexemes = _lexemes(parts)
        if self._exceeds_limits(lexemes):
            return {id(lexeme) for lexeme in lexemes if not _is_one_character(lexeme.node)}
        return {id(lexeme) for lexeme in lexemes if self._automaton(lexeme) is None}

    def find_conflicting(self, parts: Rules, root: str) -> set[int]:
        """Return the ids of the lexemes that can continue where another lexeme may have ended."""
        if self._exceeds_limits(_lexemes(parts)):
            return set()  # `find_too_large` has split all lexemes down to single characters
        try:
            return self._compare_leaves(_FollowSets(parts, root, self._is_nullable))
        except TooLargeError:
            return self.find_too_large(parts)

    def _exceeds_limits(self, lexemes: list[LexemeNode]) -> bool:
        return len(lexemes) > _MAX_LEXEMES or self._budget.remaining < 0

    def _compare_leaves(self, sets: _FollowSets) -> set[int]:
        keys = [None if isinstance(leaf, TokenNode) else self._key(leaf) for leaf in sets.leaves]
        leading_bytes = [self._leading_bytes(leaf) for leaf in sets.leaves]
        starting_together = sets.leaves_starting_together(
            lambda i, j: self._overlap(keys[i], keys[j]).have_common_text
        )
        conflicting = 0
        for index, other_leaves in enumerate(starting_together):
            next_bytes = union(leading_bytes[follower] for follower in bit_indices(sets.following_leaves[index]))
            for other_index in bit_indices(other_leaves & ~conflicting):
                if self._overlap(keys[index], keys[other_index]).continuing_bytes & next_bytes:
                    conflicting |= 1 << other_index
        return {id(sets.leaves[index]) for index in bit_indices(conflicting)}

    def _overlap(self, first: str | None, second: str | None) -> Overlap:
        """Return the overlap of two leaves, given by their keys. The key of a token reference is None."""
        self._budget.spend(1)
        overlap = self._overlaps.get((first, second))
        if overlap is None:
            if first is None or second is None:
                # Two references may be to the same token. A token reference never matches a text.
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
        """Return the lexeme's expression. Lexemes with equal expressions share one automaton."""
        if id(lexeme) not in self._keys:
            self._keys[id(lexeme)] = expression(lexeme.node)
            self._kept.append(lexeme)
        return self._keys[id(lexeme)]

    def _automaton(self, lexeme: LexemeNode) -> PositionAutomaton | None:
        """Return the automaton of a lexeme; None if it is too large."""
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


Leaf = LexemeNode | TokenNode


class _First(NamedTuple):
    """The beginning of a node.

    Attributes:
        leaves: the set of leaves that the node can begin with.
        is_nullable: True if the node matches the empty text.
    """

    leaves: int
    is_nullable: bool


class _FollowSets:
    """Computes which leaves can follow each leaf of a grammar. A leaf is a lexeme or a token reference.

    The context of a reference to a rule is ignored: what can follow one reference can follow all references to the
    rule. A set of leaves is an int: bit i is 1 if ``leaves[i]`` is in the set.

    Attributes:
        leaves: the lexemes and token references of all rules.
        start_leaves: the set of leaves that a sentence can begin with.
        following_leaves: for each leaf, the set of leaves that can follow it.
    """

    def __init__(self, rules: Rules, root: str, is_nullable_leaf: Callable[[Leaf], bool]) -> None:
        self.leaves = [node for body in rules.values() for node in walk(body) if isinstance(node, Leaf)]
        self._index = {id(leaf): index for index, leaf in enumerate(self.leaves)}
        self._is_nullable_leaf = is_nullable_leaf
        self._rules = rules
        self._first = dict.fromkeys(rules, _First(0, False))
        self._find_first_sets()
        self.following_leaves = [0] * len(self.leaves)
        self._follow_of_rule = dict.fromkeys(rules, 0)
        self._last_leaves = dict.fromkeys(rules, 0)
        self._last_rules: dict[str, set[str]] = {name: set() for name in rules}
        for name, body in rules.items():
            self._add_follow(name, body, 0, True)
        self._propagate_follow_sets()
        self.start_leaves = self._first[root].leaves

    def _find_first_sets(self) -> None:
        """Compute the beginning of each rule, repeatedly until nothing changes."""
        has_changed = True
        while has_changed:
            has_changed = False
            for name, body in self._rules.items():
                first = self._first_of(body)
                if first != self._first[name]:
                    self._first[name], has_changed = first, True

    def _first_of(self, node: Node) -> _First:
        match node:
            case LexemeNode() | TokenNode():
                return _First(1 << self._index[id(node)], self._is_nullable_leaf(node))
            case RefNode(name):
                return self._first[name]
            case SeqNode(items):
                leaves = 0
                for item in items:
                    first = self._first_of(item)
                    leaves |= first.leaves
                    if not first.is_nullable:
                        return _First(leaves, False)
                return _First(leaves, True)
            case AltNode(options):
                parts = [self._first_of(option) for option in options]
                return _First(union(part.leaves for part in parts), any(part.is_nullable for part in parts))
            case RepeatNode(item, min_count):
                first = self._first_of(item)
                return _First(first.leaves, first.is_nullable or min_count == 0)
        raise TypeError(node)

    def _add_follow(self, rule: str, node: Node, follow: int, is_last: bool) -> None:
        """Record the leaves that follow each leaf and each reference in a node.

        Args:
            rule: name of the rule that contains the node.
            node: the node.
            follow: the set of leaves that can follow the node within the rule.
            is_last: True if the rule can end with the node, so that leaves after the rule can follow the node.
        """
        match node:
            case LexemeNode() | TokenNode():
                index = self._index[id(node)]
                self.following_leaves[index] |= follow
                self._last_leaves[rule] |= is_last << index
            case RefNode(name):
                self._follow_of_rule[name] |= follow
                if is_last:
                    self._last_rules[rule].add(name)
            case AltNode(options):
                for option in options:
                    self._add_follow(rule, option, follow, is_last)
            case RepeatNode(item, _, max_count):
                repeated = 0 if max_count == 1 else self._first_of(item).leaves
                self._add_follow(rule, item, follow | repeated, is_last)
            case SeqNode(items):
                for item in reversed(items):
                    self._add_follow(rule, item, follow, is_last)
                    first = self._first_of(item)
                    follow = follow | first.leaves if first.is_nullable else first.leaves
                    is_last = is_last and first.is_nullable

    def _propagate_follow_sets(self) -> None:
        """Add the leaves that follow a rule to the rules and leaves at the end of this rule."""
        pending = list(self._rules)
        while pending:
            name = pending.pop()
            for last in self._last_rules[name]:
                if self._follow_of_rule[name] & ~self._follow_of_rule[last]:
                    self._follow_of_rule[last] |= self._follow_of_rule[name]
                    pending.append(last)
        for name, leaves in self._last_leaves.items():
            for index in bit_indices(leaves):
                self.following_leaves[index] |= self._follow_of_rule[name]

    def leaves_starting_together(self, have_common_text: Callable[[int, int], bool]) -> list[int]:
        """Return for each leaf the set of leaves that can start at the same position of a text.

        Two leaves that start at one position and match a common text can also end at one position. Leaves that
        follow them can then start together, too.

        Args:
            have_common_text: returns True if the two leaves with these indices match a common text.
        """
        starting_together = [0] * len(self.leaves)
        pending: list[tuple[int, int]] = []
        combined: set[tuple[int, int]] = set()

        def allow_same_start(first_leaves: int, second_leaves: int) -> None:
            if (first_leaves, second_leaves) in combined:
                return
            combined.add((first_leaves, second_leaves))
            for first in bit_indices(first_leaves):
                new_leaves = second_leaves & ~starting_together[first]
                starting_together[first] |= new_leaves
                pending.extend((first, second) for second in bit_indices(new_leaves))

        allow_same_start(self.start_leaves, self.start_leaves)
        while pending:
            first, second = pending.pop()
            if first == second or have_common_text(first, second):
                allow_same_start(self.following_leaves[first], self.following_leaves[second])
        return starting_together


class _LexemeSplitter:
    """Splits lexemes by one level: a sequence into its items, alternatives into their options, and so on.

    Args:
        to_split: the ids of the lexemes to split.
        rules: bodies of the rules that lexemes refer to, by name.
        copies_rules: True to copy a rule for each reference, because different text follows each reference.
        numbers: numbers for the names of the copies.

    Attributes:
        new_rules: bodies of the rules that are no longer part of a lexeme, by name.
    """

    def __init__(self, to_split: set[int], rules: Rules, copies_rules: bool, numbers: Iterator[int]) -> None:
        self.new_rules: dict[str, Node] = {}
        self._to_split = to_split
        self._rules = rules
        self._copies_rules = copies_rules
        self._numbers = numbers

    def split(self, part: Node) -> Node:
        """Return a rule's body with its lexemes split."""
        match part:
            case LexemeNode(node):
                return self._split_lexeme(node) if id(part) in self._to_split else part
            case SeqNode(items):
                return SeqNode(tuple(self.split(item) for item in items))
            case AltNode(options):
                return AltNode(tuple(self.split(option) for option in options))
            case RepeatNode(item, min_count, max_count):
                return RepeatNode(self.split(item), min_count, max_count)
            case _:
                return part

    def _split_lexeme(self, node: Node) -> Node:
        match node:
            case RefNode():
                return self._split_reference(node)
            case TextNode(text):
                return SeqNode(tuple(LexemeNode(TextNode(character)) for character in text))
            case SeqNode(items):
                return SeqNode(tuple(LexemeNode(item) for item in items))
            case AltNode(options):
                return AltNode(tuple(LexemeNode(option) for option in options))
            case RepeatNode(item, min_count, max_count):
                return RepeatNode(LexemeNode(item), min_count, max_count)
            case _:
                return LexemeNode(node)

    def _split_reference(self, ref: RefNode) -> Node:
        body = self._rules[ref.name]
        if not self._copies_rules:
            self.new_rules[ref.name] = LexemeNode(body)
            return ref
        if all(isinstance(part, (TextNode, CharsNode)) for part in children(body)):
            return self._split_lexeme(body)
        # The copy is a separate rule, because bodies inside bodies could be nested too deeply.
        name = f"{ref.name}_0_{next(self._numbers)}"
        self.new_rules[name] = LexemeNode(body)
        return RefNode(name, ref.position)
