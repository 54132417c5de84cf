"""Random sentences of a grammar of any kind, byte by byte along its masks."""

from __future__ import annotations

from random import Random

import numpy as np

from .errors import GrammarError
from .grammar import Grammar, shortest_completion

_LONG_SENTENCES = (150, 40, 0)
"""From this length in bytes on, a sentence takes a short way to its end; the next length, if none is found."""
_STOP_PROBABILITY = 0.3
"""The probability that a sentence ends where it may end and may go on."""
_STRUCTURE = b'",]}'
"""What ends a part of JSON. Were it as rare as other signs, a text in quotes would have a hundred characters."""
_MANY_LETTERS = 20
"""Where so many letters and digits may stand, a text is written, and of the structure only a quote ends it."""
_WEIGHTS = (0.75, 0.15, 0.1)
"""The probabilities of a letter or digit, of structure, and of other printable ASCII."""


def random_walk(grammar: Grammar, generator: Random) -> str:
    """Return a random sentence. Raises ``GrammarError`` where the grammar names tokens, or no end is found."""
    if grammar.names_tokens:
        raise GrammarError("the grammar names tokens; only a model can write its sentences")
    for long_sentence in _LONG_SENTENCES[:-1]:
        try:
            return _walk(grammar, generator, long_sentence).decode()
        except GrammarError:
            continue
    return _walk(grammar, generator, _LONG_SENTENCES[-1]).decode()


def _walk(grammar: Grammar, generator: Random, long_sentence: int) -> bytes:
    state = grammar.over_bytes.start()
    while len(state.text) < long_sentence:
        may_follow = np.flatnonzero(state.mask()).tolist()
        next_bytes = [byte for byte in may_follow if byte not in grammar.over_bytes.vocabulary.eog]
        if state.is_complete and (not next_bytes or generator.random() < _STOP_PROBABILITY):
            return state.text
        state.accept(_choose(next_bytes, generator))
    return state.text + shortest_completion(grammar, state.text)


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
