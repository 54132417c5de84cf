"""llama.cpp's C functions for models and vocabularies, behind a class that raises ModelError."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

import llama_cpp.llama_cpp as lib

from .errors import ModelError
from .metadata_overrides import MetadataOverrides
from .native_log import failed_assertions_as_errors, reason_suffix

# Called for each token of a vocabulary. A PYFUNCTYPE keeps Python's lock, which is faster than releasing it.
_piece_of = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_bool
)(ctypes.cast(lib.llama_token_to_piece, ctypes.c_void_p).value or 0)

_PIECE_BYTES = 64
"""Memory for the bytes of one token when all are read at once; the few longer ones are read again."""

_BLANK = "\u2581"
"""What stands for a blank in SentencePiece's vocabularies."""

_UTF8_BYTES = 4
"""The most bytes that UTF-8 has for a character."""

_METADATA_BYTES = 1024
"""Memory for one metadata text at first; longer ones are read again."""


@dataclass(frozen=True)
class LoadOptions:
    """How llama.cpp loads a model file.

    Attributes: ``gpu_layers``, layers on the GPU, -1 for all; ``mmap``, whether the file is mapped into memory;
    ``mlock``, whether it is locked there; ``missing_bytes``, see `GgufHeader`; ``overrides``, metadata by key.
    """

    gpu_layers: int = 0
    mmap: bool = True
    mlock: bool = False
    missing_bytes: frozenset[int] = frozenset()
    overrides: MetadataOverrides = field(default_factory=dict)


class NativeModel:
    """A llama_model with its vocabulary of ``size`` tokens: loaded by the constructor, freed by `close`.

    ``uses_gpu``: whether some layers are computed on a GPU.
    """

    def __init__(self, path: str, options: LoadOptions, progress: Callable[[float], bool] | None = None) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = options.gpu_layers
        self.uses_gpu = options.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())
        params.load_mode = _load_mode(options)
        # With AMX, builds by some GCC versions lose stores to the tile configuration and crash in the first
        # prompt (llama.cpp issue 20824); without the extra buffers the AVX-512 kernels are used.
        params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        overrides = _native_overrides(options.overrides)
        params.kv_overrides = overrides
        callback = lib.llama_progress_callback(lambda fraction, _user: progress is None or progress(fraction))
        params.progress_callback = callback
        with failed_assertions_as_errors():
            self.handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self.handle:
            raise ModelError(f"{path}: llama.cpp could not load it{reason_suffix()}")
        self._vocab = lib.llama_model_get_vocab(self.handle)
        self.size = int(lib.llama_vocab_n_tokens(self.vocab))
        self._missing_bytes = options.missing_bytes

    def close(self) -> None:
        """Free the model. Close its contexts first."""
        if self.handle:
            lib.llama_model_free(self.handle)
            self.handle = self._vocab = None

    @property
    def vocab(self) -> Any:
        """The llama_vocab. Raises ``ModelError`` once the model is closed; llama.cpp would crash."""
        if self._vocab is None:
            raise ModelError("the model is closed")
        return self._vocab

    @property
    def trained_context(self) -> int:
        """The context length that the model was trained with, tokens."""
        return int(lib.llama_model_n_ctx_train(self.handle))

    def why_it_cannot_generate(self) -> str | None:
        """A sentence about a model that does not write text token by token; None for one that does."""
        if not lib.llama_model_has_decoder(self.handle):
            return "this model does not write text (an embedding or encoder model)"
        if lib.llama_model_has_encoder(self.handle):
            return "this is an encoder-decoder model, whose encoder gen cannot run; give a decoder-only model"
        if lib.llama_model_is_diffusion(self.handle):
            return "this is a diffusion model, which does not write token by token; give another model"
        if self._metadata_value("{}.attention.causal") == "false":
            return "this model does not write text (an embedding or encoder model)"
        return None

    def _metadata_value(self, key: str) -> str:
        """A short text of the metadata, empty if there is none; ``{}`` in the key is the architecture."""
        buffer = ctypes.create_string_buffer(_METADATA_BYTES)
        architecture = self._metadata_value("general.architecture") if "{}" in key else ""
        lib.llama_model_meta_val_str(self.handle, key.format(architecture).encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def can_truncate(self) -> bool:
        """True if a sequence can be truncated to any length; a recurrent model's state cannot."""
        return not (lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return int(lib.llama_model_n_layer(self.handle))

    @property
    def state_width(self) -> int:
        """Numbers in the last hidden state of a token."""
        return int(lib.llama_model_n_embd_out(self.handle))

    @property
    def is_mixture(self) -> bool:
        """True for a mixture of experts, which sends each token to a few of them."""
        values = (value for key, value in self.metadata().items() if key.endswith(".expert_count"))
        return any(value != "0" for value in values)

    def cache_bytes_per_token(self) -> int:
        """Memory for the keys and values of one token: two numbers of two bytes each, llama.cpp's default."""
        heads = lib.llama_model_n_head(self.handle)
        width = lib.llama_model_n_embd(self.handle) // max(1, heads) * lib.llama_model_n_head_kv(self.handle)
        return int(self.layers * width * 4)

    def metadata(self) -> dict[str, str]:
        """The GGUF's metadata as texts; llama.cpp shortens long arrays."""
        count = lib.llama_model_meta_count(self.handle)
        read_key, read_value = lib.llama_model_meta_key_by_index, lib.llama_model_meta_val_str_by_index
        return {self._metadata_text(read_key, i): self._metadata_text(read_value, i) for i in range(count)}

    def _metadata_text(self, function: Callable[..., int], index: int) -> str:
        buffer = ctypes.create_string_buffer(_METADATA_BYTES)
        length = function(self.handle, index, buffer, len(buffer))
        if length >= len(buffer):
            buffer = ctypes.create_string_buffer(length + 1)
            function(self.handle, index, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def chat_template(self) -> str | None:
        """The GGUF's chat template, in Jinja; None without one."""
        template = lib.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    def special(self, name: str) -> int | None:
        """The id of the token ``bos``, ``eos``, ``eot`` or ``nl``; None if the vocabulary has none."""
        token = int(getattr(lib, f"llama_vocab_{name}")(self.vocab))
        return None if token < 0 else token

    def adds_bos(self) -> bool:
        """True if a text begins with the beginning-of-sequence token."""
        return bool(lib.llama_vocab_get_add_bos(self.vocab))

    def is_eog(self, token: int) -> bool:
        """True for an end-of-generation token."""
        return bool(lib.llama_vocab_is_eog(self.vocab, token))

    def is_control(self, token: int) -> bool:
        """True for a control token, which is not text."""
        return bool(lib.llama_vocab_is_control(self.vocab, token))

    def splits_text(self, token: int) -> bool:
        """True for a token that llama.cpp looks for in a text before it tokenizes what is between such tokens."""
        kinds = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        return bool(lib.llama_vocab_get_attr(self.vocab, token) & kinds)

    def piece(self, token: int) -> bytes:
        """The bytes of one token; of a control token, those of its name in the vocabulary."""
        length = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(length)
            count = int(lib.llama_token_to_piece(self.vocab, token, buffer, length, 0, True))
            if count >= 0:
                return buffer.raw[:count]
            length = -count

    def text_pieces(self) -> list[bytes]:
        """The bytes of every token by id; empty for control tokens and others that are not text."""
        total_bytes = _PIECE_BYTES * self.size
        buffer = ctypes.create_string_buffer(total_bytes)
        start = ctypes.addressof(buffer)
        addresses = range(start, start + total_bytes, _PIECE_BYTES)
        constants = (repeat(_PIECE_BYTES), repeat(0), repeat(False))
        lengths = list(map(_piece_of, repeat(self.vocab), range(self.size), addresses, *constants))
        raw = buffer.raw
        offsets = range(0, total_bytes, _PIECE_BYTES)
        pieces = [raw[offset : offset + length] for offset, length in zip(offsets, lengths, strict=True)]
        for token, length in enumerate(lengths):
            if length < 0:  # it did not fit
                pieces[token] = self.piece(token)
        return pieces

    def tokenize(self, data: bytes, bos: bool, special: bool) -> list[int]:
        """Token ids of a text in valid UTF-8; on other bytes llama.cpp would end the process.

        Raises ``ModelError`` if the vocabulary has no tokens for a part of the text.
        """
        if data and self._missing_bytes:
            self._check_covered(data)
        if bos:
            self._check_ends()
        capacity = len(data) + 16  # a token has at least one byte, apart from special ones at the ends
        tokens = (lib.llama_token * capacity)()
        count = int(lib.llama_tokenize(self.vocab, data, len(data), tokens, capacity, bos, special))
        if count < 0:
            raise ModelError(f"llama.cpp could not tokenize a text of {len(data):,} bytes")
        ids = tokens[:count]
        if ids and min(ids) < 0:
            raise ModelError(
                "the model's vocabulary has no token for a part of the text, nor one for unknown text"
            )
        return ids

    def _check_ends(self) -> None:
        """Raise ``ModelError`` if a token that every text begins or ends with does not exist.

        llama.cpp would end the process.
        """
        is_wordpiece = lib.llama_vocab_type(self.vocab) == lib.LLAMA_VOCAB_TYPE_WPM
        for name, is_added in (
            ("bos", is_wordpiece or lib.llama_vocab_get_add_bos(self.vocab)),
            ("eos", not is_wordpiece and lib.llama_vocab_get_add_eos(self.vocab)),
            ("sep", is_wordpiece),
        ):
            if is_added and self.special(name) is None:
                raise ModelError(f"the model adds the token {name!r} to each text, but its vocabulary has none")

    def _check_covered(self, data: bytes) -> None:
        """Raise ``ModelError`` for a character with no token and no tokens of its bytes.

        llama.cpp would end the process. It may put a blank in front, and reads a blank as `_BLANK`.
        """
        for character in {" ", *data.decode()}:
            encoded = (_BLANK if character == " " else character).encode()
            if character.replace(_BLANK, " ").encode() in self._single_characters:
                continue
            if not self._missing_bytes.isdisjoint(encoded):
                raise ModelError(f"the model's vocabulary has no token for {character!r}, nor for its bytes")

    @cached_property
    def _single_characters(self) -> frozenset[bytes]:
        """The tokens that are one character, in UTF-8."""
        return frozenset(text for text in self.text_pieces() if len(text) <= _UTF8_BYTES)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The text of some tokens, without control tokens."""
        array = (lib.llama_token * len(tokens))(*tokens)
        length = 16 * len(tokens) + 64  # enough for most texts; llama.cpp says how much others need
        while True:
            buffer = ctypes.create_string_buffer(length)
            count = int(lib.llama_detokenize(self.vocab, array, len(tokens), buffer, length, False, False))
            if count >= 0:
                return buffer.raw[:count]
            length = -count

    def load_adapter(self, path: str) -> object:
        """Load a LoRA adapter for this model."""
        adapter = lib.llama_adapter_lora_init(self.handle, os.fsencode(path))
        if not adapter:
            raise ModelError(f"{path}: llama.cpp could not load this adapter{reason_suffix()}")
        return adapter


def _load_mode(options: LoadOptions) -> int:
    if options.mlock:
        return int(lib.LLAMA_LOAD_MODE_MMAP_MLOCK if options.mmap else lib.LLAMA_LOAD_MODE_MLOCK)
    return int(lib.LLAMA_LOAD_MODE_MMAP if options.mmap else lib.LLAMA_LOAD_MODE_NONE)


def _native_overrides(overrides: MetadataOverrides) -> Any:
    """A C array of overrides; an empty key ends it."""
    array = (lib.llama_model_kv_override * (len(overrides) + 1))()
    for native, (key, value) in zip(array, overrides.items(), strict=False):
        native.key = key.encode()
        if isinstance(value, bool):
            native.tag, native.value.val_bool = lib.LLAMA_KV_OVERRIDE_TYPE_BOOL, value
        elif isinstance(value, int):
            native.tag, native.value.val_i64 = lib.LLAMA_KV_OVERRIDE_TYPE_INT, value
        elif isinstance(value, float):
            native.tag, native.value.val_f64 = lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
        else:
            native.tag, native.value.val_str = lib.LLAMA_KV_OVERRIDE_TYPE_STR, value.encode()
    return array
