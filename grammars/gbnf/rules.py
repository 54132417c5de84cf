"""Rules of GBNF: checked, made regular where this does not change the language, and simplified.

llguidance 1.9 panics on some regular expressions that match one character beyond ASCII in several ways: as a
literal and in classes, at several depths. In simplified rules each character occurs once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import inf
from typing import NamedTuple

from ...common.text import nearest_name
from ..errors import GrammarError
from .nodes import (
    EMPTY,
    AltNode,
    CharsNode,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    TokenNode,
    children,
    make_alt,
    make_repeat,
    make_seq,
    merge_ranges,
    references,
    walk,
)
from .parser import GbnfParser
from .shortest_texts import ShortestTexts

MAX_CHAIN = 500
"""The longest chain of rules, each of which names the next. llguidance follows a chain by recursion."""


def check_rules(parser: GbnfParser, root: str) -> None:
    """Check the rules that were parsed.

    Raises ``GrammarError`` for an undefined rule, a missing root, left recursion (as llama.cpp does), a root
    without an end, and chains of more than ``MAX_CHAIN`` rules.
    """
    rules = parser.rules
    undefined = [ref for body in rules.values() for ref in references(body) if ref.name not in rules]
    if undefined:
        first = min(undefined, key=lambda ref: ref.position)
        raise _error(parser, f"rule {first.name!r} is not defined{_hint(first.name, rules)}", first.position)
    if not rules:
        raise _error(parser, "the grammar is empty", 0)
    if root not in _written_names(rules):
        raise _error(parser, f"there is no rule {root!r} to begin with{_hint(root, rules)}", 0)
    _refuse_left_recursion(parser)
    if ShortestTexts(rules).length(rules[root]) == inf:
        raise _error(parser, f"no sentence of rule {root!r} ever ends", parser.positions[root])
    _refuse_long_chains(parser)


def _error(parser: GbnfParser, message: str, position: int) -> GrammarError:
    return GrammarError.at(message, parser.source, position)


def _hint(name: str, defined: Collection[str]) -> str:
    nearest = nearest_name(name, _written_names(defined))
    return f"; did you mean {nearest!r}?" if nearest else ""


def _written_names(names: Iterable[str]) -> list[str]:
    """The names that stand in the text, without those that the parser gave to groups."""
    return [name for name in names if "_" not in name]


def _refuse_left_recursion(parser: GbnfParser) -> None:
    nullable = _nullable_rules(parser.rules)
    leftmost = {name: list(_leftmost(body, nullable)) for name, body in parser.rules.items()}
    checked: set[str] = set()
    # Rules before groups, so that a message names the rule in which a group stands.
    for name in sorted(parser.rules, key=lambda name: "_" in name):
        _refuse_left_recursion_from(name, parser, leftmost, checked)


def _leftmost(node: Node, nullable: Collection[str]) -> Iterator[RefNode]:
    """The references with which a node can begin."""
    match node:
        case RefNode():
            yield node
        case SeqNode(items):
            for item in items:
                yield from _leftmost(item, nullable)
                if not _is_nullable(item, nullable):
                    return
        case _:
            for child in children(node):
                yield from _leftmost(child, nullable)


def _refuse_left_recursion_from(
    start: str, parser: GbnfParser, leftmost: dict[str, list[RefNode]], checked: set[str]
) -> None:
    """Raise ``GrammarError`` if a rule that ``start`` can begin with begins with itself.

    A depth-first search with its own stack, since a chain of rules may be longer than Python's.

    Args:
        start: the rule from which the search goes out.
        parser: for the position of an error.
        leftmost: the references with which each rule can begin.
        checked: the rules that were searched; those found are added.
    """
    if start in checked:
        return
    path: dict[str, None] = {start: None}
    stack = [(start, iter(leftmost[start]))]
    while stack:
        name, remaining = stack[-1]
        ref = next(remaining, None)
        if ref is None:
            stack.pop()
            path.pop(name)
            checked.add(name)
        elif ref.name in path:
            names = list(path)
            cycle = _written_names([*names[names.index(ref.name) :], ref.name])
            if cycle[:1] != cycle[1:][-1:]:
                cycle += cycle[:1]  # a group began the cycle
            raise _error(parser, f"left recursion: {' > '.join(cycle)} comes back before any text", ref.position)
        elif ref.name not in checked:
            path[ref.name] = None
            stack.append((ref.name, iter(leftmost[ref.name])))


def _refuse_long_chains(parser: GbnfParser) -> None:
    """A depth-first search in the order of the text, with its own stack. A rule that is still open counts as 0."""
    refs = {name: references(body) for name, body in parser.rules.items()}
    lengths: dict[str, int] = {}
    for start, start_refs in refs.items():
        stack = [] if start in lengths else [(start, iter(start_refs))]
        lengths.setdefault(start, 0)
        while stack:
            name, remaining = stack[-1]
            ref = next(remaining, None)
            if ref is None:
                stack.pop()
                lengths[name] = 1 + max((lengths[ref.name] for ref in refs[name]), default=0)
                if lengths[name] > MAX_CHAIN:
                    message = f"rule {name!r} begins a chain of more than {MAX_CHAIN} rules"
                    raise _error(parser, message, parser.positions[name])
            elif ref.name not in lengths:
                lengths[ref.name] = 0
                stack.append((ref.name, iter(refs[ref.name])))


def _nullable_rules(rules: Rules) -> set[str]:
    """The names of the rules that can be the empty text."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, body in rules.items():
        for node in walk(body):
            if isinstance(node, RefNode):
                users[node.name].add(name)
    nullable: set[str] = set()
    pending = list(rules)
    while pending:
        name = pending.pop()
        if name not in nullable and _is_nullable(rules[name], nullable):
            nullable.add(name)
            pending.extend(users[name])  # these may be nullable now, too
    return nullable


def _is_nullable(node: Node, nullable: Collection[str]) -> bool:
    """True if the node can be the empty text, given the names of the rules that can."""
    match node:
        case SeqNode(items):
            return all(_is_nullable(item, nullable) for item in items)
        case AltNode(options):
            return any(_is_nullable(option, nullable) for option in options)
        case RepeatNode(item, min_count):
            return min_count == 0 or _is_nullable(item, nullable)
        case RefNode(name):
            return name in nullable
        case _:
            return False


def regular_rules(rules: Rules) -> set[str]:
    """The names of the rules that are regular: they neither recur nor name tokens, nor do the rules they name."""
    # What a rule still waits for: the rules that it names and that are not known to be regular.
    unresolved: dict[str, set[str]] = {}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        nodes = list(walk(body))
        unresolved[name] = {node.name for node in nodes if isinstance(node, RefNode)}
        if any(isinstance(node, TokenNode) for node in nodes):
            unresolved[name].add(name)  # never resolved
        for used in unresolved[name]:
            users[used].append(name)
    regular: set[str] = set()
    pending = [name for name in rules if not unresolved[name]]
    while pending:
        name = pending.pop()
        regular.add(name)
        for user in users[name]:
            unresolved[user].discard(name)
            if not unresolved[user]:
                pending.append(user)
    return regular


def is_regular(node: Node, regular: Collection[str]) -> bool:
    """True if the node names no tokens and only rules that are in ``regular``."""
    return not any(
        isinstance(part, TokenNode) or (isinstance(part, RefNode) and part.name not in regular)
        for part in walk(node)
    )


def without_tail_recursion(rules: Rules) -> dict[str, Node]:
    """Write ``x ::= a x | b`` as ``x ::= a* b``, which is the same language, and regular where a and b are.

    Without left recursion, a grammar has to write its lists with recursion at the end. An Earley parser pays for
    each turn of them that is still open, but not for a repetition.
    """
    return {name: _as_repetition(name, body) for name, body in rules.items()}


class _Split(NamedTuple):
    """A rule's body in two parts.

    ``turns``: what stands before each recursion at its end; ``ending``: the options without one, None if there
    are none.
    """

    turns: list[Node]
    ending: Node | None


def _as_repetition(name: str, body: Node) -> Node:
    turns, ending = _split(name, body)
    if not turns or ending is None:
        return body
    return make_seq([make_repeat(make_alt(turns), 0, None), ending])


def _split(name: str, node: Node) -> _Split:
    """Split a body, or the end of a body, of the rule ``name``."""
    match node:
        case RefNode(other) if other == name:
            return _Split([EMPTY], None)
        case SeqNode((*before, last)):
            turns, ending = _split(name, last)
            return _Split(
                [make_seq([*before, turn]) for turn in turns],
                None if ending is None else make_seq([*before, ending]),
            )
        case AltNode(options):
            splits = [_split(name, option) for option in options]
            endings = [split.ending for split in splits if split.ending is not None]
            turns = [turn for split in splits for turn in split.turns]
            return _Split(turns, make_alt(endings) if endings else None)
        case RepeatNode(item, 0, 1):
            turns, ending = _split(name, item)
            if not turns:
                return _Split([], node)
            return _Split(turns, make_alt([EMPTY if ending is None else ending, EMPTY]))
        case _:
            return _Split([], node)


MAX_INLINED = 30
"""The largest rule that takes the place of its references: nodes, characters and ranges together."""


def simplify_rules(rules: Rules) -> Rules:
    """Merge the single characters of alternatives, join the texts of sequences, and inline small rules."""
    return _Simplifier(dict(rules)).rules


class _Simplifier:
    def __init__(self, rules: dict[str, Node]) -> None:
        self.rules = rules
        # Backward for rules that stand before those that they name, then forward for the others.
        for name in (*reversed(rules), *rules):
            self.rules[name] = self._simplify(self.rules[name])

    def _simplify(self, node: Node) -> Node:
        match node:
            case SeqNode(items):
                return make_seq([_single_character_as_text(self._inlined(item)) for item in items])
            case AltNode(options):
                return _merge_characters([self._inlined(option) for option in options])
            case RepeatNode(item, min_count, max_count):
                return make_repeat(self._simplify(item), min_count, max_count)
            case _:
                return node

    def _inlined(self, node: Node) -> Node:
        """An item or option, simplified; in place of a reference the rule's body if that may be inlined."""
        if not isinstance(node, RefNode):
            return self._simplify(node)
        body = self.rules.get(node.name)
        return body if body is not None and _may_be_inlined(body) else node


def _may_be_inlined(body: Node) -> bool:
    """True if the body names no rule and is at most ``MAX_INLINED`` large."""
    size = 0
    for part in walk(body):
        match part:
            case TextNode(text):
                size += len(text)
            case CharsNode(ranges):
                size += len(ranges)
            case _:
                size += 1
        if isinstance(part, RefNode) or size > MAX_INLINED:
            return False
    return True


def _single_character_as_text(node: Node) -> Node:
    """A class of a single character as a text; any other node as it is."""
    if isinstance(node, CharsNode) and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return TextNode(chr(node.ranges[0][0]))
    return node


def _merge_characters(options: list[Node]) -> Node:
    """Alternatives with all their single characters in one class, and no text twice."""
    flat = make_alt(options)
    if not isinstance(flat, AltNode):
        return flat
    ranges: list[tuple[int, int]] = []
    texts: set[str] = set()
    others: list[Node] = []
    for option in flat.options:
        match option:
            case CharsNode(option_ranges):
                ranges.extend(option_ranges)
            case TextNode(text) if len(text) == 1:
                ranges.append((ord(text), ord(text)))
            case TextNode(text) if text in texts:
                pass
            case _:
                if isinstance(option, TextNode):
                    texts.add(option.text)
                others.append(option)
    return make_alt([CharsNode(merge_ranges(ranges)), *others] if ranges else others)
