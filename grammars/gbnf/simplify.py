"""Simplifies rules without a change of their language.

llguidance 1.9 panics on some regular expressions that match one character beyond ASCII in several ways: as a
literal and in classes, at several depths. In simplified rules each character stands once.
"""

from __future__ import annotations

from .code_points import merge_ranges
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
    walk,
)

MAX_INLINED = 30
"""The largest rule that takes the place of its references: nodes, characters and ranges together."""


def simplify_rules(rules: Rules) -> Rules:
    """Merge the single characters of alternatives, join the texts of sequences, and inline small rules."""
    return _Simplifier(dict(rules)).rules


class _Simplifier:
    def __init__(self, rules: dict[str, Node]) -> None:
        self.rules = rules
        # Backward for rules that stand before those that they name, then forward for the others.
        for name in (*reversed(rules), *rules):
            self.rules[name] = self._simplify(self.rules[name])

    def _simplify(self, node: Node) -> Node:
        match node:
            case SeqNode(items):
                return make_seq([_single_character_as_text(self._inlined(item)) for item in items])
            case AltNode(options):
                return _merge_characters([self._inlined(option) for option in options])
            case RepeatNode(item, least, most):
                return make_repeat(self._simplify(item), least, most)
            case _:
                return node

    def _inlined(self, node: Node) -> Node:
        """An item or option, simplified; in place of a reference the rule's body if that may be inlined."""
        if not isinstance(node, RefNode):
            return self._simplify(node)
        body = self.rules.get(node.name)
        return body if body is not None and _may_be_inlined(body) else node


def _may_be_inlined(body: Node) -> bool:
    """True if the body names no rule and is at most ``MAX_INLINED`` large."""
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


def _single_character_as_text(node: Node) -> Node:
    """A class of a single character as a text; any other node as it is."""
    if isinstance(node, CharsNode) and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return TextNode(chr(node.ranges[0][0]))
    return node


def _merge_characters(options: list[Node]) -> Node:
    """Alternatives with all their single characters in one class, and no text twice."""
    flat = make_alt(options)
    if not isinstance(flat, AltNode):
        return flat
    ranges: list[tuple[int, int]] = []
    texts: set[str] = set()
    others: list[Node] = []
    for option in flat.options:
        match option:
            case CharsNode(option_ranges):
                ranges.extend(option_ranges)
            case TextNode(text) if len(text) == 1:
                ranges.append((ord(text), ord(text)))
            case TextNode(text) if text in texts:
                pass
            case _:
                if isinstance(option, TextNode):
                    texts.add(option.text)
                others.append(option)
    return make_alt([CharsNode(merge_ranges(ranges)), *others] if ranges else others)
