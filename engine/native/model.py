"""A wrapper of llama_model that raises `ModelError`, and a load in a thread while Python does other work."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any

from ...models.errors import AdapterError, ModelError
from .binding import (
    AbortFlag,
    discard_last_messages,
    failed_assertions_as_errors,
    last_error_suffix,
    lib,
    silent_log,
)
from .options import (
    ContextOptions,
    LoadOptions,
    LoadPlan,
    MetadataOverrides,
    cache_bytes_per_token,
    native_context_params,
    request_huge_pages_on_first_progress,
    set_gpu_options,
)
from .vocabulary import NativeVocabulary

_ONE_SEQUENCE_ARCHITECTURES = frozenset({"plamo2"})
"""Architectures that can decode only one sequence per context. llama.cpp, as in llama-cpp-python
0.3.36, multiplies the offset of the first sequence in the recurrent state by the number of sequences."""

_METADATA_BYTES = 1024
"""Memory for a metadata value when it is first read; longer values are read again."""


class _NativeModelParams:
    """llama.cpp's parameters of a load.

    Attributes:
        native: the llama_model_params, valid as long as this object exists.
    """

    def __init__(self, options: LoadOptions) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = options.gpu_layers
        params.load_mode = _load_mode(options)
        self._gpu_shares = set_gpu_options(params, options.gpu)
        # With AMX, builds by some GCC versions lose stores to the tile configuration and crash in the first
        # prompt (llama.cpp issue 20824); without the extra buffers the AVX-512 kernels are used.
        params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        params.kv_overrides = self._override_array = _native_overrides(options.overrides)
        self.native = params

    def report_to(self, progress: Callable[[float], bool]) -> None:
        """Call ``progress`` with the loaded fraction, 0 to 1. When ``progress`` returns False, loading stops."""
        report = request_huge_pages_on_first_progress(progress)
        self._callback = lib.llama_progress_callback(lambda fraction, _user: report(fraction))
        self.native.progress_callback = self._callback


class NativeModel:
    """A llama_model: the constructor loads it, `close` frees it.

    Attributes:
        handle: the llama_model; None after `close`.
        vocabulary: the model's vocabulary.
        abort_flag: the flag that all contexts of the model read.
        uses_gpu: whether some layers are computed on a GPU.
    """

    def __init__(
        self,
        path: str,
        options: LoadOptions,
        progress: Callable[[float], bool] | None = None,
        background_load: BackgroundLoad | None = None,
    ) -> None:
        """Load a model, or take the model that ``background_load`` has loaded.

        Args:
            path: the GGUF file.
            options: settings of the load.
            progress: called with the loaded fraction, 0 to 1; loading stops when it returns False.
            background_load: a load of the same file with the same options; None if there is none.

        Raises ``ModelError``.
        """
        self.abort_flag = AbortFlag() if background_load is None else background_load.abort_flag
        self.uses_gpu = options.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())
        self._background_load = background_load
        progress = progress or _continue_loading
        self.handle = None if background_load is None else background_load.wait_for_model(progress)
        if not self.handle:  # a background load has no progress, and llama.cpp's log with the reason is lost
            params = _NativeModelParams(options)
            params.report_to(progress)
            discard_last_messages()
            with failed_assertions_as_errors():
                self.handle = lib.llama_model_load_from_file(os.fsencode(path), params.native)
        if not self.handle:
            raise ModelError(f"{path}: llama.cpp could not load the model{last_error_suffix()}")
        self.vocabulary = NativeVocabulary(lib.llama_model_get_vocab(self.handle), options.missing_bytes)

    def close(self) -> None:
        """Free the model. Close its contexts first."""
        if self.handle:
            self.vocabulary.close()
            if self._background_load is not None:
                self._background_load.cancel()
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
        """The number of layers."""
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
        """Return the memory for the keys and values of one token."""
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


_MAX_BACKGROUND_CONTEXT_TOKENS = 8192
"""Longer contexts are not made in the background. They may need gigabytes, which llama.cpp would fill and clear
unnecessarily if the command line turns out to be wrong."""
_LOCK_SWITCH_SECONDS = 1e-4
"""The longest time that a callback waits for Python's lock. Python's default, 5 ms, is too slow: there is a
callback for each tensor."""


class BackgroundLoad:
    """A load of a model, and then of its context, in a separate thread.

    A callback in this thread waits for Python's lock. So a mapped file is loaded without a callback: the load
    reports no progress and cannot be stopped. If the file is read instead, the load can be stopped; meanwhile
    Python's lock switches threads more often. llama.cpp's log is lost. If llama.cpp rejects a file, the caller
    loads the file again to learn the reason. A background load is meant for files that load quickly. If the
    context is long, the caller makes it.

    Attributes:
        plan: the file, and the settings of the load.
        abort_flag: the flag that the model's contexts read.
    """

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.abort_flag = AbortFlag()
        self._params = _NativeModelParams(plan.options)
        self._model: Any = None
        self._context: Any = None
        self._context_options: ContextOptions | None = None
        self._has_tried_model = Event()
        self._process_settings = ExitStack()
        """Settings of llama.cpp for the whole process, to be undone when the thread has ended."""
        self._process_settings.enter_context(silent_log())
        self._process_settings.enter_context(failed_assertions_as_errors())
        self._progress: Callable[[float], bool] = _continue_loading
        self._thread = Thread(target=self._load, name="background load")
        try:
            self._thread.start()
        except RuntimeError:  # the system allows no more threads
            self._process_settings.close()
            raise

    def _load(self) -> None:
        try:
            if self.plan.options.mmap:
                model = self._load_model()
            else:
                self._params.report_to(self._report_progress)
                with _fast_lock_switches():
                    model = self._load_model()
            self._model = model
        finally:
            self._has_tried_model.set()
        if model:
            options = self.plan.context_options(int(lib.llama_model_n_ctx_train(model)))
            if options.context_length <= _MAX_BACKGROUND_CONTEXT_TOKENS:
                self._context_options = options
                self._context = lib.llama_init_from_model(model, native_context_params(options, self.abort_flag))

    def _report_progress(self, fraction: float) -> bool:
        return self._progress(fraction)

    def _load_model(self) -> Any:
        return lib.llama_model_load_from_file(os.fsencode(self.plan.path), self._params.native)

    def wait_for_model(self, progress: Callable[[float], bool]) -> Any:
        """Wait for the model and return it; None if llama.cpp rejected the file.

        The caller calls `cancel` before it frees the model.

        ``progress``: called with the loaded fraction, 0 to 1, in the thread of the load, if the file is read. When
        it returns False, loading stops.
        """
        self._progress = progress
        self._has_tried_model.wait()
        if not self._model:
            self._end_thread()
        model, self._model = self._model, None
        return model

    def wait_for_context(self, options: ContextOptions) -> Any:
        """Wait for the context and return it to the caller; None if there is no context with these options."""
        self._end_thread()
        if options != self._context_options:
            return None
        context, self._context = self._context, None
        return context or None

    def cancel(self) -> None:
        """Stop loading, or wait for its end, and free the model and the context unless a caller took them."""
        self._progress = _stop_loading
        self._end_thread()
        if self._context:
            lib.llama_free(self._context)
            self._context = None
        if self._model:
            lib.llama_model_free(self._model)
            self._model = None

    def _end_thread(self) -> None:
        self._thread.join()
        self._process_settings.close()


def _continue_loading(_fraction: float) -> bool:
    return True


def _stop_loading(_fraction: float) -> bool:
    return False


@contextmanager
def _fast_lock_switches() -> Iterator[None]:
    """Make Python's lock switch between threads more often in the block."""
    previous_seconds = sys.getswitchinterval()
    sys.setswitchinterval(_LOCK_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(previous_seconds)
