"""A wrapper of llama_model that raises `ModelError`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...models.errors import AdapterError
from ..load_options import LoadOptions
from ..model_files import cache_bytes_per_token
from .binding import (
    AbortFlag,
    discard_last_messages,
    last_error_suffix,
    lib,
    load_error,
)
from .options import Offload, native_model_params
from .vocabulary import NativeVocabulary

# Architectures that can decode only one sequence per context. llama.cpp, as in llama-cpp-python 0.3.36, multiplies
# the offset of the first sequence in the recurrent state by the number of sequences.
_ONE_SEQUENCE_ARCHITECTURES = frozenset({"plamo2"})

_METADATA_BYTES = 1024  # memory for a metadata value when it is first read; longer values are read again


def load_file(path: Path, params: Any) -> Any:
    """Return the llama_model of a file; None if llama.cpp rejects the file."""
    return lib.llama_model_load_from_file(os.fsencode(path), params)


class NativeModel:
    """A llama_model: the constructor loads it, `close` frees it."""

    def __init__(
        self,
        path: Path,
        options: LoadOptions,
        missing_bytes: frozenset[int],
        offload: Offload,
        progress: Callable[[float], bool] | None = None,
    ) -> None:
        # ``missing_bytes``: see `GgufHeader`. ``progress`` gets the loaded fraction, 0 to 1; loading stops when it
        # returns False. Without it, llama.cpp calls no Python while it loads.
        self.abort_flag = AbortFlag()  # the flag that all contexts of the model read
        self.threads = options.thread_count
        self.options = replace(options, threads=self.threads)  # all contexts have the same number of threads
        # the LoRA adapters with their scales, which every context gets; none before `load_adapters`
        self.adapters: list[tuple[object, float]] = []
        self.open_contexts = 0  # number of contexts of the model that are not closed
        # whether some layers are computed on a GPU
        self.uses_gpu = offload.layers > 0
        params = native_model_params(options, path, offload, progress)
        discard_last_messages()
        self.handle = load_file(path, params)  # the llama_model; None after `close`
        if not self.handle:
            raise load_error(f"{path}: llama.cpp could not load the model")
        self.vocabulary = NativeVocabulary(lib.llama_model_get_vocab(self.handle), missing_bytes)

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
        heads = lib.llama_model_n_head(self.handle)
        kv_heads = lib.llama_model_n_head_kv(self.handle)
        return cache_bytes_per_token(self.layer_count, lib.llama_model_n_embd(self.handle), heads, kv_heads)

    def metadata(self) -> dict[str, str]:
        """Return the GGUF's metadata as strings; llama.cpp shortens long arrays."""
        count = lib.llama_model_meta_count(self.handle)
        read_key = lib.llama_model_meta_key_by_index
        read_value = lib.llama_model_meta_val_str_by_index
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

    def load_adapters(self) -> None:
        """Load the LoRA adapters of the options. Raises ``AdapterError``."""
        self.adapters = [(self._load_adapter(file), scale) for file, scale in self.options.lora]

    def _load_adapter(self, path: str | Path) -> object:
        discard_last_messages()
        adapter = lib.llama_adapter_lora_init(self.handle, os.fsencode(path))
        if not adapter:
            raise AdapterError(f"llama.cpp could not load this adapter{last_error_suffix()}", origin=str(path))
        return adapter
