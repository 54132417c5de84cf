"""Checks of a grammar's rules: references, left recursion, and that sentences end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import inf

from ...common.text import nearest_name
from ..errors import GrammarError
from .nodes import Node, RefNode, SeqNode, children, references
from .nullability import is_nullable, nullable_rules
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
    nullable = nullable_rules(parser.rules)
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
                if not is_nullable(item, nullable):
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
