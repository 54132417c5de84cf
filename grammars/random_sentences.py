"""Random sentences of a GBNF grammar, made with no model."""

from __future__ import annotations

from math import inf
from random import Random

from .errors import GrammarError
from .gbnf import Node, Rules, ShortestTexts, read
from .gbnf.nodes import AltNode, CharsNode, RefNode, RepeatNode, SeqNode, TextNode, TokenNode, walk

_LENGTH = 200
"""Once a sentence is this long, it takes the shortest way to its end."""

_MORE = 0.7
"""The chance of one more turn of a repetition."""


def random_sentence(source: str, seed: int | None = None, root: str = "root") -> str:
    """Make a random sentence of a GBNF grammar. Raises ``GrammarError``, also where no sentence ever ends."""
    rules = read(source, root)
    if any(isinstance(node, TokenNode) for body in rules.values() for node in walk(body)):
        raise GrammarError("the grammar names tokens; only a model can write its sentences")
    sizes = ShortestTexts(rules)
    if sizes.of(rules[root]) == inf:
        raise GrammarError(f"no sentence of rule {root!r} ever ends")
    return _Writer(rules, sizes, Random(seed)).write(root)  # noqa: S311 - no secret


class _Writer:
    def __init__(self, rules: Rules, sizes: ShortestTexts, random: Random) -> None:
        self._rules = rules
        self._sizes = sizes
        self._random = random

    def write(self, root: str) -> str:
        """Write out what is still to come, which is kept on a stack."""
        done: list[str] = []
        todo: list[Node] = [self._rules[root]]
        while todo:
            hurry = len(done) + len(todo) > _LENGTH
            match node := todo.pop():
                case TextNode(text):
                    done.extend(text)
                case CharsNode():
                    done.append(self._character(node))
                case SeqNode(items):
                    todo.extend(reversed(items))
                case AltNode(options):
                    todo.append(self._option(options, hurry))
                case RepeatNode(item):
                    todo.extend([item] * self._count(node, hurry))
                case RefNode(name):
                    todo.append(self._rules[name])
        return "".join(done)

    def _option(self, options: tuple[Node, ...], hurry: bool) -> Node:
        sized = [(self._sizes.of(option), option) for option in options]
        if hurry:
            return min(sized, key=lambda pair: pair[0])[1]
        return self._random.choice([option for size, option in sized if size < inf])

    def _count(self, node: RepeatNode, hurry: bool) -> int:
        count = node.least
        if hurry or self._sizes.of(node.item) == inf:
            return count
        while (node.most is None or count < node.most) and self._random.random() < _MORE:
            count += 1
        return count

    def _character(self, node: CharsNode) -> str:
        """A character of a class, one that can be read if there is any."""
        easy = [chr(code) for low, high in node.ranges for code in range(max(low, 0x20), min(high, 0x7E) + 1)]
        letters = [character for character in easy if character.isalnum()]
        if easy:
            return self._random.choice(letters if letters and self._random.random() < _MORE else easy)
        low, high = self._random.choice(node.ranges)
        return chr(self._random.randint(low, high))
