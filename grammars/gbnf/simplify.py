"""Rules written more plainly, for the same language.

llguidance 1.9 panics on some regular expressions that say one character beyond ASCII in several ways: as a literal
and in classes, at several depths. Laid open and united, each is said once.
"""

from __future__ import annotations

from .nodes import (
    AltNode,
    CharsNode,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    make_alt,
    make_repeat,
    make_seq,
    merge_ranges,
    walk,
)

MAX_INLINED = 30
"""Of how many nodes, characters and ranges a rule may be whose body takes the place of its name."""


def plain(rules: Rules) -> Rules:
    """Unite the single characters of a choice, join the texts of a sequence, put small rules in place of names."""
    return _Plain(dict(rules)).rules


class _Plain:
    def __init__(self, rules: dict[str, Node]) -> None:
        self.rules = rules
        # Once for rules that come before those that they name, once for the others.
        for name in (*reversed(rules), *rules):
            self.rules[name] = self._of(self.rules[name])

    def _of(self, node: Node) -> Node:
        match node:
            case SeqNode(items):
                return make_seq([_as_text(self._opened(item)) for item in items])
            case AltNode(options):
                return _united([self._opened(option) for option in options])
            case RepeatNode(item, least, most):
                return make_repeat(self._of(item), least, most)
            case _:
                return node

    def _opened(self, node: Node) -> Node:
        """A part of a choice or a sequence; for a rule's name its body, if that is small and names no rule."""
        if not isinstance(node, RefNode):
            return self._of(node)
        body = self.rules.get(node.name)
        return body if body is not None and _is_small(body) else node


def _is_small(body: Node) -> bool:
    """Is this small enough to stand in place of its name, and does it name no rule itself?"""
    size = 0
    for part in walk(body):
        match part:
            case TextNode(text):
                size += len(text)
            case CharsNode(ranges):
                size += len(ranges)
            case _:
                size += 1
        if isinstance(part, RefNode) or size > MAX_INLINED:
            return False
    return True


def _as_text(node: Node) -> Node:
    """A class of a single character is a text."""
    if isinstance(node, CharsNode) and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return TextNode(chr(node.ranges[0][0]))
    return node


def _united(options: list[Node]) -> Node:
    """A choice with its single characters in one class, and no text twice."""
    laid_open = make_alt(options)
    if not isinstance(laid_open, AltNode):
        return laid_open
    ranges: list[tuple[int, int]] = []
    texts: set[str] = set()
    rest: list[Node] = []
    for option in laid_open.options:
        match option:
            case CharsNode(found):
                ranges.extend(found)
            case TextNode(text) if len(text) == 1:
                ranges.append((ord(text), ord(text)))
            case TextNode(text) if text in texts:
                pass
            case _:
                if isinstance(option, TextNode):
                    texts.add(option.text)
                rest.append(option)
    return make_alt([CharsNode(merge_ranges(ranges)), *rest] if ranges else rest)
