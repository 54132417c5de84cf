"""Random sentences of a grammar, without a model.

A sentence of GBNF is written along the rules. For grammars of other kinds it is written byte by byte along the
masks.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import cast

import numpy as np

from .errors import GrammarError
from .gbnf.grammar import GbnfGrammar
from .gbnf.nodes import AltNode, CharsNode, Node, RefNode, RepeatNode, Rules, SeqNode, TextNode
from .gbnf.shortest_texts import ShortestTexts
from .grammar import Grammar, compile_grammar, parse_grammar, shortest_completion


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
        return _random_walk(compile_grammar(source, kind=kind, schema_lenient=schema_lenient), generator)
    grammar = cast(GbnfGrammar, parse_grammar(source, "gbnf", root).gbnf)
    grammar.find_token_ids(None)
    if grammar.has_token_references:
        raise GrammarError("the grammar names tokens; only a model can write its sentences")
    return _SentenceWriter(grammar.rules, grammar.shortest_texts, generator).write(root)


_LONG_SENTENCE = 200
"""From this length on, in characters and open nodes, a sentence takes the shortest way to its end."""

_CONTINUE_PROBABILITY = 0.7
"""The probability of one more turn of a repetition, and of a letter or digit where there are other characters."""


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
        count = node.min_count
        if is_long or self._shortest_texts.length(node.item) == inf:
            return count
        while (
            node.max_count is None or count < node.max_count
        ) and self._generator.random() < _CONTINUE_PROBABILITY:
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


_LONG_SENTENCES = (150, 40, 0)
"""From this length in bytes on, a sentence takes a short way to its end; the next length, if none is found."""
_STOP_PROBABILITY = 0.3
"""The probability that a sentence ends where it may end and may go on."""


def _random_walk(grammar: Grammar, generator: Random) -> str:
    """Return a random sentence. Raises ``GrammarError`` where the grammar names tokens, or no end is found."""
    if grammar.has_token_references:
        raise GrammarError("the grammar names tokens; only a model can write its sentences")
    for long_sentence in _LONG_SENTENCES[:-1]:
        try:
            return _walk(grammar, generator, long_sentence).decode()
        except GrammarError:
            continue
    return _walk(grammar, generator, _LONG_SENTENCES[-1]).decode()


def _walk(grammar: Grammar, generator: Random, long_sentence: int) -> bytes:
    state = grammar.byte_grammar.start()
    while len(state.text) < long_sentence:
        may_follow = np.flatnonzero(state.mask()).tolist()
        next_bytes = [byte for byte in may_follow if byte not in grammar.byte_grammar.vocabulary.eog]
        if state.is_complete and (not next_bytes or generator.random() < _STOP_PROBABILITY):
            return state.text
        state.accept(_choose(next_bytes, generator))
    return state.text + shortest_completion(grammar, state.text)


_STRUCTURE = b'",]}'
"""What ends a part of JSON. Were it as rare as other signs, a text in quotes would have a hundred characters."""
_MANY_LETTERS = 20
"""Where so many letters and digits may stand, a text is written, and of the structure only a quote ends it."""
_WEIGHTS = (0.75, 0.15, 0.1)
"""The probabilities of a letter or digit, of structure, and of other printable ASCII."""


def _choose(next_bytes: list[int], generator: Random) -> int:
    """One of the bytes, printable ASCII if there is any."""
    printable = [byte for byte in next_bytes if 0x20 <= byte <= 0x7E]
    letters = [byte for byte in printable if chr(byte).isalnum()]
    marks = b'"' if len(letters) > _MANY_LETTERS else _STRUCTURE
    structure = [byte for byte in printable if byte in marks]
    others = [byte for byte in printable if byte not in letters and byte not in structure]
    groups = (letters, structure, others)
    present = [number for number, group in enumerate(groups) if group]
    if not present:
        return generator.choice(next_bytes)
    group = generator.choices(present, [_WEIGHTS[number] for number in present])[0]
    return generator.choice(groups[group])
