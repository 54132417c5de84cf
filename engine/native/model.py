"""A llama_model behind a class that raises `ModelError`, and a load in a thread while Python does other things."""

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
"""llama.cpp multiplies the first sequence's place in the recurrent state by how many there are (0.3.36)."""

_METADATA_BYTES = 1024
"""Memory for one metadata text at first; longer ones are read again."""


class _NativeModelParams:
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
        report = request_huge_pages_on_first_progress(progress)
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
        background_load: BackgroundLoad | None = None,
    ) -> None:
        self.abort_flag = AbortFlag() if background_load is None else background_load.abort_flag
        self.uses_gpu = options.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())
        self._background_load = background_load
        progress = progress or _continue_loading
        self.handle = None if background_load is None else background_load.wait_for_model(progress)
        if not self.handle:  # not loaded yet, or refused: once more, with the bar and the reasons in the log
            params = _NativeModelParams(options)
            params.report_to(progress)
            discard_last_messages()
            with failed_assertions_as_errors():
                self.handle = lib.llama_model_load_from_file(os.fsencode(path), params.native)
        if not self.handle:
            raise ModelError(f"{path}: llama.cpp could not load it{last_error_suffix()}")
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
    def layer_count(self) -> int:
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
        return cache_bytes_per_token(self.layer_count, lib.llama_model_n_embd(self.handle), heads, kv_heads)

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
            raise AdapterError(f"{path}: llama.cpp could not load this adapter{last_error_suffix()}")
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


_MAX_CONTEXT_TOKENS = 8192
"""A longer context may need gigabytes, which a wrong command line would fill and clear in vain."""
_LOCK_SWITCH_SECONDS = 1e-4
"""How long a callback waits for Python's lock at most. Usual are 5 ms, and there is a callback for each tensor."""


class BackgroundLoad:
    """A model that is loaded in a thread of its own, and then its context; `cancel` ends that.

    A callback of the thread waits for Python's lock. So a file that is mapped is loaded without any: nothing tells
    how far it is, and it cannot be stopped. A file that is read can be, and the lock changes hands more often
    meanwhile. llama.cpp's log is lost. It is for files that are soon loaded, and a long context is left to the
    caller. When llama.cpp refuses a file, the caller loads it once more to learn why.

    Attributes: ``plan``; ``abort_flag``, the model's.
    """

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.abort_flag = AbortFlag()
        self._params = _NativeModelParams(plan.options)
        self._model: Any = None
        self._context: Any = None
        self._context_options: ContextOptions | None = None
        self._has_tried_model = Event()
        self._settings = ExitStack()
        """llama.cpp's settings of this process, until the thread has ended."""
        self._settings.enter_context(silent_log())
        self._settings.enter_context(failed_assertions_as_errors())
        self._progress: Callable[[float], bool] = _continue_loading
        self._thread = Thread(target=self._load, name="background load")
        try:
            self._thread.start()
        except RuntimeError:  # the system has no room for another thread
            self._settings.close()
            raise

    def _load(self) -> None:
        try:
            if self.plan.options.mmap:
                model = self._load_model()
            else:
                self._params.report_to(self._report)
                with _short_turns():
                    model = self._load_model()
            self._model = model
        finally:
            self._has_tried_model.set()
        if model:
            options = self.plan.context_options(int(lib.llama_model_n_ctx_train(model)))
            if options.length <= _MAX_CONTEXT_TOKENS:
                self._context_options = options
                self._context = lib.llama_init_from_model(model, native_context_params(options, self.abort_flag))

    def _report(self, fraction: float) -> bool:
        return self._progress(fraction)

    def _load_model(self) -> Any:
        return lib.llama_model_load_from_file(os.fsencode(self.plan.path), self._params.native)

    def wait_for_model(self, progress: Callable[[float], bool]) -> Any:
        """Wait for the model, and give it to the caller, who calls `cancel` before freeing it; None: refused.

        ``progress``: called with the fraction that is loaded, 0 to 1, in the thread of the load, if the file is
        read. When it returns False, loading stops.
        """
        self._progress = progress
        self._has_tried_model.wait()
        if not self._model:
            self._finish()
        model, self._model = self._model, None
        return model

    def wait_for_context(self, options: ContextOptions) -> Any:
        """Wait for the context, and give it to the caller; None if there is none with these options."""
        self._finish()
        if options != self._context_options:
            return None
        context, self._context = self._context, None
        return context or None

    def cancel(self) -> None:
        """Stop loading or wait for its end, and free what nobody took."""
        self._progress = _stop_loading
        self._finish()
        if self._context:
            lib.llama_free(self._context)
            self._context = None
        if self._model:
            lib.llama_model_free(self._model)
            self._model = None

    def _finish(self) -> None:
        self._thread.join()
        self._settings.close()


def _continue_loading(_fraction: float) -> bool:
    return True


def _stop_loading(_fraction: float) -> bool:
    return False


@contextmanager
def _short_turns() -> Iterator[None]:
    """While inside, Python's lock changes hands more often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_LOCK_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
