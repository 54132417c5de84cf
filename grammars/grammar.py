"""A grammar that is ready, and the state of one text that follows it."""

from __future__ import annotations

import re
from collections import deque
from functools import cached_property
from typing import NamedTuple

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from .completion_search import shortest_completion
from .errors import GrammarError
from .limits import LIMITS
from .tokenizer import tokenizer_of
from .vocabulary import BYTE_VOCABULARY, Vocabulary

# A tokenizer looks no further back than this to say how a text goes on, tokens.
_RECENT = 8

_STUCK = "NoExtensionBias"


# How llguidance writes a token that is named into forced text; no text has this byte.
_NAME_BEGINS = b"\xff["
_NAMED = re.compile(rb"\xff\[([0-9]+)\]")


class Origin(NamedTuple):
    """What a grammar is made from."""

    source: str
    kind: str
    root: str


class Translation(NamedTuple):
    """What llguidance reads.

    ``strict``: for masks; ``lenient``: for texts of other people, which may be spaced otherwise;
    ``names_tokens``: tokens of the vocabulary are named, so that text alone cannot say whether it is a sentence.
    """

    strict: str
    lenient: str
    names_tokens: bool


class Grammar:
    """A grammar for the tokens of a vocabulary; made by `compile_grammar`.

    ``source``, ``kind`` and ``root`` are what it was made from, ``translation`` is what llguidance reads.
    """

    def __init__(self, origin: Origin, vocabulary: Vocabulary, translation: Translation) -> None:
        self.source, self.kind, self.root = self.origin = origin
        self.vocabulary = vocabulary
        self.translation = translation
        self.names_tokens = translation.names_tokens
        self.tokenizer = tokenizer_of(vocabulary)
        self._first = LLMatcher(self.tokenizer, translation.strict, log_level=0, limits=LIMITS)

    @property
    def blanks(self) -> str:
        """The characters that may stand around a text: JSON's blanks for a JSON Schema, none for other kinds."""
        return " \t\r\n" if self.kind == "json_schema" else ""

    @property
    def complaint(self) -> str:
        """What llguidance has against the grammar; empty if nothing."""
        return self._first.get_error()

    def start(self) -> GrammarState:
        """The state of a text that is still empty."""
        return GrammarState(self, self._first.deep_copy())

    def matches(self, text: str | bytes) -> bool:
        """Is this text a whole sentence of the grammar?"""
        try:
            data = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError:
            return False  # half of a surrogate pair is in no sentence
        data = data.strip(self.blanks.encode())
        state = self.for_reading.start()
        tokens = self.for_reading.vocabulary.tokenize(data, special=self.names_tokens)
        return state.follow(tokens) == len(tokens) and state.is_complete

    @cached_property
    def by_bytes(self) -> Grammar:
        """The same grammar for single bytes; itself if it names tokens."""
        if self.names_tokens or self.vocabulary is BYTE_VOCABULARY:
            return self
        return Grammar(self.origin, BYTE_VOCABULARY, self.translation)

    @cached_property
    def for_reading(self) -> Grammar:
        """`by_bytes`, but as lenient as texts of other people need."""
        if self.translation.lenient == self.translation.strict:
            return self.by_bytes
        return Grammar(self.origin, BYTE_VOCABULARY, self.translation._replace(strict=self.translation.lenient))


class GrammarState:
    """Where a text stands in its grammar. A `Constraint`."""

    def __init__(self, grammar: Grammar, matcher: LLMatcher) -> None:
        self.grammar = grammar
        self._vocabulary = grammar.vocabulary
        self._matcher = matcher
        self._words = np.zeros((grammar.tokenizer.vocab_size + 31) // 32, dtype=np.uint32)
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._text = bytearray()
        self._ended = False

    def copy(self) -> GrammarState:
        """Another state at the same place, which goes its own way."""
        other = GrammarState(self.grammar, self._matcher.deep_copy())
        other._recent, other._text, other._ended = self._recent.copy(), self._text.copy(), self._ended
        return other

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,); end-of-generation tokens where the text may end.

        Raises ``GrammarError`` when the grammar is too ambiguous to go on, or no token can write what must come.
        """
        if self._ended:
            return np.zeros(self._vocabulary.size, dtype=np.bool_)
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._check()
        bits = np.unpackbits(self._words.view(np.uint8), count=self._vocabulary.size, bitorder="little")
        return bits.view(np.bool_)

    def forced(self) -> list[int]:
        """The tokens that must come next, whatever the model says; often none."""
        data = self._forced_bytes()
        if not data:
            return []
        named = _NAMED.match(data)
        if named:
            return [int(named[1])]
        data = data.split(_NAME_BEGINS, 1)[0]
        tokens, _ = self.grammar.tokenizer.tokenize_partial(data, list(self._recent))
        return tokens[: self._matcher.validate_tokens(tokens)]

    def accept(self, token: int) -> None:
        """Move on by one token. Raises ``GrammarError`` if the mask would have refused it."""
        if token in self._vocabulary.eog and self.is_complete and not self._ended:
            self._ended = True
            return
        if self.follow([token]) == 0:
            piece = self._vocabulary.pieces[token] if 0 <= token < self._vocabulary.size else b""
            raise GrammarError(f"the grammar does not allow token {token}, {piece!r}, here")

    def closing(self) -> list[int]:
        """The tokens that make the text so far a whole sentence; see `logitsmith.grammars.closing`."""
        tokens = self.grammar.tokenizer.tokenize_bytes(shortest_completion(self.grammar, self.text))
        if self.copy().follow(tokens) < len(tokens):
            raise GrammarError("the vocabulary cannot write the end of the sentence")
        return tokens

    @property
    def description(self) -> dict[str, str]:
        """What the grammar is, for a record of the run."""
        return {"kind": self.grammar.kind, "root": self.grammar.root, "source": self.grammar.source}

    def follow(self, tokens: list[int]) -> int:
        """Move on by as many of these tokens as are allowed; return how many these were."""
        if self._ended or any(not 0 <= token < self._vocabulary.size for token in tokens):
            return 0
        taken = self._matcher.try_consume_tokens(tokens)
        self._check()
        self._recent.extend(tokens[:taken])
        for token in tokens[:taken]:
            self._text += self._vocabulary.pieces[token]
        return taken

    @property
    def text(self) -> bytes:
        """What was accepted so far."""
        return bytes(self._text)

    @property
    def forced_text(self) -> bytes:
        """The text that must come next, as far as it is certain, and up to a token that is named."""
        return self._forced_bytes().split(_NAME_BEGINS, 1)[0]

    def _forced_bytes(self) -> bytes:
        """The forced text as llguidance has it: a token that is named stands as 0xFF and ``[id]``."""
        if self._ended:
            return b""
        # With tokens that are named, asking changes what the matcher says later.
        matcher = self._matcher.deep_copy() if self.grammar.names_tokens else self._matcher
        return matcher.compute_ff_bytes()

    @property
    def is_complete(self) -> bool:
        """The text so far is a whole sentence."""
        return self._ended or self._matcher.is_accepting()

    def _check(self) -> None:
        if self._matcher.is_error():
            said = self._matcher.get_error().split("\n")[0]
            if said == _STUCK:
                raise GrammarError("no token of the vocabulary can write what the grammar asks for next")
            raise GrammarError(f"the grammar is too ambiguous, or never ends: {said}")
