"""A wrapper of llama_model that raises `ModelError`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...models.errors import AdapterError, ModelError
from .binding import (
    AbortFlag,
    discard_last_messages,
    last_error_suffix,
    lib,
)
from .options import LoadOptions, MetadataOverrides, cache_bytes_per_token, set_gpu_options
from .vocabulary import NativeVocabulary

# Architectures that can decode only one sequence per context. llama.cpp, as in llama-cpp-python 0.3.36, multiplies
# the offset of the first sequence in the recurrent state by the number of sequences.
_ONE_SEQUENCE_ARCHITECTURES = frozenset({"plamo2"})

_METADATA_BYTES = 1024  # memory for a metadata value when it is first read; longer values are read again


class _NativeModelParams:
    def __init__(self, options: LoadOptions) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = options.gpu_layers
        params.load_mode = _load_mode(options)
        self._gpu_shares = set_gpu_options(params, options.gpu)
        # With AMX, builds by some GCC versions lose stores to the tile configuration and crash in the first
        # prompt (llama.cpp issue 20824); without the extra buffers the AVX-512 kernels are used.
        params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        params.kv_overrides = self._override_array = _native_overrides(options.overrides)
        self.native = params  # the llama_model_params, valid as long as this object exists

    def report_to(self, progress: Callable[[float], bool]) -> None:
        """Call ``progress`` with the loaded fraction, 0 to 1. When ``progress`` returns False, loading stops."""
        self._callback = lib.llama_progress_callback(lambda fraction, _user: progress(fraction))
        self.native.progress_callback = self._callback

    def load(self, path: str | Path) -> Any:
        """Load a file, and return the llama_model; None if llama.cpp rejects the file."""
        return lib.llama_model_load_from_file(os.fsencode(path), self.native)


class NativeModel:
    """A llama_model: the constructor loads it, `close` frees it."""

    def __init__(
        self,
        path: str,
        options: LoadOptions,
        progress: Callable[[float], bool] | None = None,
    ) -> None:
        # ``progress`` gets the loaded fraction, 0 to 1; loading stops when it returns False. Without it, llama.cpp
        # calls no Python while it loads.
        self.abort_flag = AbortFlag()  # the flag that all contexts of the model read
        # whether some layers are computed on a GPU
        self.uses_gpu = options.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())
        params = _NativeModelParams(options)
        if progress is not None:
            params.report_to(progress)
        discard_last_messages()
        self.handle = params.load(path)  # the llama_model; None after `close`
        if not self.handle:
            raise ModelError(f"{path}: llama.cpp could not load the model{last_error_suffix()}")
        self.vocabulary = NativeVocabulary(lib.llama_model_get_vocab(self.handle), options.missing_bytes)

    def close(self) -> None:
        # The contexts of the model must be closed before.
        if self.handle:
            self.vocabulary.close()
            lib.llama_model_free(self.handle)
            self.handle = None

    @property
    def trained_context(self) -> int:
        """The context length that the model was trained with, tokens."""
        return int(lib.llama_model_n_ctx_train(self.handle))

    def generation_unsupported_reason(self) -> str | None:
        """Return a sentence about a model that does not write text token by token; None for a model that does."""
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
        """Return a short metadata value; empty if there is none. ``{}`` in the key stands for the architecture."""
        buffer = ctypes.create_string_buffer(_METADATA_BYTES)
        architecture = self._metadata_value("general.architecture") if "{}" in key else ""
        lib.llama_model_meta_val_str(self.handle, key.format(architecture).encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def can_truncate(self) -> bool:
        """True if a sequence can be truncated to any length; a recurrent model's state cannot be."""
        return not (lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))

    @property
    def layer_count(self) -> int:
        return int(lib.llama_model_n_layer(self.handle))

    @property
    def state_width(self) -> int:
        """The number of values in the last hidden state of a token."""
        return int(lib.llama_model_n_embd_out(self.handle))

    @property
    def is_mixture(self) -> bool:
        """True for a mixture of experts, which computes each token with a few of the experts."""
        values = (value for key, value in self.metadata().items() if key.endswith(".expert_count"))
        return any(value != "0" for value in values)

    @property
    def decodes_sequences_together(self) -> bool:
        """False if llama.cpp can decode only one sequence per context, and ends the process for several."""
        return self._metadata_value("general.architecture") not in _ONE_SEQUENCE_ARCHITECTURES

    def cache_bytes_per_token(self) -> int:
        heads, kv_heads = lib.llama_model_n_head(self.handle), lib.llama_model_n_head_kv(self.handle)
        return cache_bytes_per_token(self.layer_count, lib.llama_model_n_embd(self.handle), heads, kv_heads)

    def metadata(self) -> dict[str, str]:
        """Return the GGUF's metadata as strings; llama.cpp shortens long arrays."""
        count = lib.llama_model_meta_count(self.handle)
        read_key, read_value = lib.llama_model_meta_key_by_index, lib.llama_model_meta_val_str_by_index
        return {self._metadata_text(read_key, i): self._metadata_text(read_value, i) for i in range(count)}

    def _metadata_text(self, read_text: Callable[..., int], index: int) -> str:
        buffer = ctypes.create_string_buffer(_METADATA_BYTES)
        length = read_text(self.handle, index, buffer, len(buffer))
        if length >= len(buffer):
            buffer = ctypes.create_string_buffer(length + 1)
            read_text(self.handle, index, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def chat_template(self) -> str | None:
        """Return the GGUF's chat template, in Jinja; None if there is none."""
        template = lib.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    def load_adapter(self, path: str) -> object:
        """Load a LoRA adapter for this model. Raises ``AdapterError``."""
        discard_last_messages()
        adapter = lib.llama_adapter_lora_init(self.handle, os.fsencode(path))
        if not adapter:
            raise AdapterError(f"{path}: llama.cpp could not load this adapter{last_error_suffix()}")
        return adapter


def _load_mode(options: LoadOptions) -> int:
    if options.mlock:
        return int(lib.LLAMA_LOAD_MODE_MMAP_MLOCK if options.mmap else lib.LLAMA_LOAD_MODE_MLOCK)
    return int(lib.LLAMA_LOAD_MODE_MMAP if options.mmap else lib.LLAMA_LOAD_MODE_NONE)


def _native_overrides(overrides: MetadataOverrides) -> Any:
    """Return a C array of overrides, terminated by an empty key."""
    override_array = (lib.llama_model_kv_override * (len(overrides) + 1))()
    for native_override, (key, value) in zip(override_array, overrides.items(), strict=False):
        native_override.key = key.encode()
        if isinstance(value, bool):
            native_override.tag, native_override.value.val_bool = lib.LLAMA_KV_OVERRIDE_TYPE_BOOL, value
        elif isinstance(value, int):
            native_override.tag, native_override.value.val_i64 = lib.LLAMA_KV_OVERRIDE_TYPE_INT, value
        elif isinstance(value, float):
            native_override.tag, native_override.value.val_f64 = lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
        else:
            native_override.tag, native_override.value.val_str = lib.LLAMA_KV_OVERRIDE_TYPE_STR, value.encode()
    return override_array
