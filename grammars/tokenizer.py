"""llguidance's tokenizer of a vocabulary."""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

from llguidance import LLTokenizer, TokenizerWrapper

from .vocabulary import Vocabulary

# No tokenizer joins this character with what follows it. It shields a text from the space that SentencePiece
# puts in front of it.
_SHIELD = b"\x02"

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
