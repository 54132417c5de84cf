"""What must hold for the rules of a grammar before they are used."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from math import inf

from .nodes import AltNode, Node, RefNode, RepeatNode, Rules, SeqNode, children, walk
from .parser import GbnfParser
from .shortest_texts import ShortestTexts

MAX_CHAIN = 500
"""How far a rule may lead on to rules that were not met before; llguidance goes after them by recursion."""


def check(reader: GbnfParser, root: str) -> None:
    """Raise ``GrammarError`` for an undefined rule, a missing root, or left recursion (as llama.cpp does)."""
    rules = reader.rules
    refs = (node for body in rules.values() for node in walk(body) if isinstance(node, RefNode))
    first = min((ref for ref in refs if ref.name not in rules), key=lambda ref: ref.at, default=None)
    if first is not None:
        reader.fail(f"rule {first.name!r} is not defined{_nearest(first.name, rules)}", first.at)
    if not rules:
        reader.fail("the grammar is empty", 0)
    if root not in _names(rules):
        reader.fail(f"there is no rule {root!r} to begin with{_nearest(root, rules)}", 0)
    _refuse_left_recursion(reader)
    if ShortestTexts(rules).of(rules[root]) == inf:
        reader.fail(f"no sentence of rule {root!r} ever ends", reader.places[root])
    _refuse_long_chains(reader)


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, _names(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _names(known: Collection[str]) -> list[str]:
    """The names in the text, without those that the reader gave to groups."""
    return [name for name in known if "_" not in name]


def nullable_rules(rules: Rules) -> set[str]:
    """The rules that can be the empty text."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, body in rules.items():
        for node in walk(body):
            if isinstance(node, RefNode):
                users[node.name].add(name)
    found: set[str] = set()
    todo = list(rules)
    while todo:
        name = todo.pop()
        if name not in found and nullable(rules[name], found):
            found.add(name)
            todo.extend(users[name])
    return found


def nullable(node: Node, rules: Collection[str]) -> bool:
    """Can this be the empty text, if these rules can?"""
    match node:
        case SeqNode(items):
            return all(nullable(item, rules) for item in items)
        case AltNode(options):
            return any(nullable(option, rules) for option in options)
        case RepeatNode(item, least):
            return least == 0 or nullable(item, rules)
        case RefNode(name):
            return name in rules
        case _:
            return False


def _refuse_left_recursion(reader: GbnfParser) -> None:
    empty = nullable_rules(reader.rules)
    edges = {name: list(_leftmost(body, empty)) for name, body in reader.rules.items()}
    done: set[str] = set()
    for name in sorted(reader.rules, key=lambda name: "_" in name):  # so that groups are met in their rules
        _visit(reader, name, edges, done)


def _leftmost(node: Node, empty: Collection[str]) -> Iterator[RefNode]:
    """The rules that this can begin with."""
    match node:
        case RefNode():
            yield node
        case SeqNode(items):
            for item in items:
                yield from _leftmost(item, empty)
                if not nullable(item, empty):
                    return
        case _:
            for child in children(node):
                yield from _leftmost(child, empty)


def _visit(reader: GbnfParser, start: str, edges: dict[str, list[RefNode]], done: set[str]) -> None:
    """Depth first, without recursion: a chain of rules may be long."""
    if start in done:
        return
    path: dict[str, None] = {start: None}
    todo = [(start, iter(edges[start]))]
    while todo:
        name, rest = todo[-1]
        ref = next(rest, None)
        if ref is None:
            todo.pop()
            path.pop(name)
            done.add(name)
        elif ref.name in path:
            round_trip = [*list(path)[list(path).index(ref.name) :], ref.name]
            shown = [name for name in round_trip if "_" not in name]
            shown += [] if shown[:1] == shown[1:][-1:] else shown[:1]
            reader.fail(f"left recursion: {' > '.join(shown)} comes back before any text", ref.at)
        elif ref.name not in done:
            path[ref.name] = None
            todo.append((ref.name, iter(edges[ref.name])))


def _refuse_long_chains(reader: GbnfParser) -> None:
    """Depth first in the order of the text, without recursion."""
    refs = {name: _refs(body) for name, body in reader.rules.items()}
    lengths: dict[str, int] = {}
    for start, named in refs.items():
        todo = [] if start in lengths else [(start, iter(named))]
        lengths.setdefault(start, 0)
        while todo:
            name, rest = todo[-1]
            ref = next(rest, None)
            if ref is None:
                todo.pop()
                lengths[name] = 1 + max((lengths[ref.name] for ref in refs[name]), default=0)
                if lengths[name] > MAX_CHAIN:
                    at = reader.places[name]
                    reader.fail(f"rule {name!r} begins a chain of more than {MAX_CHAIN} rules", at)
            elif ref.name not in lengths:
                lengths[ref.name] = 0
                todo.append((ref.name, iter(refs[ref.name])))


def _refs(node: Node) -> list[RefNode]:
    return sorted((part for part in walk(node) if isinstance(part, RefNode)), key=lambda ref: ref.at)
