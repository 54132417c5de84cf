"""The division of a grammar into lexemes, which llguidance's lexer reads as regular expressions.

Large lexemes make masks fast. But the lexer is greedy and never goes back. It ends a lexeme only if no lexeme that
it may be reading can continue. Suppose that two lexemes start together, and that one can continue where the other
has ended. Then the lexer would reject some texts of the grammar, so the lexeme that continues is split. Lexemes of
one character never continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, groupby
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

MAX_NODES = 100_000  # Maximum number of nodes of a grammar after lexemes are split. A lexeme counts as one node.


def split_into_lexemes(rules: Rules, regular: set[str], root: str) -> dict[str, Node]:
    """Return the bodies of the rules for llguidance's parser, by name. Their regular parts are lexemes."""
    # These rules are the start rule, the rules that are not regular, and regular rules that are too large for one
    # lexeme. Raises ``GrammarError`` for more than ``MAX_NODES`` nodes.
    parser_rules = {
        name: _put_into_lexemes(rules[name], regular) for name in _irregular_rules(rules, regular, root)
    }
    if root in regular:
        return parser_rules
    conflicts = _LexemeConflicts(rules)
    copy_numbers = count()
    while True:
        _reject_too_many_nodes(parser_rules)
        ids_to_split = conflicts.find_too_large(parser_rules)
        # A lexeme that is too large may refer to one rule many times. A copy of the rule at each reference would
        # make the grammar much larger.
        inlines_rules = not ids_to_split
        ids_to_split = ids_to_split or conflicts.find_conflicting(parser_rules, root)
        if not ids_to_split:
            return parser_rules
        splitter = _LexemeSplitter(ids_to_split, rules, inlines_rules, copy_numbers)
        parser_rules = {name: splitter.split(body) for name, body in parser_rules.items()}
        parser_rules |= {name: body for name, body in splitter.new_rules.items() if name not in parser_rules}


def _reject_too_many_nodes(parts: Rules) -> None:
    node_count = sum(1 for part in parts.values() for _ in walk(part))
    if node_count > MAX_NODES:
        raise GrammarError(f"the grammar is too large: {node_count:,} parts; the limit is {MAX_NODES:,}")


def _irregular_rules(rules: Rules, regular: set[str], root: str) -> list[str]:
    """Return the names of the start rule and of the irregular rules that it refers to, directly or not."""
    reached_names = {root: None}
    pending_names = [root]
    while pending_names:
        for node in walk(rules[pending_names.pop()]):
            if isinstance(node, RefNode) and node.name not in regular and node.name not in reached_names:
                reached_names[node.name] = None
                pending_names.append(node.name)
    return list(reached_names)


def _put_into_lexemes(node: Node, regular: set[str]) -> Node:
    """Replace the largest regular parts of a node by lexemes."""
    if is_regular(node, regular):
        return LexemeNode(node)
    match node:
        case SeqNode(items):
            return SeqNode(tuple(_group_regular_items(items, regular)))
        case AltNode(options):
            regular_options = [option for option in options if is_regular(option, regular)]
            irregular_options = [option for option in options if not is_regular(option, regular)]
            new_options = [_put_into_lexemes(option, regular) for option in irregular_options]
            if regular_options:
                new_options.insert(0, LexemeNode(make_alt(regular_options)))
            return AltNode(tuple(new_options))
        case RepeatNode(item, min_count, max_count):
            return RepeatNode(_put_into_lexemes(item, regular), min_count, max_count)
        case _:
            return node


def _group_regular_items(items: tuple[Node, ...], regular: set[str]) -> list[Node]:
    """Return the items of a sequence. Consecutive regular items become one lexeme."""
    grouped_items: list[Node] = []
    for is_run_regular, run in groupby(items, lambda item: is_regular(item, regular)):
        run_items = tuple(run)
        if not is_run_regular:
            grouped_items += [_put_into_lexemes(item, regular) for item in run_items]
        elif len(run_items) == 1:
            grouped_items.append(LexemeNode(run_items[0]))
        else:
            grouped_items.append(LexemeNode(SeqNode(run_items)))
    return grouped_items


# If there are more lexemes than this, all are split without comparisons, because each pair would be compared
_MAX_LEXEMES = 600

# Maximum number of steps of a grammar's comparisons. With more steps, all lexemes are split.
_MAX_COMPARISON_STEPS = 1_000_000

_TOKEN_BYTE = 1 << 0xFF  # the set of leading bytes of a token reference: 0xFF, with which no text begins


class _LexemeConflicts:
    """A search for the lexemes that must be split. Results of comparisons are cached."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._automata: dict[str, PositionAutomaton | None] = {}
        self._expression_by_id: dict[int, str] = {}
        self._kept_lexemes: list[LexemeNode] = []  # keeps lexemes alive, so that Python does not reuse their ids
        self._overlaps: dict[tuple[str | None, str | None], Overlap] = {}
        self._budget = StepBudget(_MAX_COMPARISON_STEPS)

    def find_too_large(self, parts: Rules) -> set[int]:
        """Return the ids of the lexemes that are too large, or of all lexemes if there are too many to compare."""
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

    def _compare_leaves(self, follow_sets: _FollowSets) -> set[int]:
        expressions = [
            None if isinstance(leaf, TokenNode) else self._expression_of(leaf) for leaf in follow_sets.leaves
        ]
        leading_bytes = [self._leading_bytes(leaf) for leaf in follow_sets.leaves]

        def have_common_text(first: int, second: int) -> bool:
            return self._overlap_of(expressions[first], expressions[second]).have_common_text

        conflicting_leaves = 0
        for index, other_leaves in enumerate(follow_sets.leaves_starting_together(have_common_text)):
            following_leaves = bit_indices(follow_sets.following_leaves[index])
            next_bytes = union(leading_bytes[follower] for follower in following_leaves)
            for other_index in bit_indices(other_leaves & ~conflicting_leaves):
                overlap = self._overlap_of(expressions[index], expressions[other_index])
                if overlap.continuing_bytes & next_bytes:
                    conflicting_leaves |= 1 << other_index
        return {id(follow_sets.leaves[index]) for index in bit_indices(conflicting_leaves)}

    def _overlap_of(self, first_expression: str | None, second_expression: str | None) -> Overlap:
        """Return the overlap of two leaves, given by their keys. The key of a token reference is None."""
        self._budget.spend(1)
        overlap = self._overlaps.get((first_expression, second_expression))
        if overlap is None:
            if first_expression is None or second_expression is None:
                # Two token references may refer to the same token. A token reference and a lexeme never match the
                # same text.
                are_both_tokens = first_expression is None and second_expression is None
                overlap = Overlap(have_common_text=are_both_tokens, continuing_bytes=0)
            else:
                overlap = self._compare_lexemes(first_expression, second_expression)
            self._overlaps[first_expression, second_expression] = overlap
        return overlap

    def _compare_lexemes(self, first_expression: str, second_expression: str) -> Overlap:
        first_automaton = self._automata[first_expression]
        second_automaton = self._automata[second_expression]
        no_overlap = Overlap(have_common_text=False, continuing_bytes=0)
        if first_automaton is None or second_automaton is None:
            return no_overlap
        if not first_automaton.leading_bytes & second_automaton.leading_bytes:
            return no_overlap
        return compare_automata(first_automaton, second_automaton, self._budget)

    def _expression_of(self, lexeme: LexemeNode) -> str:
        """Return the lexeme's expression. Lexemes with equal expressions share one automaton."""
        if id(lexeme) not in self._expression_by_id:
            self._expression_by_id[id(lexeme)] = expression(lexeme.node)
            self._kept_lexemes.append(lexeme)
        return self._expression_by_id[id(lexeme)]

    def _automaton(self, lexeme: LexemeNode) -> PositionAutomaton | None:
        """Return the automaton of a lexeme; None if it is too large."""
        expression_text = self._expression_of(lexeme)
        if expression_text not in self._automata:
            try:
                self._automata[expression_text] = build_automaton(lexeme.node, self._rules)
            except TooLargeError:
                self._automata[expression_text] = None
        return self._automata[expression_text]

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


class _NodeBeginning(NamedTuple):
    """The beginning of a node."""

    leaves: int  # the set of leaves that the node can begin with
    is_nullable: bool  # True if the node matches the empty text


class _FollowSets:
    """The leaves that can follow each leaf of a grammar. A leaf is a lexeme or a token reference."""

    # The context of a reference to a rule is ignored: what can follow one reference can follow all references to
    # the rule. A set of leaves is an int: bit i is 1 if ``leaves[i]`` is in the set.

    def __init__(self, rules: Rules, root: str, is_nullable_leaf: Callable[[Leaf], bool]) -> None:
        # the lexemes and token references of all rules
        self.leaves = [node for body in rules.values() for node in walk(body) if isinstance(node, Leaf)]
        self._index_by_leaf_id = {id(leaf): index for index, leaf in enumerate(self.leaves)}
        self._is_nullable_leaf = is_nullable_leaf
        self._rules = rules
        self._beginning_by_rule = dict.fromkeys(rules, _NodeBeginning(0, False))
        self._find_first_sets()
        self.following_leaves = [0] * len(self.leaves)  # for each leaf, the set of leaves that can follow it
        self._follow_of_rule = dict.fromkeys(rules, 0)
        self._last_leaves = dict.fromkeys(rules, 0)
        self._last_rules: dict[str, set[str]] = {name: set() for name in rules}
        for name, body in rules.items():
            self._record_followers(name, body, followers=0, is_last=True)
        self._propagate_follow_sets()
        # the set of leaves that a sentence can begin with
        self.start_leaves = self._beginning_by_rule[root].leaves

    def _find_first_sets(self) -> None:
        """Compute the beginning of each rule, repeatedly until nothing changes."""
        has_changed = True
        while has_changed:
            has_changed = False
            for name, body in self._rules.items():
                beginning = self._beginning_of(body)
                if beginning != self._beginning_by_rule[name]:
                    self._beginning_by_rule[name] = beginning
                    has_changed = True

    def _beginning_of(self, node: Node) -> _NodeBeginning:
        match node:
            case LexemeNode() | TokenNode():
                return _NodeBeginning(1 << self._index_by_leaf_id[id(node)], self._is_nullable_leaf(node))
            case RefNode(name):
                return self._beginning_by_rule[name]
            case SeqNode(items):
                leaves = 0
                for item in items:
                    beginning = self._beginning_of(item)
                    leaves |= beginning.leaves
                    if not beginning.is_nullable:
                        return _NodeBeginning(leaves, False)
                return _NodeBeginning(leaves, True)
            case AltNode(options):
                parts = [self._beginning_of(option) for option in options]
                return _NodeBeginning(
                    union(part.leaves for part in parts), any(part.is_nullable for part in parts)
                )
            case RepeatNode(item, min_count):
                beginning = self._beginning_of(item)
                return _NodeBeginning(beginning.leaves, beginning.is_nullable or min_count == 0)
        raise TypeError(node)

    def _record_followers(self, rule: str, node: Node, followers: int, is_last: bool) -> None:
        """Record the leaves that follow each leaf and each reference in a node."""
        # ``is_last``: the rule can end with the node, so that leaves after the rule can follow the node.
        match node:
            case LexemeNode() | TokenNode():
                index = self._index_by_leaf_id[id(node)]
                self.following_leaves[index] |= followers
                if is_last:
                    self._last_leaves[rule] |= 1 << index
            case RefNode(name):
                self._follow_of_rule[name] |= followers
                if is_last:
                    self._last_rules[rule].add(name)
            case AltNode(options):
                for option in options:
                    self._record_followers(rule, option, followers, is_last)
            case RepeatNode(item, _, max_count):
                repeated_leaves = 0 if max_count == 1 else self._beginning_of(item).leaves
                self._record_followers(rule, item, followers | repeated_leaves, is_last)
            case SeqNode(items):
                self._record_followers_of_items(rule, items, followers, is_last)

    def _record_followers_of_items(
        self, rule: str, items: tuple[Node, ...], followers: int, is_last: bool
    ) -> None:
        for item in reversed(items):
            self._record_followers(rule, item, followers, is_last)
            beginning = self._beginning_of(item)
            if beginning.is_nullable:
                followers |= beginning.leaves
            else:
                followers = beginning.leaves
                is_last = False

    def _propagate_follow_sets(self) -> None:
        """Add the leaves that follow a rule to the rules and leaves at the end of this rule."""
        pending_names = list(self._rules)
        while pending_names:
            name = pending_names.pop()
            for last_rule in self._last_rules[name]:
                if self._follow_of_rule[name] & ~self._follow_of_rule[last_rule]:
                    self._follow_of_rule[last_rule] |= self._follow_of_rule[name]
                    pending_names.append(last_rule)
        for name, leaves in self._last_leaves.items():
            for index in bit_indices(leaves):
                self.following_leaves[index] |= self._follow_of_rule[name]

    def leaves_starting_together(self, have_common_text: Callable[[int, int], bool]) -> list[int]:
        """Return for each leaf the set of leaves that can start at the same position of a text."""
        # If two leaves start at one position and match a common text, they can also end at one position. Then the
        # leaves that follow them can start together, too.
        starting_together = [0] * len(self.leaves)
        pending_pairs: list[tuple[int, int]] = []
        combined_sets: set[tuple[int, int]] = set()

        def allow_same_start(first_leaves: int, second_leaves: int) -> None:
            if (first_leaves, second_leaves) in combined_sets:
                return
            combined_sets.add((first_leaves, second_leaves))
            for first in bit_indices(first_leaves):
                new_leaves = second_leaves & ~starting_together[first]
                starting_together[first] |= new_leaves
                pending_pairs.extend((first, second) for second in bit_indices(new_leaves))

        allow_same_start(self.start_leaves, self.start_leaves)
        while pending_pairs:
            first, second = pending_pairs.pop()
            if first == second or have_common_text(first, second):
                allow_same_start(self.following_leaves[first], self.following_leaves[second])
        return starting_together


class _LexemeSplitter:
    """A division of lexemes by one level: a sequence into its items, alternatives into their options, …"""

    # With ``inlines_rules``, each reference gets its own copy of the rule, because different text follows each
    # reference.

    def __init__(
        self, ids_to_split: set[int], rules: Rules, inlines_rules: bool, copy_numbers: Iterator[int]
    ) -> None:
        self.new_rules: dict[str, Node] = {}  # bodies of the rules that are no longer part of a lexeme, by name
        self._ids_to_split = ids_to_split
        self._rules = rules
        self._inlines_rules = inlines_rules
        self._copy_numbers = copy_numbers

    def split(self, part: Node) -> Node:
        """Return a rule's body with its lexemes split."""
        match part:
            case LexemeNode(node):
                return self._split_lexeme(node) if id(part) in self._ids_to_split else part
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
                return self._rewrite_reference(node)
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

    def _rewrite_reference(self, ref: RefNode) -> Node:
        """Return the node that replaces a lexeme that is only a reference to a rule."""
        body = self._rules[ref.name]
        if not self._inlines_rules:
            self.new_rules[ref.name] = LexemeNode(body)
            return ref
        if all(isinstance(part, (TextNode, CharsNode)) for part in children(body)):
            return self._split_lexeme(body)
        # The copy is a separate rule, because bodies inside bodies could be nested too deeply.
        name = f"{ref.name}_0_{next(self._copy_numbers)}"
        self.new_rules[name] = LexemeNode(body)
        return RefNode(name, ref.position)
