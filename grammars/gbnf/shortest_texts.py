"""The shortest text of each rule of a grammar."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf

from .nodes import (
    AltNode,
    CharsNode,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    children,
    most_readable_character,
    walk,
)


class ShortestTexts:
    """The shortest texts of rules, and their lengths in characters: ``inf`` where no text ends.

    A token counts as one character.

    Source: Knuth's generalization of Dijkstra's algorithm (1977): of the lengths that are not final yet, the
    smallest is final, since no length is negative.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._lengths: dict[str, float] = dict.fromkeys(rules, inf)
        names_of: dict[int, list[str]] = {}
        for name, body in rules.items():
            names_of.setdefault(id(body), []).append(name)  # empty rules share a body
        containers = _Containers(rules)
        heap = [(length, node_id) for node_id, length in containers.leaf_lengths]
        heapify(heap)
        final: set[int] = set()
        while heap:
            length, node_id = heappop(heap)
            if node_id in final:
                continue
            final.add(node_id)
            for name in names_of.get(node_id, ()):
                self._lengths[name] = length
            for candidate in containers.lengths_with(node_id, length):
                heappush(heap, candidate)

    def length(self, node: Node) -> float:
        """The length of a node's shortest text, characters."""
        match node:
            case TextNode(text):
                length: float = len(text)
            case CharsNode(ranges):
                length = 1 if ranges else inf
            case SeqNode(items):
                length = sum(self.length(item) for item in items)
            case AltNode(options):
                length = min(self.length(option) for option in options)
            case RepeatNode(item, min_count):
                length = min_count * self.length(item) if min_count else 0
            case RefNode(name):
                length = self._lengths[name]
            case _:
                length = 1  # a token
        return length

    def text(self, node: Node) -> str:
        """A node's shortest text. The node's length must be finite, and it must name no tokens."""
        texts: list[str] = []
        pending = [node]
        while pending:
            match node := pending.pop():
                case TextNode(text):
                    texts.append(text)
                case CharsNode(ranges):
                    texts.append(most_readable_character(ranges))
                case SeqNode(items):
                    pending.extend(reversed(items))
                case AltNode(options):
                    pending.append(min(options, key=self.length))
                case RepeatNode(item, min_count):
                    pending.extend([item] * min_count)
                case RefNode(name):
                    pending.append(self._rules[name])
        return "".join(texts)


class _Containers:
    """The nodes that contain each node. A sequence has a length once all its items have one.

    ``leaf_lengths``: the ids and lengths of the nodes whose length depends on no other node.
    """

    def __init__(self, rules: Rules) -> None:
        self.leaf_lengths: list[tuple[int, float]] = []
        self._containers: dict[int, list[Node]] = {}
        self._open_items: dict[int, int] = {}  # of each sequence: how many items have no length yet
        self._sums: dict[int, float] = {}  # of each sequence: the length of the others
        entered: set[int] = set()
        for body in rules.values():
            for node in walk(body):
                if id(node) not in entered:
                    entered.add(id(node))
                    self._enter(node, rules)

    def _enter(self, node: Node, rules: Rules) -> None:
        parts = (rules[node.name],) if isinstance(node, RefNode) else children(node)
        for part in parts:
            self._containers.setdefault(id(part), []).append(node)
        match node:
            case TextNode(text):
                self.leaf_lengths.append((id(node), len(text)))
            case SeqNode(items) if items:
                self._open_items[id(node)] = len(items)
            case CharsNode(()) | AltNode() | RefNode():
                pass
            case RepeatNode(_, min_count) if min_count:
                pass
            case SeqNode() | RepeatNode():
                self.leaf_lengths.append((id(node), 0))
            case _:
                self.leaf_lengths.append((id(node), 1))

    def lengths_with(self, node_id: int, length: float) -> Iterator[tuple[float, int]]:
        """The lengths, with their nodes' ids, that containers of a node can have now that its length is final."""
        for container in self._containers.get(node_id, ()):
            key = id(container)
            match container:
                case SeqNode():
                    self._open_items[key] -= 1
                    self._sums[key] = self._sums.get(key, 0) + length
                    if not self._open_items[key]:
                        yield self._sums[key], key
                case RepeatNode(_, min_count):
                    yield length * min_count, key
                case _:
                    yield length, key
