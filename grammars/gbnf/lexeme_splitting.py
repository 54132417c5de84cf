"""Splits lexemes into smaller ones."""

from __future__ import annotations

from collections.abc import Iterator

from .nodes import AltNode, CharsNode, LexemeNode, Node, RefNode, RepeatNode, Rules, SeqNode, TextNode, children


class LexemeSplitter:
    """Splits lexemes by one level: a sequence into its items, alternatives into their options, and so on.

    Args:
        to_split: the ids of the lexemes to split.
        rules: the bodies of the rules that lexemes name.
        inline: True if each reference to a rule gets a copy of its own, since other text follows it there.
        numbers: gives the copies their names.

    Attributes:
        new_rules: the rules that no longer stand inside lexemes.
    """

    def __init__(self, to_split: set[int], rules: Rules, inline: bool, numbers: Iterator[int]) -> None:
        self.new_rules: dict[str, Node] = {}
        self._to_split = to_split
        self._rules = rules
        self._inline = inline
        self._numbers = numbers

    def split(self, part: Node) -> Node:
        """Return a rule's body with its lexemes split."""
        match part:
            case LexemeNode(node):
                return self._split_lexeme(node) if id(part) in self._to_split else part
            case SeqNode(items):
                return SeqNode(tuple(self.split(item) for item in items))
            case AltNode(options):
                return AltNode(tuple(self.split(option) for option in options))
            case RepeatNode(item, least, most):
                return RepeatNode(self.split(item), least, most)
            case _:
                return part

    def _split_lexeme(self, node: Node) -> Node:
        match node:
            case RefNode():
                return self._split_reference(node)
            case TextNode(text):
                return SeqNode(tuple(LexemeNode(TextNode(character)) for character in text))
            case SeqNode(items):
                return SeqNode(tuple(LexemeNode(item) for item in items))
            case AltNode(options):
                return AltNode(tuple(LexemeNode(option) for option in options))
            case RepeatNode(item, least, most):
                return RepeatNode(LexemeNode(item), least, most)
            case _:
                return LexemeNode(node)

    def _split_reference(self, ref: RefNode) -> Node:
        body = self._rules[ref.name]
        if not self._inline:
            self.new_rules[ref.name] = LexemeNode(body)
            return ref
        if all(isinstance(part, (TextNode, CharsNode)) for part in children(body)):
            return self._split_lexeme(body)
        # A copy under a new name: bodies within bodies could nest too deeply.
        name = f"{ref.name}_0_{next(self._numbers)}"
        self.new_rules[name] = LexemeNode(body)
        return RefNode(name, ref.position)
