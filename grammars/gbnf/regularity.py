"""Which rules and nodes are regular, so that a regular expression can take their place."""

from __future__ import annotations

from collections.abc import Collection

from .nodes import Node, RefNode, Rules, TokenNode, walk


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
