"""FIRST and FOLLOW sets of a grammar's leaves, and which leaves can begin at the same place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .bit_sets import bit_indices, union
from .nodes import AltNode, LexemeNode, Node, RefNode, RepeatNode, Rules, SeqNode, TokenNode, walk

Leaf = LexemeNode | TokenNode


class _First(NamedTuple):
    """The leaves with which a node can begin, and whether it can be empty."""

    leaves: int
    is_nullable: bool


class FollowSets:
    """The leaves of a grammar's rules and their order, regardless of how a rule was reached.

    Sets of leaves are the bits of an int: bit i is ``leaves[i]``.

    Attributes:
        leaves: the lexemes and tokens of all rules.
        first: the leaves with which a text can begin.
        follow: the leaves that can come after each leaf.
    """

    def __init__(self, rules: Rules, root: str, is_nullable_leaf: Callable[[Leaf], bool]) -> None:
        self.leaves = [node for body in rules.values() for node in walk(body) if isinstance(node, Leaf)]
        self._index = {id(leaf): index for index, leaf in enumerate(self.leaves)}
        self._is_nullable_leaf = is_nullable_leaf
        self._rules = rules
        self._first = dict.fromkeys(rules, _First(0, False))
        self._find_first_sets()
        self.follow = [0] * len(self.leaves)
        self._follow_of_rule = dict.fromkeys(rules, 0)
        self._last_leaves = dict.fromkeys(rules, 0)
        self._last_rules: dict[str, set[str]] = {name: set() for name in rules}
        for name, body in rules.items():
            self._add_follow(name, body, 0, True)
        self._spread_follow_of_rules()
        self.first = self._first[root].leaves

    def _find_first_sets(self) -> None:
        """Find what each rule begins with and whether it can be empty, until nothing changes."""
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
            case RepeatNode(item, least):
                first = self._first_of(item)
                return _First(first.leaves, first.is_nullable or least == 0)
        raise TypeError(node)

    def _add_follow(self, rule: str, node: Node, follow: int, is_last: bool) -> None:
        """Note what follows each leaf and each rule in a node.

        Args:
            rule: the rule in which the node stands.
            node: the node.
            follow: the leaves that follow the node within the rule.
            is_last: True if the rule can end with the node; what follows the rule then follows the node.
        """
        match node:
            case LexemeNode() | TokenNode():
                index = self._index[id(node)]
                self.follow[index] |= follow
                self._last_leaves[rule] |= is_last << index
            case RefNode(name):
                self._follow_of_rule[name] |= follow
                if is_last:
                    self._last_rules[rule].add(name)
            case AltNode(options):
                for option in options:
                    self._add_follow(rule, option, follow, is_last)
            case RepeatNode(item, _, most):
                again = 0 if most == 1 else self._first_of(item).leaves
                self._add_follow(rule, item, follow | again, is_last)
            case SeqNode(items):
                for item in reversed(items):
                    self._add_follow(rule, item, follow, is_last)
                    first = self._first_of(item)
                    follow = follow | first.leaves if first.is_nullable else first.leaves
                    is_last = is_last and first.is_nullable

    def _spread_follow_of_rules(self) -> None:
        """Give what follows a rule to the rules and the leaves at its end."""
        pending = list(self._rules)
        while pending:
            name = pending.pop()
            for last in self._last_rules[name]:
                if self._follow_of_rule[name] & ~self._follow_of_rule[last]:
                    self._follow_of_rule[last] |= self._follow_of_rule[name]
                    pending.append(last)
        for name, leaves in self._last_leaves.items():
            for index in bit_indices(leaves):
                self.follow[index] |= self._follow_of_rule[name]

    def concurrent_leaves(self, share_a_text: Callable[[int, int], bool]) -> list[int]:
        """Return for each leaf the leaves that can begin at the same place.

        ``share_a_text(i, j)`` says whether the leaves i and j match a common text. If they do and begin at the
        same place, what follows them begins at the same place too.
        """
        concurrent = [0] * len(self.leaves)
        pending: list[tuple[int, int]] = []
        joined: set[tuple[int, int]] = set()

        def join(some: int, others: int) -> None:
            if (some, others) in joined:
                return
            joined.add((some, others))
            for one in bit_indices(some):
                new = others & ~concurrent[one]
                concurrent[one] |= new
                pending.extend((one, other) for other in bit_indices(new))

        join(self.first, self.first)
        while pending:
            one, other = pending.pop()
            if one == other or share_a_text(one, other):
                join(self.follow[one], self.follow[other])
        return concurrent
