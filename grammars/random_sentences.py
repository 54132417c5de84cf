"""Random sentences of a grammar, without a model."""

from __future__ import annotations

from math import inf
from random import Random
from typing import cast

from .compile import compile_grammar
from .errors import GrammarError
from .gbnf.gbnf_grammar import GbnfGrammar
from .gbnf.nodes import AltNode, CharsNode, Node, RefNode, RepeatNode, Rules, SeqNode, TextNode
from .gbnf.shortest_texts import ShortestTexts
from .parsed_grammar import parse_grammar
from .random_walk import random_walk

_LONG_SENTENCE = 200
"""From this length on, in characters and open nodes, a sentence takes the shortest way to its end."""

_CONTINUE_PROBABILITY = 0.7
"""The probability of one more turn of a repetition, and of a letter or digit where there are other characters."""


def random_sentence(
    source: str,
    seed: int | None = None,
    root: str = "root",
    *,
    kind: str = "gbnf",
    schema_lenient: bool = False,
) -> str:
    """Return a random sentence of a grammar.

    Args:
        source: the grammar's text.
        seed: the same seed gives the same sentence; None: a random one.
        root: the rule with which sentences of a GBNF grammar begin.
        kind: as of `compile_grammar`.
        schema_lenient: as of `compile_grammar`.

    Raises ``GrammarError``, also where the grammar names tokens.
    """
    generator = Random(seed)  # noqa: S311 - no secret
    if kind != "gbnf":
        return random_walk(compile_grammar(source, kind=kind, schema_lenient=schema_lenient), generator)
    grammar = cast(GbnfGrammar, parse_grammar(source, "gbnf", root).gbnf)
    grammar.find_token_ids(None)
    if grammar.names_tokens:
        raise GrammarError("the grammar names tokens; only a model can write its sentences")
    return _SentenceWriter(grammar.rules, grammar.shortest_texts, generator).write(root)


class _SentenceWriter:
    def __init__(self, rules: Rules, shortest_texts: ShortestTexts, generator: Random) -> None:
        self._rules = rules
        self._shortest_texts = shortest_texts
        self._generator = generator

    def write(self, root: str) -> str:
        """Write a sentence; what must still come is on a stack."""
        characters: list[str] = []
        stack: list[Node] = [self._rules[root]]
        while stack:
            is_long = len(characters) + len(stack) > _LONG_SENTENCE
            match node := stack.pop():
                case TextNode(text):
                    characters.extend(text)
                case CharsNode():
                    characters.append(self._character(node))
                case SeqNode(items):
                    stack.extend(reversed(items))
                case AltNode(options):
                    stack.append(self._option(options, is_long))
                case RepeatNode(item):
                    stack.extend([item] * self._count(node, is_long))
                case RefNode(name):
                    stack.append(self._rules[name])
        return "".join(characters)

    def _option(self, options: tuple[Node, ...], is_long: bool) -> Node:
        if is_long:
            return min(options, key=self._shortest_texts.length)
        return self._generator.choice([option for option in options if self._shortest_texts.length(option) < inf])

    def _count(self, node: RepeatNode, is_long: bool) -> int:
        count = node.least
        if is_long or self._shortest_texts.length(node.item) == inf:
            return count
        while (node.most is None or count < node.most) and self._generator.random() < _CONTINUE_PROBABILITY:
            count += 1
        return count

    def _character(self, node: CharsNode) -> str:
        """A character of a class, a printable ASCII one if there is any."""
        printable = [chr(code) for low, high in node.ranges for code in range(max(low, 0x20), min(high, 0x7E) + 1)]
        alphanumeric = [character for character in printable if character.isalnum()]
        if printable:
            prefer = alphanumeric and self._generator.random() < _CONTINUE_PROBABILITY
            return self._generator.choice(alphanumeric if prefer else printable)
        low, high = self._generator.choice(node.ranges)
        return chr(self._generator.randint(low, high))
