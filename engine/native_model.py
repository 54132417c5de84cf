"""llama.cpp's C functions for models, behind a class that raises ModelError."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..models.errors import AdapterError, ModelError
from .huge_pages import request_when_first_called
from .load_plan import LoadOptions
from .metadata_overrides import MetadataOverrides
from .native_abort_flag import AbortFlag
from .native_binding import lib
from .native_gpu import set_gpu_options
from .native_log import discard_last_messages, failed_assertions_as_errors, reason_suffix
from .native_vocabulary import NativeVocabulary
from .slots import cache_bytes_per_token

if TYPE_CHECKING:
    from .early_load import EarlyLoad

_ONE_SEQUENCE_ARCHITECTURES = frozenset({"plamo2"})
"""llama.cpp multiplies the first sequence's place in the recurrent state by how many there are (0.3.36)."""

_METADATA_BYTES = 1024
"""Memory for one metadata text at first; longer ones are read again."""


class NativeModelParams:
    """llama.cpp's parameters of a load. Attributes: ``native``, valid while this object lives."""

    def __init__(self, options: LoadOptions) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = options.gpu_layers
        params.load_mode = _load_mode(options)
        self._parts = set_gpu_options(params, options.gpu)
        # With AMX, builds by some GCC versions lose stores to the tile configuration and crash in the first
        # prompt (llama.cpp issue 20824); without the extra buffers the AVX-512 kernels are used.
        params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        params.kv_overrides = self._overrides = _native_overrides(options.overrides)
        self.native = params

    def report_to(self, progress: Callable[[float], bool]) -> None:
        """Call ``progress`` with the fraction that is loaded, 0 to 1. When it returns False, loading stops."""
        report = request_when_first_called(progress)
        self._callback = lib.llama_progress_callback(lambda fraction, _user: report(fraction))
        self.native.progress_callback = self._callback


class NativeModel:
    """A llama_model with its ``vocabulary``: loaded by the constructor, freed by `close`.

    ``uses_gpu``: whether some layers are computed on a GPU. ``abort_flag``: read by all contexts of the model.
    """

    def __init__(
        self,
        path: str,
        options: LoadOptions,
        progress: Callable[[float], bool] | None = None,
        early: EarlyLoad | None = None,
    ) -> None:
        self.abort_flag = AbortFlag() if early is None else early.abort_flag
        self.uses_gpu = options.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())
        self._early = early
        progress = progress or (lambda _fraction: True)
        self.handle = None if early is None else early.take_model(progress)
        if not self.handle:  # not loaded yet, or refused: once more, with the bar and the reasons in the log
            params = NativeModelParams(options)
            params.report_to(progress)
            discard_last_messages()
            with failed_assertions_as_errors():
                self.handle = lib.llama_model_load_from_file(os.fsencode(path), params.native)
        if not self.handle:
            raise ModelError(f"{path}: llama.cpp could not load it{reason_suffix()}")
        self.vocabulary = NativeVocabulary(lib.llama_model_get_vocab(self.handle), options.missing_bytes)

    def close(self) -> None:
        """Free the model. Close its contexts first."""
        if self.handle:
            self.vocabulary.close()
            if self._early is not None:
                self._early.drop()
            lib.llama_model_free(self.handle)
            self.handle = None

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

    @property
    def decodes_sequences_together(self) -> bool:
        """False if llama.cpp can decode only one sequence at a time, and ends the process on more."""
        return self._metadata_value("general.architecture") not in _ONE_SEQUENCE_ARCHITECTURES

    def cache_bytes_per_token(self) -> int:
        """Memory for the keys and values of one token."""
        heads, kv_heads = lib.llama_model_n_head(self.handle), lib.llama_model_n_head_kv(self.handle)
        return cache_bytes_per_token(self.layers, lib.llama_model_n_embd(self.handle), heads, kv_heads)

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

    def load_adapter(self, path: str) -> object:
        """Load a LoRA adapter for this model. Raises ``AdapterError``."""
        discard_last_messages()
        adapter = lib.llama_adapter_lora_init(self.handle, os.fsencode(path))
        if not adapter:
            raise AdapterError(f"{path}: llama.cpp could not load this adapter{reason_suffix()}")
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
