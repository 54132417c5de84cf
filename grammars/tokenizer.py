"""A vocabulary as the engine that computes masks wants it."""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

from llguidance import LLTokenizer, TokenizerWrapper

from .vocabulary import Vocabulary

# A character that no tokenizer joins with what follows it; it shields the text behind it from the space that
# SentencePiece puts in front of a text.
_SHIELD = b"\x02"

# Tokens of such text are known to be allowed wherever a lexeme takes all of it: the inside of a string, a line.
# One of the four slices that llguidance would use; each costs time at the start, and this one helps most.
_SLICE = r'[^"\\\x00-\x1F\x7F]{1,30}'

_known: WeakKeyDictionary[Vocabulary, LLTokenizer] = WeakKeyDictionary()
_lock = Lock()


def tokenizer_of(vocabulary: Vocabulary) -> LLTokenizer:
    """The engine's tokenizer for a vocabulary; made once for each, by whichever thread comes first."""
    with _lock:
        found = _known.get(vocabulary)
        if found is None:
            wrapper = _Wrapper(vocabulary)
            found = _known[vocabulary] = LLTokenizer(wrapper, eos_token=wrapper.ends, slices=[_SLICE])
        return found


class _Wrapper(TokenizerWrapper):
    """The names under which llguidance asks."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        # Not the base's own, which tries out the tokenizer that it is given.
        self._vocabulary = vocabulary
        self._pieces = vocabulary.pieces
        self.tokens = list(self._pieces)
        self.ends = sorted(vocabulary.eog)
        if not self.ends:
            # llguidance wants an end token; this one lies beyond the vocabulary, where no mask reaches.
            self.ends = [len(self.tokens)]
            self.tokens.append(b"<end>")
        control = getattr(vocabulary, "control", None)
        if control is None:
            control = {token for token in range(vocabulary.size) if vocabulary.is_control(token)}
        self.eos_token_id = self.ends[0]
        self.special_token_ids = sorted({*control, *self.ends})

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokenize as the model's own text is, nothing put before it."""
        data = text.encode() if isinstance(text, str) else text
        tokens = self._vocabulary.tokenize(data)
        if b"".join(self._pieces[token] for token in tokens) == data:
            return tokens
        return self._behind_shield(data)

    def _behind_shield(self, data: bytes) -> list[int]:
        tokens = self._vocabulary.tokenize(_SHIELD + data)
        length = 0
        for number, token in enumerate(reversed(tokens), 1):
            length += len(self._pieces[token])
            if length == len(data):
                return tokens[-number:]
        return tokens
