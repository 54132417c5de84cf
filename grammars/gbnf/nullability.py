"""Which rules and nodes can be the empty text."""

from __future__ import annotations

from collections.abc import Collection

from .nodes import AltNode, Node, RefNode, RepeatNode, Rules, SeqNode, walk


def nullable_rules(rules: Rules) -> set[str]:
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
        if name not in nullable and is_nullable(rules[name], nullable):
            nullable.add(name)
            pending.extend(users[name])  # these may be nullable now, too
    return nullable


def is_nullable(node: Node, nullable: Collection[str]) -> bool:
    """True if the node can be the empty text, given the names of the rules that can."""
    match node:
        case SeqNode(items):
            return all(is_nullable(item, nullable) for item in items)
        case AltNode(options):
            return any(is_nullable(option, nullable) for option in options)
        case RepeatNode(item, least):
            return least == 0 or is_nullable(item, nullable)
        case RefNode(name):
            return name in nullable
        case _:
            return False
