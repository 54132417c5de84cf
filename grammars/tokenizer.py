"""llguidance's tokenizer of a vocabulary, and the limits on what llguidance may spend on a grammar.

`Vocabulary` is what a grammar needs of a vocabulary. `BYTE_VOCABULARY` has single bytes, for grammars without a
model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Lock
from typing import Protocol
from weakref import WeakKeyDictionary

from llguidance import LLParserLimits, LLTokenizer, TokenizerWrapper

MAX_SOURCE_CHARACTERS = 1_000_000
"""The longest text of a grammar."""

MAX_COMPLETION_BYTES = 20_000
"""The longest text that closes a sentence; llguidance takes 9 s to follow one of 100,000 bytes."""


class Vocabulary(Protocol):
    """The tokens of masks. ``logitsmith.engine.Vocabulary`` is one.

    A vocabulary may also have ``control``, the ids for which `is_control` is true; without it every id is asked
    about.
    """

    @property
    def size(self) -> int:
        """The number of tokens."""
        ...

    @property
    def eog(self) -> Collection[int]:
        """The ids of the end-of-generation tokens."""
        ...

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token, by id."""
        ...

    def is_control(self, token: int) -> bool:
        """True for a control token, which is not part of the text."""
        ...

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """The token ids of a text; ``special``: control tokens are recognized where their text stands."""
        ...


class _ByteVocabulary:
    """The 256 bytes and one end token: with it a grammar matches texts without a model."""

    size = 257
    eog = frozenset({256})
    control = eog
    pieces = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def is_control(self, token: int) -> bool:
        """True for the end token."""
        return token in self.control

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """The bytes themselves; with ``special``, ``<end>`` is the end token."""
        if not special:
            return list(data)
        parts = [list(part) for part in data.split(b"<end>")]
        return [token for part in parts for token in (256, *part)][1:]


BYTE_VOCABULARY = _ByteVocabulary()

# llguidance knows that tokens of such text are allowed wherever a lexeme takes all of it: in a string, in a line.
# It has four such slices by default. Each costs time at the start, and this one saves most.
_SLICE = r'[^"\\\x00-\x1F\x7F]{1,30}'

_tokenizers: WeakKeyDictionary[Vocabulary, LLTokenizer] = WeakKeyDictionary()
_lock = Lock()


def tokenizer_of(vocabulary: Vocabulary) -> LLTokenizer:
    """Return llguidance's tokenizer of a vocabulary. It is made once, by the thread that comes first."""
    with _lock:
        tokenizer = _tokenizers.get(vocabulary)
        if tokenizer is None:
            wrapper = _VocabularyWrapper(vocabulary)
            tokenizer = LLTokenizer(wrapper, eos_token=wrapper.end_tokens, slices=[_SLICE])
            _tokenizers[vocabulary] = tokenizer
        return tokenizer


# No tokenizer joins this character with what follows it. It shields a text from the space that SentencePiece
# puts in front of it.
_SHIELD = b"\x02"


class _VocabularyWrapper(TokenizerWrapper):
    """A vocabulary under the names that llguidance asks for."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        # The base class's __init__ is not called: it would try out the tokenizer.
        self._vocabulary = vocabulary
        self._pieces = vocabulary.pieces
        self.tokens = list(self._pieces)
        self.end_tokens = sorted(vocabulary.eog)
        if not self.end_tokens:
            # llguidance needs an end token. This one is beyond the vocabulary, which no mask reaches.
            self.end_tokens = [len(self.tokens)]
            self.tokens.append(b"<end>")
        control = getattr(vocabulary, "control", None)
        if control is None:
            control = {token for token in range(vocabulary.size) if vocabulary.is_control(token)}
        self.eos_token_id = self.end_tokens[0]
        self.special_token_ids = sorted({*control, *self.end_tokens})

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokenize a text as the model writes it, with nothing in front of it."""
        data = text.encode() if isinstance(text, str) else text
        tokens = self._vocabulary.tokenize(data)
        if b"".join(self._pieces[token] for token in tokens) == data:
            return tokens
        return self._tokenize_shielded(data)

    def _tokenize_shielded(self, data: bytes) -> list[int]:
        """Tokenize the text behind the shield, and return the tokens that make up the text."""
        tokens = self._vocabulary.tokenize(_SHIELD + data)
        length = 0
        for count, token in enumerate(reversed(tokens), 1):
            length += len(self._pieces[token])
            if length == len(data):
                return tokens[-count:]
        return tokens


def _limits(step_lexer_fuel: int) -> LLParserLimits:
    return LLParserLimits(
        max_items_in_row=20_000,
        initial_lexer_fuel=4_000_000,
        step_lexer_fuel=step_lexer_fuel,
        step_max_items=2_000_000,
        verbose_errors=False,
    )


PARSER_LIMITS = _limits(step_lexer_fuel=2_000_000)
"""Higher than llguidance's defaults: an ambiguous grammar is slow to follow, but exact."""

SEARCH_LIMITS = _limits(step_lexer_fuel=50_000)
"""For a search of thousands of steps. A counted repetition of ambiguous parts needs more fuel with each step."""
