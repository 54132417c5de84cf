"""The shortest text of each rule of a GBNF grammar."""

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
    """The shortest texts of rules and nodes, and their lengths in characters."""

    # The length is ``inf`` if every text is infinite. A token reference counts as one character.
    # Source: Knuth's generalization of Dijkstra's algorithm (1977). The smallest length that is not final yet can
    # be made final, because no length is negative.

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._length_by_rule: dict[str, float] = dict.fromkeys(rules, inf)
        names_by_body_id: dict[int, list[str]] = {}
        for name, body in rules.items():
            names_by_body_id.setdefault(id(body), []).append(name)  # empty rules share one body
        containers = _NodeContainers(rules)
        length_heap = [(length, node_id) for node_id, length in containers.leaf_lengths]
        heapify(length_heap)
        final_ids: set[int] = set()
        while length_heap:
            length, node_id = heappop(length_heap)
            if node_id in final_ids:
                continue
            final_ids.add(node_id)
            for name in names_by_body_id.get(node_id, ()):
                self._length_by_rule[name] = length
            for candidate in containers.container_lengths(node_id, length):
                heappush(length_heap, candidate)

    def length(self, node: Node) -> float:
        """Return the length of a node's shortest text, characters; ``inf`` if every text is infinite."""
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
                length = self._length_by_rule[name]
            case _:
                length = 1  # a token reference
        return length

    def text(self, node: Node) -> str:
        """Return a node's shortest text. The text must be finite, without token references."""
        texts: list[str] = []
        pending_nodes = [node]
        while pending_nodes:
            match node := pending_nodes.pop():
                case TextNode(text):
                    texts.append(text)
                case CharsNode(ranges):
                    texts.append(most_readable_character(ranges))
                case SeqNode(items):
                    pending_nodes.extend(reversed(items))
                case AltNode(options):
                    pending_nodes.append(min(options, key=self.length))
                case RepeatNode(item, min_count):
                    pending_nodes.extend([item] * min_count)
                case RefNode(name):
                    pending_nodes.append(self._rules[name])
        return "".join(texts)


class _NodeContainers:
    """The direct containers of each node. A rule's body counts as contained in each reference to the rule."""

    def __init__(self, rules: Rules) -> None:
        # (id of the node, length) for each node whose length does not depend on other nodes
        self.leaf_lengths: list[tuple[int, float]] = []
        self._containers_by_id: dict[int, list[Node]] = {}
        self._unknown_item_counts: dict[int, int] = {}  # items without a final length, by id of the sequence
        self._length_sums: dict[int, float] = {}  # sum of the final lengths, by id of the sequence
        added_ids: set[int] = set()
        for body in rules.values():
            for node in walk(body):
                if id(node) not in added_ids:
                    added_ids.add(id(node))
                    self._add_node(node, rules)

    def _add_node(self, node: Node, rules: Rules) -> None:
        parts = (rules[node.name],) if isinstance(node, RefNode) else children(node)
        for part in parts:
            self._containers_by_id.setdefault(id(part), []).append(node)
        match node:
            case TextNode(text):
                self.leaf_lengths.append((id(node), len(text)))
            case SeqNode(items) if items:
                self._unknown_item_counts[id(node)] = len(items)
            case CharsNode(()) | AltNode() | RefNode():
                pass
            case RepeatNode(_, min_count) if min_count:
                pass
            case SeqNode() | RepeatNode():
                self.leaf_lengths.append((id(node), 0))
            case _:
                self.leaf_lengths.append((id(node), 1))

    def container_lengths(self, node_id: int, length: float) -> Iterator[tuple[float, int]]:
        """Yield (length, id) for each container that gets a possible length from a node whose length is final."""
        for container in self._containers_by_id.get(node_id, ()):
            container_id = id(container)
            match container:
                case SeqNode():
                    self._unknown_item_counts[container_id] -= 1
                    self._length_sums[container_id] = self._length_sums.get(container_id, 0) + length
                    if not self._unknown_item_counts[container_id]:
                        yield self._length_sums[container_id], container_id
                case RepeatNode(_, min_count):
                    yield length * min_count, container_id
                case _:
                    yield length, container_id
