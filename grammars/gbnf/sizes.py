"""The shortest texts of rules."""

from __future__ import annotations

from math import inf

from .nodes import Alt, Chars, Node, Ref, Repeat, Rules, Seq, Text, walk


class Sizes:
    """How many characters the shortest text of each rule has; ``inf`` if it never ends. A token counts as one."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._sizes: dict[str, float] = dict.fromkeys(rules, inf)
        users: dict[str, set[str]] = {name: set() for name in rules}
        for name, body in rules.items():
            for node in walk(body):
                if isinstance(node, Ref):
                    users[node.name].add(name)
        todo = list(rules)
        while todo:
            name = todo.pop()
            size = self.of(rules[name])
            if size < self._sizes[name]:
                self._sizes[name] = size
                todo.extend(users[name])

    def of(self, node: Node) -> float:
        """The number of characters of a node's shortest text."""
        match node:
            case Text(text):
                size: float = len(text)
            case Chars(ranges):
                size = 1 if ranges else inf
            case Seq(items):
                size = sum(self.of(item) for item in items)
            case Alt(options):
                size = min(self.of(option) for option in options)
            case Repeat(item, least):
                size = least * self.of(item) if least else 0
            case Ref(name):
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
                case Text(text):
                    done.append(text)
                case Chars(ranges):
                    done.append(plainest(ranges))
                case Seq(items):
                    todo.extend(reversed(items))
                case Alt(options):
                    todo.append(min(options, key=self.of))
                case Repeat(item, least):
                    todo.extend([item] * least)
                case Ref(name):
                    todo.append(self._rules[name])
        return "".join(done)


def plainest(ranges: tuple[tuple[int, int], ...]) -> str:
    """A character out of these: a digit or a letter if there is one, else one that can be seen, else any."""
    for first, last in ((0x30, 0x39), (0x61, 0x7A), (0x41, 0x5A), (0x21, 0x7E), (0xA1, 0x10FFFF)):
        for low, high in ranges:
            if low <= last and first <= high:
                return chr(max(low, first))
    return chr(ranges[0][0])
