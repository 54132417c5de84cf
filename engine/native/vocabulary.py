"""A wrapper of llama_vocab: token ids, bytes and attributes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from itertools import compress, repeat
from typing import Any

from ...models.errors import ModelError
from .binding import bind_function, lib

# These functions are called for each new token. A PYFUNCTYPE does not release Python's lock, and is faster.
_TokenToPiece = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_bool
)
_write_piece = bind_function(lib, "llama_token_to_piece", _TokenToPiece)
_TokenTest = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int32)
_is_eog = bind_function(lib, "llama_vocab_is_eog", _TokenTest)
_is_control = bind_function(lib, "llama_vocab_is_control", _TokenTest)
_token_text = bind_function(
    lib, "llama_vocab_get_text", ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int32)
)

# llama.cpp's names of its types of vocabularies
_KINDS = {
    lib.LLAMA_VOCAB_TYPE_NONE: "none",
    lib.LLAMA_VOCAB_TYPE_SPM: "SPM",
    lib.LLAMA_VOCAB_TYPE_BPE: "BPE",
    lib.LLAMA_VOCAB_TYPE_WPM: "WPM",
    lib.LLAMA_VOCAB_TYPE_UGM: "UGM",
    lib.LLAMA_VOCAB_TYPE_RWKV: "RWKV",
    lib.LLAMA_VOCAB_TYPE_PLAMO2: "PLAMO2",
}

_SuppressedTokens = ctypes.CFUNCTYPE(
    ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32)
)
_get_suppressed_tokens = bind_function(lib, "llama_vocab_get_suppress_tokens", _SuppressedTokens)

# memory for the bytes of one token when all tokens are read; the few longer tokens are read again
_MAX_USUAL_PIECE_BYTES = 64

_SPACE_MARK = "\u2581"  # the character that stands for a space in SentencePiece's vocabularies

_MAX_UTF8_BYTES = 4  # the maximum number of bytes of one character in UTF-8


class NativeVocabulary:
    """A llama_vocab. It belongs to a model: `close` it before the model is freed."""

    def __init__(self, handle: Any, missing_bytes: frozenset[int]) -> None:
        # ``missing_bytes``: see `GgufHeader`
        self._handle = handle
        self.size = int(lib.llama_vocab_n_tokens(handle))
        self._missing_bytes = missing_bytes

    def close(self) -> None:
        """Make every later call raise ``ModelError``, because llama.cpp would crash."""
        self._handle = None

    @property
    def handle(self) -> Any:
        """The llama_vocab. Raises ``ModelError`` once the vocabulary is closed."""
        if self._handle is None:
            raise ModelError("the model is closed")
        return self._handle

    def special(self, name: str) -> int | None:
        """Return the id of the token ``bos``, ``eos``, ``eot``, ``nl`` or ``pad``; None if there is none."""
        token = int(getattr(lib, f"llama_vocab_{name}")(self.handle))
        return None if token < 0 else token

    def adds_bos(self) -> bool:
        """Return whether every text begins with the beginning-of-sequence token."""
        return bool(lib.llama_vocab_get_add_bos(self.handle))

    def adds_eos(self) -> bool:
        """Return whether every text ends with the end-of-sequence token."""
        return bool(lib.llama_vocab_get_add_eos(self.handle))

    def kind(self) -> str:
        """Return llama.cpp's name of the vocabulary's type, such as ``BPE``."""
        number = int(lib.llama_vocab_type(self.handle))
        return _KINDS.get(number, str(number))

    def texts(self) -> list[bytes]:
        """Return the text of every token by id, as the vocabulary spells it."""
        return list(map(_token_text, repeat(self.handle), range(self.size)))

    def suppressed_tokens(self) -> frozenset[int]:
        """Return the ids under ``tokenizer.ggml.suppress_tokens`` in the file that the vocabulary has."""
        count = ctypes.c_int32()
        tokens = _get_suppressed_tokens(self.handle, ctypes.byref(count))
        return frozenset(tokens[: count.value])

    def is_eog(self, token: int) -> bool:
        return bool(_is_eog(self.handle, token))

    def eog_tokens(self) -> frozenset[int]:
        # llama.cpp has no list of them; testing one token takes about 0.1 µs.
        tokens = range(self.size)
        return frozenset(compress(tokens, map(_is_eog, repeat(self.handle), tokens)))

    def is_control(self, token: int) -> bool:
        """Return whether a token is a control token, which is not text."""
        return bool(_is_control(self.handle, token))

    def splits_text(self, token: int) -> bool:
        """Return whether llama.cpp searches a text for this token before it tokenizes the rest of the text."""
        kinds = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        return bool(lib.llama_vocab_get_attr(self.handle, token) & kinds)

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; for a control token, the bytes of its name in the vocabulary."""
        length = _MAX_USUAL_PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(length)
            count = int(_write_piece(self.handle, token, buffer, length, 0, True))
            if count >= 0:
                return buffer.raw[:count]
            length = -count

    def text_pieces(self) -> list[bytes]:
        """Return the bytes of every token by id; empty for control tokens and other tokens that are not text."""
        total_bytes = _MAX_USUAL_PIECE_BYTES * self.size
        buffer = ctypes.create_string_buffer(total_bytes)
        buffer_start = ctypes.addressof(buffer)
        addresses = range(buffer_start, buffer_start + total_bytes, _MAX_USUAL_PIECE_BYTES)
        stripped_spaces = repeat(0)
        writes_special_tokens = repeat(False)
        capacities = repeat(_MAX_USUAL_PIECE_BYTES)
        lengths = list(
            map(
                _write_piece,
                repeat(self.handle),
                range(self.size),
                addresses,
                capacities,
                stripped_spaces,
                writes_special_tokens,
            )
        )
        raw = buffer.raw
        offsets = range(0, total_bytes, _MAX_USUAL_PIECE_BYTES)
        pieces = [raw[offset : offset + length] for offset, length in zip(offsets, lengths, strict=True)]
        for token, length in enumerate(lengths):
            if length < 0:  # the bytes did not fit into `_MAX_USUAL_PIECE_BYTES`
                pieces[token] = self.piece(token)
        return pieces

    def tokenize(self, data: bytes, add_special: bool, parse_special: bool) -> list[int]:
        """Return the token ids of a text in valid UTF-8; on other bytes llama.cpp would end the process."""
        # ``add_special``: whether to add the special tokens that every text begins or ends with, such as BOS.
        # ``parse_special``: whether names of control tokens in the text become these tokens. Raises ``ModelError``
        # if the vocabulary has no tokens for a part of the text.
        if data and self._missing_bytes:
            self._check_characters(data)
        if add_special:
            self._check_added_tokens()
        # Each token has at least one byte, except those that add_special adds at the ends of the text.
        capacity = len(data) + 16
        tokens = (lib.llama_token * capacity)()
        token_count = int(
            lib.llama_tokenize(self.handle, data, len(data), tokens, capacity, add_special, parse_special)
        )
        if token_count < 0:
            raise ModelError(f"llama.cpp could not tokenize a text of {len(data):,} bytes")
        ids = tokens[:token_count]
        if ids and min(ids) < 0:
            raise ModelError(
                "the model's vocabulary has no token for a part of the text, nor one for unknown text"
            )
        return ids

    def _check_added_tokens(self) -> None:
        """Raise ``ModelError`` if a token that every text begins or ends with does not exist."""
        # Without this check llama.cpp would end the process.
        is_wordpiece = lib.llama_vocab_type(self.handle) == lib.LLAMA_VOCAB_TYPE_WPM
        for name, is_added in (
            ("bos", is_wordpiece or lib.llama_vocab_get_add_bos(self.handle)),
            ("eos", not is_wordpiece and lib.llama_vocab_get_add_eos(self.handle)),
            ("sep", is_wordpiece),
        ):
            if is_added and self.special(name) is None:
                raise ModelError(f"the model adds the token {name!r} to each text, but its vocabulary has none")

    def _check_characters(self, data: bytes) -> None:
        """Raise ``ModelError`` for a character with neither a token nor tokens for its bytes."""
        # llama.cpp would end the process. It may add a space at the beginning, and reads a space as `_SPACE_MARK`.
        for character in {" ", *data.decode()}:
            character_bytes = (_SPACE_MARK if character == " " else character).encode()
            if character.replace(_SPACE_MARK, " ").encode() in self._single_characters:
                continue
            if not self._missing_bytes.isdisjoint(character_bytes):
                raise ModelError(f"the model's vocabulary has no token for {character!r}, nor for its bytes")

    @cached_property
    def _single_characters(self) -> frozenset[bytes]:
        """The tokens that are one character, in UTF-8."""
        return frozenset(text for text in self.text_pieces() if len(text) <= _MAX_UTF8_BYTES)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens, without control tokens."""
        array = (lib.llama_token * len(tokens))(*tokens)
        length = 16 * len(tokens) + 64  # enough for most texts; otherwise llama.cpp returns the length it needs
        while True:
            buffer = ctypes.create_string_buffer(length)
            count = int(lib.llama_detokenize(self.handle, array, len(tokens), buffer, length, False, False))
            if count >= 0:
                return buffer.raw[:count]
            length = -count
