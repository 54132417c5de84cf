"""llguidance's tokenizer of a vocabulary, and limits on the work of llguidance.

`Vocabulary` is the protocol that a vocabulary must implement for grammars. `BYTE_VOCABULARY` consists of single
bytes, for grammars without a model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Lock
from typing import Protocol
from weakref import WeakKeyDictionary

from llguidance import LLParserLimits, LLTokenizer, TokenizerWrapper

MAX_SOURCE_CHARACTERS = 1_000_000  # maximum length of a grammar's source

# Maximum length of a text that completes a sentence. llguidance needs 9 s to check one of 100,000 bytes.
MAX_COMPLETION_BYTES = 20_000


class Vocabulary(Protocol):
    """A vocabulary whose tokens masks allow. ``logitsmith.engine.Vocabulary`` implements this protocol.

    A vocabulary may also have an attribute ``control``, the ids of all control tokens. Without this attribute,
    `is_control` is called for every id. It may have an attribute ``suppressed``, a set of the ids that are never
    drawn: no forced token and no completion has such an id.
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
        """The bytes of every token, in the order of the ids."""
        ...

    def is_control(self, token: int) -> bool:
        """Return True for a control token, whose bytes are not part of the text."""
        ...

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return the token ids of a text. With ``special``, the text of a control token becomes this token."""
        ...


_END_TOKEN = 256


class _ByteVocabulary:
    """A vocabulary of the 256 bytes and one end-of-generation token, to match texts without a model."""

    size = 257
    eog = frozenset({_END_TOKEN})
    control = eog
    pieces = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def is_control(self, token: int) -> bool:
        """Return True for the end-of-generation token."""
        return token in self.control

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return the bytes as ids. With ``special``, ``<end>`` becomes the end-of-generation token."""
        if not special:
            return list(data)
        first_part, *other_parts = data.split(b"<end>")
        tokens = list(first_part)
        for part in other_parts:
            tokens += [_END_TOKEN, *part]
        return tokens


BYTE_VOCABULARY = _ByteVocabulary()

# A slice is a set of tokens for which llguidance precomputes whether a lexeme allows all of them, as in a string
# or a line. llguidance has four slices by default. Each takes time at the start, and this one saves the most time.
_COMMON_TEXT_SLICE = r'[^"\\\x00-\x1F\x7F]{1,30}'

_tokenizers: WeakKeyDictionary[Vocabulary, LLTokenizer] = WeakKeyDictionary()
_tokenizers_lock = Lock()


def tokenizer_of(vocabulary: Vocabulary) -> LLTokenizer:
    """Return llguidance's tokenizer of a vocabulary. The first call creates it, later calls share it."""
    with _tokenizers_lock:
        tokenizer = _tokenizers.get(vocabulary)
        if tokenizer is None:
            wrapper = _VocabularyWrapper(vocabulary)
            tokenizer = LLTokenizer(wrapper, eos_token=wrapper.end_tokens, slices=[_COMMON_TEXT_SLICE])
            _tokenizers[vocabulary] = tokenizer
        return tokenizer


# No tokenizer joins this character with the next one. Before a text, it keeps SentencePiece from adding a space to
# the text.
_SHIELD_BYTE = b"\x02"


class _VocabularyWrapper(TokenizerWrapper):
    """An adapter of a vocabulary to the attribute names that llguidance requires."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        # The base class's __init__ is not called, because it would test the tokenizer with some texts.
        self._vocabulary = vocabulary
        self._pieces = vocabulary.pieces
        self.tokens = list(self._pieces)
        self.end_tokens = sorted(vocabulary.eog)
        if not self.end_tokens:
            # llguidance requires an end token. The id of this token follows the vocabulary's last id, so that no
            # mask contains the token.
            self.end_tokens = [len(self.tokens)]
            self.tokens.append(b"<end>")
        control_tokens = getattr(vocabulary, "control", None)
        if control_tokens is None:
            control_tokens = {token for token in range(vocabulary.size) if vocabulary.is_control(token)}
        self.eos_token_id = self.end_tokens[0]
        self.special_token_ids = sorted({*control_tokens, *self.end_tokens})

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokenize a text without the space that SentencePiece may add before it."""
        data = text.encode() if isinstance(text, str) else text
        tokens = self._vocabulary.tokenize(data)
        if b"".join(self._pieces[token] for token in tokens) == data:
            return tokens
        return self._tokenize_shielded(data)

    def _tokenize_shielded(self, data: bytes) -> list[int]:
        """Tokenize the text with the shield before it, and return the tokens after the shield."""
        tokens = self._vocabulary.tokenize(_SHIELD_BYTE + data)
        byte_count = 0
        for token_count, token in enumerate(reversed(tokens), 1):
            byte_count += len(self._pieces[token])
            if byte_count == len(data):
                return tokens[-token_count:]
        return tokens


def _parser_limits(step_lexer_fuel: int, max_items_in_row: int = 20_000) -> LLParserLimits:
    return LLParserLimits(
        max_items_in_row=max_items_in_row,
        initial_lexer_fuel=4_000_000,
        step_lexer_fuel=step_lexer_fuel,
        step_max_items=2_000_000,
        verbose_errors=False,
    )


# limits above llguidance's defaults, so that masks of ambiguous grammars are slow but exact
PARSER_LIMITS = _parser_limits(step_lexer_fuel=2_000_000)

# Limits for a search of thousands of steps. With ambiguous counted repetitions, each step needs more fuel.
_SEARCH_FUEL = 50_000
SEARCH_LIMITS = _parser_limits(_SEARCH_FUEL)

# Limits for a walk, which may go round for ever. In an array or object that matches several schemas, llguidance's
# items and its time for a byte grow with the text.
WALK_LIMITS = _parser_limits(_SEARCH_FUEL, max_items_in_row=1000)
