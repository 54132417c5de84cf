"""Thin handles over llama.cpp's C functions for models, which raise ModelError; its log, and its end."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import llama_cpp.llama_cpp as lib
from llama_cpp._ggml import libggml

from .errors import ModelError

BINDING_VERSION: str = sys.modules["llama_cpp"].__version__

# A call that is made for each token of a vocabulary. It keeps Python's lock, which is cheaper.
_piece_of = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_bool
)(ctypes.cast(lib.llama_token_to_piece, ctypes.c_void_p).value or 0)

_PIECE_ROOM = 64

_DEBUG, _WARNING, _ERROR = 1, 3, 4
_log_sink: Callable[[str], object] | None = None
_log_tail: list[str] = []


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user: object) -> None:
    line = text.decode("utf-8", "replace")
    if level in (_WARNING, _ERROR) and line.strip():
        _log_tail[:] = [*_log_tail[-4:], line.strip()]
    if _log_sink is not None and level != _DEBUG:
        _log_sink(line)


lib.llama_log_set(_on_log, ctypes.c_void_p(0))
lib.llama_backend_init()


def set_log_sink(sink: Callable[[str], object] | None) -> None:
    """Give llama.cpp's own log lines to ``sink``; with None, the default, they are silent."""
    global _log_sink  # noqa: PLW0603 - llama.cpp has one log for the process
    _log_sink = sink


_ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_on_abort: list[object] = []


def set_abort_handler(handler: Callable[[str], None]) -> None:
    """Call ``handler`` with the reason when llama.cpp is about to end the process; it should not return."""
    callback = _ABORT_CALLBACK(lambda reason: handler(reason.decode("utf-8", "replace")))
    libggml.ggml_set_abort_callback(callback)
    _on_abort[:] = [callback]  # C holds no reference


def last_complaint() -> str:
    """llama.cpp's last warnings or errors, for a message; empty if it said nothing."""
    said = "; ".join(_log_tail[-2:])
    _log_tail.clear()
    return said


@dataclass(frozen=True)
class LoadOptions:
    """How llama.cpp reads a model file."""

    gpu_layers: int = 0
    mmap: bool = True
    mlock: bool = False


class NativeModel:
    """A llama_model: loaded in the constructor, freed by `close`."""

    def __init__(self, path: str, options: LoadOptions, progress: Callable[[float], bool] | None = None) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = options.gpu_layers
        params.load_mode = _load_mode(options)
        # With AMX, builds by some GCC versions lose stores to the tile configuration and crash in the first
        # prompt (llama.cpp issue 20824); without the extra buffers the AVX-512 kernels are used.
        params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        callback = lib.llama_progress_callback(lambda part, _user: progress is None or progress(part))
        params.progress_callback = callback
        self.handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self.handle:
            said = last_complaint()
            raise ModelError(f"{path}: llama.cpp could not load it{': ' + said if said else ''}")
        self._vocab = lib.llama_model_get_vocab(self.handle)
        self.size = int(lib.llama_vocab_n_tokens(self.vocab))

    def close(self) -> None:
        """Free the model; contexts made of it must be closed before."""
        if self.handle:
            lib.llama_model_free(self.handle)
            self.handle = self._vocab = None

    @property
    def vocab(self) -> Any:
        """llama.cpp's vocabulary. Raises ``ModelError`` once the model is closed, where C would crash."""
        if self._vocab is None:
            raise ModelError("the model is closed")
        return self._vocab

    @property
    def trained_context(self) -> int:
        """The context length that the model was trained with, tokens."""
        return int(lib.llama_model_n_ctx_train(self.handle))

    @property
    def generates(self) -> bool:
        """Can it write text by itself: a decoder, without an encoder that must run first?"""
        return bool(lib.llama_model_has_decoder(self.handle)) and not lib.llama_model_has_encoder(self.handle)

    @property
    def goes_back(self) -> bool:
        """Can a text be cut back to some length? A recurrent model's state can not."""
        return not (lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))

    def bytes_a_token(self) -> int:
        """Memory for the keys and values of one token, at llama.cpp's usual two bytes a number."""
        heads = lib.llama_model_n_head(self.handle)
        width = lib.llama_model_n_embd(self.handle) // max(1, heads) * lib.llama_model_n_head_kv(self.handle)
        return int(lib.llama_model_n_layer(self.handle) * width * 4)

    def metadata(self) -> dict[str, str]:
        """The GGUF's metadata as texts; long arrays are cut short by llama.cpp."""
        count = lib.llama_model_meta_count(self.handle)
        read = (lib.llama_model_meta_key_by_index, lib.llama_model_meta_val_str_by_index)
        return {self._meta(read[0], i): self._meta(read[1], i) for i in range(count)}

    def _meta(self, function: Callable[..., int], index: int) -> str:
        buffer = ctypes.create_string_buffer(1024)
        length = function(self.handle, index, buffer, len(buffer))
        if length >= len(buffer):
            buffer = ctypes.create_string_buffer(length + 1)
            function(self.handle, index, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def chat_template(self) -> str | None:
        """The GGUF's own chat template, Jinja, or None."""
        template = lib.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    def special(self, name: str) -> int | None:
        """The id of ``bos``, ``eos``, ``eot`` or ``nl``; None if the vocabulary has none."""
        token = int(getattr(lib, f"llama_vocab_{name}")(self.vocab))
        return None if token < 0 else token

    def adds_bos(self) -> bool:
        """Does a text begin with the beginning-of-sequence token?"""
        return bool(lib.llama_vocab_get_add_bos(self.vocab))

    def is_eog(self, token: int) -> bool:
        """Does this token end a generation?"""
        return bool(lib.llama_vocab_is_eog(self.vocab, token))

    def is_control(self, token: int) -> bool:
        """Is it a control token, which is not text?"""
        return bool(lib.llama_vocab_is_control(self.vocab, token))

    def piece(self, token: int) -> bytes:
        """The bytes of one token; control tokens as they are written in the vocabulary."""
        length = 64
        while True:
            buffer = ctypes.create_string_buffer(length)
            count = int(lib.llama_token_to_piece(self.vocab, token, buffer, length, 0, True))
            if count >= 0:
                return buffer.raw[:count]
            length = -count

    def text_pieces(self) -> list[bytes]:
        """The bytes of every token by id; empty for control tokens and the like, which are no text."""
        room = _PIECE_ROOM * self.size
        buffer = ctypes.create_string_buffer(room)
        start = ctypes.addressof(buffer)
        places = range(start, start + room, _PIECE_ROOM)
        fixed = (repeat(_PIECE_ROOM), repeat(0), repeat(False))
        lengths = list(map(_piece_of, repeat(self.vocab), range(self.size), places, *fixed))
        raw = buffer.raw
        found = [raw[at : at + length] for at, length in zip(range(0, room, _PIECE_ROOM), lengths, strict=True)]
        for token, length in enumerate(lengths):
            if length < 0:  # it did not fit
                found[token] = self.piece(token)
        return found

    def tokenize(self, data: bytes, bos: bool, special: bool) -> list[int]:
        """Token ids of a text in valid UTF-8 (llama.cpp aborts on any other)."""
        room = len(data) + 16
        tokens = (lib.llama_token * room)()
        count = int(lib.llama_tokenize(self.vocab, data, len(data), tokens, room, bos, special))
        if count < 0:
            raise ModelError(f"llama.cpp could not tokenize a text of {len(data):,} bytes")
        return tokens[:count]

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The text of some tokens, control tokens left out."""
        array = (lib.llama_token * len(tokens))(*tokens)
        length = 16 * len(tokens) + 64
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
            said = last_complaint()
            raise ModelError(f"{path}: llama.cpp could not load this adapter{': ' + said if said else ''}")
        return adapter


def _load_mode(options: LoadOptions) -> int:
    if options.mlock:
        return int(lib.LLAMA_LOAD_MODE_MMAP_MLOCK if options.mmap else lib.LLAMA_LOAD_MODE_MLOCK)
    return int(lib.LLAMA_LOAD_MODE_MMAP if options.mmap else lib.LLAMA_LOAD_MODE_NONE)
