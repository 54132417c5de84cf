"""Checks of GBNF rules, and transformations that keep the language: removal of tail recursion, and simplification.

llguidance 1.9 panics on some regular expressions in which a non-ASCII character occurs several times as an
alternative, for example as a literal and in a class. In simplified rules, each alternative character occurs once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import inf
from typing import NamedTuple

from ...common.text import unknown_name
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

# Maximum length of a chain of rules that refer to the next one. llguidance follows a chain by recursion.
MAX_CHAIN = 500


def check_rules(parser: GbnfParser, root: str) -> None:
    """Check the parsed rules."""
    # Raises ``GrammarError`` for undefined rules, a missing start rule, left recursion (as llama.cpp does), a
    # start rule whose sentences are all infinite, and chains of more than ``MAX_CHAIN`` rules.
    rules = parser.rules
    undefined_references = [ref for body in rules.values() for ref in references(body) if ref.name not in rules]
    if undefined_references:
        first_undefined = min(undefined_references, key=lambda ref: ref.position)
        problem = unknown_name("rule", first_undefined.name, _written_names(rules))
        raise _error_at(parser, problem, first_undefined.position)
    if not rules:
        raise _error_at(parser, "the grammar is empty", 0)
    if root not in _written_names(rules):
        raise _error_at(parser, unknown_name("root rule", root, _written_names(rules)), 0)
    _reject_left_recursion(parser)
    if ShortestTexts(rules).length(rules[root]) == inf:
        raise _error_at(parser, f"no sentence of rule {root!r} ever ends", parser.positions[root])
    _reject_long_chains(parser)


def _error_at(parser: GbnfParser, message: str, position: int) -> GrammarError:
    return GrammarError.in_source(message, parser.source, position)


def _written_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur in the source, without the names that the parser generates for groups."""
    return [name for name in names if "_" not in name]


def _reject_left_recursion(parser: GbnfParser) -> None:
    nullable_names = _nullable_rules(parser.rules)
    leftmost_by_rule = {
        name: list(_leftmost_references(body, nullable_names)) for name, body in parser.rules.items()
    }
    checked_names: set[str] = set()
    # Rules precede groups, so that an error message has the name of the rule that contains the group.
    for name in sorted(parser.rules, key=lambda name: "_" in name):
        _reject_left_recursion_from(name, parser, leftmost_by_rule, checked_names)


def _leftmost_references(node: Node, nullable: Collection[str]) -> Iterator[RefNode]:
    """Yield the references that a node can begin with."""
    match node:
        case RefNode():
            yield node
        case SeqNode(items):
            for item in items:
                yield from _leftmost_references(item, nullable)
                if not _is_nullable(item, nullable):
                    return
        case _:
            for child in children(node):
                yield from _leftmost_references(child, nullable)


def _reject_left_recursion_from(
    start_name: str, parser: GbnfParser, leftmost_by_rule: dict[str, list[RefNode]], checked_names: set[str]
) -> None:
    """Raise ``GrammarError`` if ``start_name``, or a rule that it can begin with, is left-recursive."""
    # This is a depth-first search with an explicit stack, because a chain of rules may exceed Python's call stack.
    # Names that are not left-recursive are added to ``checked_names``.
    if start_name in checked_names:
        return
    path: dict[str, None] = {start_name: None}
    stack = [(start_name, iter(leftmost_by_rule[start_name]))]
    while stack:
        name, remaining_references = stack[-1]
        ref = next(remaining_references, None)
        if ref is None:
            stack.pop()
            path.pop(name)
            checked_names.add(name)
        elif ref.name in path:
            names_on_path = list(path)
            cycle = names_on_path[names_on_path.index(ref.name) :]
            written_names = _written_names(cycle)
            shown_cycle = " > ".join([*written_names, *written_names[:1]])
            raise _error_at(
                parser, f"left recursion: {shown_cycle} is reached again before any text", ref.position
            )
        elif ref.name not in checked_names:
            path[ref.name] = None
            stack.append((ref.name, iter(leftmost_by_rule[ref.name])))


def _reject_long_chains(parser: GbnfParser) -> None:
    """Raise ``GrammarError`` for a chain of more than ``MAX_CHAIN`` rules."""
    # This is a depth-first search with an explicit stack. A rule on the stack counts as a chain of length 0. So a
    # recursive reference adds nothing.
    references_by_rule = {name: references(body) for name, body in parser.rules.items()}
    chain_lengths: dict[str, int] = {}
    for start_name, start_references in references_by_rule.items():
        if start_name in chain_lengths:
            continue
        chain_lengths[start_name] = 0
        stack = [(start_name, iter(start_references))]
        while stack:
            name, remaining_references = stack[-1]
            ref = next(remaining_references, None)
            if ref is None:
                stack.pop()
                following_lengths = [chain_lengths[ref.name] for ref in references_by_rule[name]]
                chain_lengths[name] = 1 + max(following_lengths, default=0)
                if chain_lengths[name] > MAX_CHAIN:
                    message = f"rule {name!r} begins a chain of more than {MAX_CHAIN} rules"
                    raise _error_at(parser, message, parser.positions[name])
            elif ref.name not in chain_lengths:
                chain_lengths[ref.name] = 0
                stack.append((ref.name, iter(references_by_rule[ref.name])))


def _nullable_rules(rules: Rules) -> set[str]:
    """Return the names of the rules that match the empty text."""
    users_by_name: dict[str, set[str]] = {name: set() for name in rules}
    for name, body in rules.items():
        for node in walk(body):
            if isinstance(node, RefNode):
                users_by_name[node.name].add(name)
    nullable_names: set[str] = set()
    pending_names = list(rules)
    while pending_names:
        name = pending_names.pop()
        if name not in nullable_names and _is_nullable(rules[name], nullable_names):
            nullable_names.add(name)
            pending_names.extend(users_by_name[name])  # rules that refer to this rule may be nullable, too
    return nullable_names


def _is_nullable(node: Node, nullable: Collection[str]) -> bool:
    """Return True if the node matches the empty text. ``nullable``: names of the rules that match this text."""
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
    """Return the names of the regular rules."""
    # A regular rule has no recursion and no token references, and refers only to regular rules.
    # For each rule, the referenced rules that are not known to be regular.
    irregular_references: dict[str, set[str]] = {}
    users_by_name: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        nodes = list(walk(body))
        irregular_references[name] = {node.name for node in nodes if isinstance(node, RefNode)}
        if any(isinstance(node, TokenNode) for node in nodes):
            irregular_references[name].add(name)  # never removed, so that the rule is not regular
        for used in irregular_references[name]:
            users_by_name[used].append(name)
    regular_names: set[str] = set()
    pending_names = [name for name in rules if not irregular_references[name]]
    while pending_names:
        name = pending_names.pop()
        regular_names.add(name)
        for user in users_by_name[name]:
            irregular_references[user].discard(name)
            if not irregular_references[user]:
                pending_names.append(user)
    return regular_names


def is_regular(node: Node, regular: Collection[str]) -> bool:
    """Return True if the node has no token references, and refers only to rules in ``regular``."""
    return not any(
        isinstance(part, TokenNode) or (isinstance(part, RefNode) and part.name not in regular)
        for part in walk(node)
    )


def without_tail_recursion(rules: Rules) -> dict[str, Node]:
    """Replace ``x ::= a x | b`` by ``x ::= a* b``, which matches the same texts, and is regular if a and b are."""
    # Because left recursion is not allowed, lists in grammars are often written with recursion at the end. An
    # Earley parser keeps state for each level of recursion, but not for each repetition.
    return {name: _as_repetition(name, body) for name, body in rules.items()}


class _TailRecursion(NamedTuple):
    """The body of a tail-recursive rule in two parts."""

    repeated: list[Node]  # the nodes that precede a recursion at the end of the body
    ending: Node | None  # the alternatives without recursion; None if there are none


def _as_repetition(name: str, body: Node) -> Node:
    repeated, ending = _split_tail_recursion(name, body)
    if not repeated or ending is None:
        return body
    return make_seq([make_repeat(make_alt(repeated), 0, None), ending])


def _split_tail_recursion(name: str, node: Node) -> _TailRecursion:
    """Split the body of the rule ``name``, or the end of its body."""
    match node:
        case RefNode(reference) if reference == name:
            return _TailRecursion([EMPTY], None)
        case SeqNode((*items_before, last_item)):
            repeated, ending = _split_tail_recursion(name, last_item)
            return _TailRecursion(
                [make_seq([*items_before, node]) for node in repeated],
                None if ending is None else make_seq([*items_before, ending]),
            )
        case AltNode(options):
            splits = [_split_tail_recursion(name, option) for option in options]
            endings = [split.ending for split in splits if split.ending is not None]
            repeated = [node for split in splits for node in split.repeated]
            return _TailRecursion(repeated, make_alt(endings) if endings else None)
        case RepeatNode(item, 0, 1):
            repeated, ending = _split_tail_recursion(name, item)
            if not repeated:
                return _TailRecursion([], node)
            return _TailRecursion(repeated, make_alt([EMPTY if ending is None else ending, EMPTY]))
        case _:
            return _TailRecursion([], node)


MAX_INLINED = 30  # maximum size of a rule that replaces its references: the number of nodes, characters and ranges


def simplify_rules(rules: Rules) -> Rules:
    """Merge single characters of alternatives, join literals of sequences, and inline small rules."""
    return _Simplifier(dict(rules)).rules


class _Simplifier:
    def __init__(self, rules: dict[str, Node]) -> None:
        self.rules = rules
        # Most rules precede the rules that they refer to, so the last rule is simplified first. The second pass is
        # for the other rules.
        for name in (*reversed(rules), *rules):
            self.rules[name] = self._simplify(self.rules[name])

    def _simplify(self, node: Node) -> Node:
        match node:
            case SeqNode(items):
                return make_seq([_single_character_as_text(self._inline(item)) for item in items])
            case AltNode(options):
                return _merge_characters([self._inline(option) for option in options])
            case RepeatNode(item, min_count, max_count):
                return make_repeat(self._simplify(item), min_count, max_count)
            case _:
                return node

    def _inline(self, node: Node) -> Node:
        """Return a simplified item or option. A reference to a small rule is replaced by the rule's body."""
        if not isinstance(node, RefNode):
            return self._simplify(node)
        body = self.rules.get(node.name)
        return body if body is not None and _can_be_inlined(body) else node


def _can_be_inlined(body: Node) -> bool:
    """Return True if the body has no reference, and a size of at most ``MAX_INLINED``."""
    body_size = 0
    for part in walk(body):
        match part:
            case TextNode(text):
                body_size += len(text)
            case CharsNode(ranges):
                body_size += len(ranges)
            case _:
                body_size += 1
        if isinstance(part, RefNode) or body_size > MAX_INLINED:
            return False
    return True


def _single_character_as_text(node: Node) -> Node:
    """Return a literal in place of a class of one character; return any other node unchanged."""
    if isinstance(node, CharsNode) and len(node.ranges) == 1:
        low, high = node.ranges[0]
        if low == high:
            return TextNode(chr(low))
    return node


def _merge_characters(options: list[Node]) -> Node:
    """Return alternatives with all single characters merged into one class, and without duplicate literals."""
    flat_alternatives = make_alt(options)
    if not isinstance(flat_alternatives, AltNode):
        return flat_alternatives
    ranges: list[tuple[int, int]] = []
    texts: set[str] = set()
    other_options: list[Node] = []
    for option in flat_alternatives.options:
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
                other_options.append(option)
    return make_alt([CharsNode(merge_ranges(ranges)), *other_options] if ranges else other_options)
