"""Which lexeme of a grammar can come first, which after which, and which can begin at the same place."""

from __future__ import annotations

from collections.abc import Callable

from .nodes import AltNode, LexemeNode, Node, RefNode, RepeatNode, Rules, SeqNode, TokenNode, walk
from .position_automaton import bits

Leaf = LexemeNode | TokenNode


class FollowSets:
    """The leaves of a grammar's rules, and their order, whatever the way by which a rule was reached.

    Sets of leaves are the bits of an int, by the place of the leaf in ``leaves``. ``start``: the leaves that a
    text can begin with; ``next[i]``: those that can follow leaf i.
    """

    def __init__(self, rules: Rules, root: str, empty: Callable[[Leaf], bool]) -> None:
        self.leaves = [node for body in rules.values() for node in walk(body) if isinstance(node, Leaf)]
        self._number = {id(leaf): number for number, leaf in enumerate(self.leaves)}
        self._empty_leaf = empty
        self._rules = rules
        self._first: dict[str, tuple[int, bool]] = dict.fromkeys(rules, (0, False))
        self._settle()
        self.next = [0] * len(self.leaves)
        self._after = dict.fromkeys(rules, 0)
        self._ends: dict[str, int] = dict.fromkeys(rules, 0)
        self._hands_on: dict[str, set[str]] = {name: set() for name in rules}
        for name, body in rules.items():
            self._place(name, body, 0, True)
        self._spread()
        self.start = self._first[root][0]

    def _settle(self) -> None:
        """Find what each rule begins with and whether it can be empty, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for name, body in self._rules.items():
                found = self._first_of(body)
                if found != self._first[name]:
                    self._first[name], changed = found, True

    def _first_of(self, node: Node) -> tuple[int, bool]:
        match node:
            case LexemeNode() | TokenNode():
                return 1 << self._number[id(node)], self._empty_leaf(node)
            case RefNode(name):
                return self._first[name]
            case SeqNode(items):
                found = 0
                for item in items:
                    first, empty = self._first_of(item)
                    found |= first
                    if not empty:
                        return found, False
                return found, True
            case AltNode(options):
                parts = [self._first_of(option) for option in options]
                found = 0
                for first, _ in parts:
                    found |= first
                return found, any(empty for _, empty in parts)
            case RepeatNode(item, least):
                first, empty = self._first_of(item)
                return first, empty or least == 0
        raise TypeError(node)

    def _place(self, rule: str, node: Node, after: int, at_end: bool) -> None:
        """Note what follows each leaf below a node: ``after``, and at the rule's end what follows the rule."""
        match node:
            case LexemeNode() | TokenNode():
                number = self._number[id(node)]
                self.next[number] |= after
                self._ends[rule] |= at_end << number
            case RefNode(name):
                self._after[name] |= after
                if at_end:
                    self._hands_on[rule].add(name)
            case AltNode(options):
                for option in options:
                    self._place(rule, option, after, at_end)
            case RepeatNode(item, _, most):
                self._place(rule, item, after | (0 if most == 1 else self._first_of(item)[0]), at_end)
            case SeqNode(items):
                for item in reversed(items):
                    self._place(rule, item, after, at_end)
                    first, empty = self._first_of(item)
                    after, at_end = (after | first, at_end) if empty else (first, False)

    def _spread(self) -> None:
        """Give what follows a rule to the rules and the leaves at its end."""
        todo = list(self._rules)
        while todo:
            name = todo.pop()
            for inner in self._hands_on[name]:
                if self._after[name] & ~self._after[inner]:
                    self._after[inner] |= self._after[name]
                    todo.append(inner)
        for name, ends in self._ends.items():
            for number in bits(ends):
                self.next[number] |= self._after[name]

    def together(self, meet: Callable[[int, int], bool]) -> list[int]:
        """For each leaf those that can begin at the same place. ``meet``: can two leaves read the same text?"""
        found = [0] * len(self.leaves)
        todo: list[tuple[int, int]] = []
        joined: set[tuple[int, int]] = set()

        def join(some: int, others: int) -> None:
            if (some, others) in joined:
                return
            joined.add((some, others))
            for one in bits(some):
                new = others & ~found[one]
                found[one] |= new
                todo.extend((one, other) for other in bits(new))

        join(self.start, self.start)
        while todo:
            one, other = todo.pop()
            if one == other or meet(one, other):
                join(self.next[one], self.next[other])
        return found
