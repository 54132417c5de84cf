"""Cuts a grammar into lexemes: the pieces that the mask engine reads as regular expressions.

The engine's lexer is greedy: it ends a lexeme only where none of those that it may be reading can go on, and
never looks back. The larger the lexemes, the faster the masks; but one may go on only where its neighbours cannot
have ended: else a text of the grammar would be refused. Where that can happen, the lexeme that goes on is taken
apart, if need be down to single characters, with which nothing can go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from ..errors import GrammarError
from .follow_sets import FollowSets, Leaf
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
    children,
    make_alt,
    walk,
)
from .position_automaton import Overlap, PositionAutomaton, StepBudget, TooLargeError, automaton, bits, shared

MAX_LEXEMES = 600
"""With more of them they are not compared, but all taken apart."""

MAX_PARTS = 100_000
"""Of how many nodes a grammar may be, lexemes for leaves, when all is taken apart that has to be."""

MAX_WORK = 1_000_000
"""How many steps the comparing of lexemes may take; after that all are taken apart."""

_TOKEN_LEAD = 1 << 0xFF  # no text begins with this byte


def cut(rules: Rules, regular: set[str], root: str) -> dict[str, Node]:
    """Return the rules that are not regular, and the root, with lexemes in place of what is regular in them.

    Of the regular ones those are among them too that are too large for one lexeme. Raises ``GrammarError`` where
    there are more than ``MAX_PARTS`` nodes.
    """
    parts = {name: _split(rules[name], regular) for name in _reached(rules, regular, root)}
    if root in regular:
        return parts
    compare = _Comparison(rules)
    numbers = count()
    while True:
        _refuse_many(parts)
        doomed = compare.too_large(parts)
        # What is too large may be so by naming one rule over and over: such a rule stays one.
        inline = not doomed
        doomed = doomed or compare.in_the_way(parts, root)
        if not doomed:
            break
        opening = _Opening(doomed, rules, inline, numbers)
        parts = {name: opening.of(part) for name, part in parts.items()}
        parts |= {name: part for name, part in opening.named.items() if name not in parts}
    return parts


def _refuse_many(parts: Rules) -> None:
    found = sum(1 for part in parts.values() for _ in walk(part))
    if found > MAX_PARTS:
        raise GrammarError(f"the grammar is too large: {found:,} parts; at most {MAX_PARTS:,} are taken")


def _reached(rules: Rules, regular: set[str], root: str) -> list[str]:
    found = {root: None}
    todo = [root]
    while todo:
        for node in walk(rules[todo.pop()]):
            if isinstance(node, RefNode) and node.name not in regular and node.name not in found:
                found[node.name] = None
                todo.append(node.name)
    return list(found)


def _split(node: Node, regular: set[str]) -> Node:
    """Put the largest regular parts of a node into lexemes."""
    if _is_regular(node, regular):
        return LexemeNode(node)
    match node:
        case SeqNode(items):
            return SeqNode(tuple(_grouped(items, regular)))
        case AltNode(options):
            plain = [option for option in options if _is_regular(option, regular)]
            rest = [_split(option, regular) for option in options if not _is_regular(option, regular)]
            return AltNode((*([LexemeNode(make_alt(plain))] if plain else []), *rest))
        case RepeatNode(item, least, most):
            return RepeatNode(_split(item, regular), least, most)
        case _:
            return node


def _grouped(items: tuple[Node, ...], regular: set[str]) -> list[Node]:
    found: list[Node] = []
    group: list[Node] = []
    for item in (*items, None):
        if item is not None and _is_regular(item, regular):
            group.append(item)
            continue
        if group:
            found.append(LexemeNode(SeqNode(tuple(group)) if len(group) > 1 else group[0]))
            group = []
        if item is not None:
            found.append(_split(item, regular))
    return found


def _is_regular(node: Node, regular: set[str]) -> bool:
    return not any(
        isinstance(part, TokenNode) or (isinstance(part, RefNode) and part.name not in regular)
        for part in walk(node)
    )


class _Comparison:
    """Finds lexemes that stand in the way of others; remembers what it has compared."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._automata: dict[str, PositionAutomaton | None] = {}
        self._keys: dict[int, str] = {}
        self._kept: list[LexemeNode] = []  # so that no id is used again
        self._known: dict[tuple[str | None, str | None], Overlap] = {}
        self._work = StepBudget(MAX_WORK)

    def too_large(self, parts: Rules) -> set[int]:
        """The ids of the lexemes to take apart because of their size, or of the work to compare them."""
        lexemes = _lexemes(parts)
        if len(lexemes) > MAX_LEXEMES or self._work.left < 0:
            return {id(lexeme) for lexeme in lexemes if not _is_one_character(lexeme.node)}
        return {id(lexeme) for lexeme in lexemes if self._automaton(lexeme) is None}

    def in_the_way(self, parts: Rules, root: str) -> set[int]:
        """The ids of the lexemes to take apart because they go on where another may have ended."""
        if len(_lexemes(parts)) > MAX_LEXEMES or self._work.left < 0:
            return set()  # each is one character
        try:
            return self._in_the_way(FollowSets(parts, root, self._is_empty))
        except TooLargeError:
            return self.too_large(parts)

    def _in_the_way(self, flow: FollowSets) -> set[int]:
        keys = [None if isinstance(leaf, TokenNode) else self._key(leaf) for leaf in flow.leaves]
        leads = [self._leads(leaf) for leaf in flow.leaves]
        found = 0
        for number, others in enumerate(flow.together(lambda a, b: self._of(keys[a], keys[b]).meet)):
            after = 0
            for follower in bits(flow.next[number]):
                after |= leads[follower]
            for other in bits(others & ~found):
                if self._of(keys[number], keys[other]).beyond & after:
                    found |= 1 << other
        return {id(flow.leaves[number]) for number in bits(found)}

    def _of(self, one: str | None, other: str | None) -> Overlap:
        """What two leaves have in common; None is a token."""
        self._work.spend(1)
        known = self._known.get((one, other))
        if known is None:
            # Two tokens may be one and the same; a token and a text are never taken for each other.
            named = one is None or other is None
            known = Overlap(one is other, 0) if named else self._compare(str(one), str(other))
            self._known[one, other] = known
        return known

    def _compare(self, one: str, other: str) -> Overlap:
        first, second = self._automata[one], self._automata[other]
        if first is None or second is None or not first.leads & second.leads:
            return Overlap(False, 0)
        return shared(first, second, self._work)

    def _key(self, lexeme: LexemeNode) -> str:
        if id(lexeme) not in self._keys:
            self._keys[id(lexeme)] = expression(lexeme.node)
            self._kept.append(lexeme)
        return self._keys[id(lexeme)]

    def _automaton(self, lexeme: LexemeNode) -> PositionAutomaton | None:
        """The automaton of a lexeme, None if it is too large."""
        key = self._key(lexeme)
        if key not in self._automata:
            try:
                self._automata[key] = automaton(lexeme.node, self._rules)
            except TooLargeError:
                self._automata[key] = None
        return self._automata[key]

    def _is_empty(self, leaf: Leaf) -> bool:
        known = None if isinstance(leaf, TokenNode) else self._automaton(leaf)
        return known is not None and known.empty

    def _leads(self, leaf: Leaf) -> int:
        known = None if isinstance(leaf, TokenNode) else self._automaton(leaf)
        return _TOKEN_LEAD if known is None else known.leads


def _is_one_character(node: Node) -> bool:
    return isinstance(node, CharsNode) or (isinstance(node, TextNode) and len(node.text) == 1)


def _lexemes(parts: Rules) -> list[LexemeNode]:
    return [node for part in parts.values() for node in walk(part) if isinstance(node, LexemeNode)]


class _Opening:
    """Takes lexemes apart by one level.

    ``named``: the rules that stand in lexemes no more, but by themselves. ``inline``: each place where a rule is
    named gets its own, since something else comes after it there.
    """

    def __init__(self, doomed: set[int], rules: Rules, inline: bool, numbers: Iterator[int]) -> None:
        self._doomed = doomed
        self._inline = inline
        self.named: dict[str, Node] = {}
        self._rules = rules
        self._numbers = numbers

    def of(self, part: Node) -> Node:
        """A rule in which these lexemes are taken apart."""
        match part:
            case LexemeNode(node):
                return self._apart(node) if id(part) in self._doomed else part
            case SeqNode(items):
                return SeqNode(tuple(self.of(item) for item in items))
            case AltNode(options):
                return AltNode(tuple(self.of(option) for option in options))
            case RepeatNode(item, least, most):
                return RepeatNode(self.of(item), least, most)
            case _:
                return part

    def _apart(self, node: Node) -> Node:
        match node:
            case RefNode():
                return self._opened(node)
            case TextNode(text):
                return SeqNode(tuple(LexemeNode(TextNode(character)) for character in text))
            case SeqNode(items):
                return SeqNode(tuple(LexemeNode(item) for item in items))
            case AltNode(options):
                return AltNode(tuple(LexemeNode(option) for option in options))
            case RepeatNode(item, least, most):
                return RepeatNode(LexemeNode(item), least, most)
            case _:
                return LexemeNode(node)

    def _opened(self, ref: RefNode) -> Node:
        body = self._rules[ref.name]
        if not self._inline:
            self.named[ref.name] = LexemeNode(body)
            return ref
        if all(isinstance(part, (TextNode, CharsNode)) for part in children(body)):
            return self._apart(body)
        # Others would nest in each other without end.
        fresh = f"{ref.name}_0_{next(self._numbers)}"
        self.named[fresh] = LexemeNode(body)
        return RefNode(fresh, ref.at)
