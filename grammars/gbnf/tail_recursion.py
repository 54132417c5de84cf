"""Which rules are regular, and rules that only go round at their end made into repetitions."""

from __future__ import annotations

from .nodes import (
    EMPTY,
    AltNode,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TokenNode,
    make_alt,
    make_repeat,
    make_seq,
    walk,
)


def without_tail_recursion(rules: Rules) -> dict[str, Node]:
    """Write ``x ::= a x | b`` as ``x ::= a* b``, which is the same language, and regular where a and b are.

    A grammar without left recursion has to write its lists this way, and an Earley parser pays for each turn of
    them that is still open, but not for a repetition.
    """
    return {name: _looped(name, body) for name, body in rules.items()}


def _looped(name: str, body: Node) -> Node:
    turns, rest = _tails(name, body)
    if not turns or rest is None:
        return body
    return make_seq([make_repeat(make_alt(turns), 0, None), rest])


def _tails(name: str, node: Node) -> tuple[list[Node], Node | None]:
    """Split a body into what comes before each recursion at its end, and the rest (None: there is none)."""
    match node:
        case RefNode(other) if other == name:
            return [EMPTY], None
        case SeqNode((*before, last)):
            turns, rest = _tails(name, last)
            return [make_seq([*before, turn]) for turn in turns], None if rest is None else make_seq(
                [*before, rest]
            )
        case AltNode(options):
            parts = [_tails(name, option) for option in options]
            rests = [rest for _, rest in parts if rest is not None]
            return [turn for turns, _ in parts for turn in turns], make_alt(rests) if rests else None
        case RepeatNode(item, 0, 1):
            turns, rest = _tails(name, item)
            return turns, node if not turns else make_alt([EMPTY if rest is None else rest, EMPTY])
        case _:
            return [], node


def regular_rules(rules: Rules) -> set[str]:
    """The rules that come back to themselves nowhere and name no tokens: a regular expression can say them."""
    waits: dict[str, set[str]] = {}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        nodes = list(walk(body))
        waits[name] = {node.name for node in nodes if isinstance(node, RefNode)}
        if any(isinstance(node, TokenNode) for node in nodes):
            waits[name].add(name)
        for used in waits[name]:
            users[used].append(name)
    found: set[str] = set()
    todo = [name for name in rules if not waits[name]]
    while todo:
        name = todo.pop()
        found.add(name)
        for user in users[name]:
            waits[user].discard(name)
            if not waits[user]:
                todo.append(user)
    return found
