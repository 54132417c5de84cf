"""The shortest texts of rules."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf

from .nodes import AltNode, CharsNode, Node, RefNode, RepeatNode, Rules, SeqNode, TextNode, children, walk


class ShortestTexts:
    """How many characters the shortest text of each rule has; ``inf`` if it never ends. A token counts as one."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._sizes: dict[str, float] = dict.fromkeys(rules, inf)
        names: dict[int, list[str]] = {}
        for name, body in rules.items():
            names.setdefault(id(body), []).append(name)  # empty rules share a body
        # Knuth's generalization of Dijkstra's algorithm: the smallest size that is still open can only be final.
        above = _Above(rules)
        heap = [(size, key) for key, size in above.leaves]
        heapify(heap)
        final: set[int] = set()
        while heap:
            size, key = heappop(heap)
            if key in final:
                continue
            final.add(key)
            for name in names.get(key, ()):
                self._sizes[name] = size
            for found in above.reached(key, size):
                heappush(heap, found)

    def of(self, node: Node) -> float:
        """The number of characters of a node's shortest text."""
        match node:
            case TextNode(text):
                size: float = len(text)
            case CharsNode(ranges):
                size = 1 if ranges else inf
            case SeqNode(items):
                size = sum(self.of(item) for item in items)
            case AltNode(options):
                size = min(self.of(option) for option in options)
            case RepeatNode(item, least):
                size = least * self.of(item) if least else 0
            case RefNode(name):
                size = self._sizes[name]
            case _:
                size = 1  # a token
        return size

    def text(self, node: Node) -> str:
        """A node's shortest text; it must have one."""
        done: list[str] = []
        todo = [node]
        while todo:
            match node := todo.pop():
                case TextNode(text):
                    done.append(text)
                case CharsNode(ranges):
                    done.append(plainest(ranges))
                case SeqNode(items):
                    todo.extend(reversed(items))
                case AltNode(options):
                    todo.append(min(options, key=self.of))
                case RepeatNode(item, least):
                    todo.extend([item] * least)
                case RefNode(name):
                    todo.append(self._rules[name])
        return "".join(done)


def plainest(ranges: tuple[tuple[int, int], ...]) -> str:
    """A character out of these: a digit or a letter if there is one, else one that can be seen, else any."""
    for first, last in ((0x30, 0x39), (0x61, 0x7A), (0x41, 0x5A), (0x21, 0x7E), (0xA1, 0x10FFFF)):
        for low, high in ranges:
            if low <= last and first <= high:
                return chr(max(low, first))
    return chr(ranges[0][0])


class _Above:
    """Which nodes contain which, and what is still open in the sequences."""

    def __init__(self, rules: Rules) -> None:
        self.leaves: list[tuple[int, float]] = []
        self._containers: dict[int, list[Node]] = {}
        self._open: dict[int, int] = {}
        self._sums: dict[int, float] = {}
        self._entered: set[int] = set()
        for body in rules.values():
            for node in walk(body):
                if id(node) not in self._entered:
                    self._entered.add(id(node))
                    self._enter(node, rules)

    def _enter(self, node: Node, rules: Rules) -> None:
        parts = (rules[node.name],) if isinstance(node, RefNode) else children(node)
        for part in parts:
            self._containers.setdefault(id(part), []).append(node)
        match node:
            case TextNode(text):
                self.leaves.append((id(node), len(text)))
            case SeqNode(items) if items:
                self._open[id(node)] = len(items)
            case CharsNode(()) | AltNode() | RefNode():
                pass
            case RepeatNode(_, least) if least:
                pass
            case SeqNode() | RepeatNode():
                self.leaves.append((id(node), 0))
            case _:
                self.leaves.append((id(node), 1))

    def reached(self, key: int, size: float) -> Iterator[tuple[float, int]]:
        """The nodes whose size may be known, now that this one's is."""
        for node in self._containers.get(key, ()):
            match node:
                case SeqNode():
                    self._open[id(node)] -= 1
                    self._sums[id(node)] = self._sums.get(id(node), 0) + size
                    if not self._open[id(node)]:
                        yield self._sums[id(node)], id(node)
                case RepeatNode(_, least):
                    yield size * least, id(node)
                case _:
                    yield size, id(node)
