"""The options of a load as llama.cpp's structs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...common.llama_cpp_limits import CACHE_TYPES, FLASH_ATTENTION_MODES, ROPE_SCALINGS, SPLIT_MODES
from ...models.errors import ModelError
from ...models.names import model_bytes
from ..fit import CONTEXT_STEP_TOKENS, EXPERT_PATTERN, expert_pattern_of_layer
from ..load_options import LoadOptions, MetadataOverrides
from .binding import AbortFlag, bind_function, lib, libggml

# llama_flash_attn_type, llama_rope_scaling_type and llama_split_mode, see llama.h
_FLASH_ATTENTION_TYPES = dict(zip(FLASH_ATTENTION_MODES, (1, 0, -1), strict=True))
_ROPE_SCALING_TYPES = dict(zip(ROPE_SCALINGS, (0, 1, 2), strict=True))
_SPLIT_MODE_IDS = dict(zip(SPLIT_MODES, (0, 1, 2, 3), strict=True))


@dataclass(frozen=True)
class Offload:
    """The GPUs that get layers of a model."""

    devices: tuple[int, ...] = ()  # ggml's handles; empty: the CPU computes alone
    layers: int = 0
    cpu_expert_layers: int = 0  # number of layers whose experts stay in the CPU's memory
    has_gpus: bool = False  # whether this machine has GPUs that llama.cpp would use unless it gets a list


def native_model_params(
    options: LoadOptions,
    path: Path,
    offload: Offload = Offload(),
    progress: Callable[[float], bool] | None = None,
) -> Any:
    """Return llama.cpp's parameters for loading a file, which keep alive what they point to."""
    # ``progress``: see `NativeModel`. Raises ``ModelError``.
    params = lib.llama_model_default_params()
    params.n_gpu_layers = offload.layers
    is_mapped = options.should_map(model_bytes(path), is_on_gpu=offload.layers > 0)
    params.load_mode = _load_mode(options.mlock, is_mapped)
    # With AMX, builds by some GCC versions lose stores to the tile configuration and crash in the first
    # prompt (llama.cpp issue 20824); without the extra buffers the AVX-512 kernels are used.
    params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
    params.kv_overrides = _native_overrides(options.overrides)
    if offload.has_gpus:
        _set_devices(params, options, offload)
    if progress is not None:
        params.progress_callback = lib.llama_progress_callback(lambda fraction, _user: progress(fraction))
    return params


def _set_devices(params: Any, options: LoadOptions, offload: Offload) -> None:
    """Set the GPUs, the division of the model among them, and the experts that stay in the CPU's memory."""
    handles = (ctypes.c_void_p * (len(offload.devices) + 1))(*offload.devices)  # the last one is NULL
    params.devices = ctypes.addressof(handles)
    params.arrays = [handles]  # the parameters have the addresses only
    if not offload.devices:
        return
    params.split_mode = _SPLIT_MODE_IDS[options.split_mode]
    params.main_gpu = options.main_gpu  # of the devices in the list
    if options.tensor_split:
        params.tensor_split = _native_shares(options.tensor_split)
    if offload.cpu_expert_layers:
        buffers = _native_expert_buffers(options, offload.cpu_expert_layers)
        params.tensor_buft_overrides = ctypes.addressof(buffers)
        params.arrays.append(buffers)


class _TensorBuffer(ctypes.Structure):
    """The struct llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


_BufferType = ctypes.CFUNCTYPE(ctypes.c_void_p)


def _native_expert_buffers(options: LoadOptions, layer_count: int) -> Any:
    """Return a C array of patterns of the tensors that stay in the CPU's memory, terminated by an empty item."""
    if options.cpu_expert_layers == "all":
        patterns = [EXPERT_PATTERN]
    else:
        patterns = [expert_pattern_of_layer(layer) for layer in range(layer_count)]
    cpu_buffers = bind_function(libggml, "ggml_backend_cpu_buffer_type", _BufferType)()
    buffers = (_TensorBuffer * (len(patterns) + 1))()
    for buffer, pattern in zip(buffers, patterns, strict=False):
        buffer.pattern = pattern.encode()
        buffer.buffer_type = cpu_buffers
    return buffers


def _load_mode(mlock: bool, mmap: bool) -> int:
    if mlock and mmap:
        mode = lib.LLAMA_LOAD_MODE_MMAP_MLOCK
    elif mlock:
        mode = lib.LLAMA_LOAD_MODE_MLOCK
    elif mmap:
        mode = lib.LLAMA_LOAD_MODE_MMAP
    else:
        mode = lib.LLAMA_LOAD_MODE_NONE
    return int(mode)


def _native_overrides(overrides: MetadataOverrides) -> Any:
    """Return a C array of overrides, terminated by an empty key."""
    override_array = (lib.llama_model_kv_override * (len(overrides) + 1))()
    for native_override, (key, value) in zip(override_array, overrides.items(), strict=False):
        native_override.key = key.encode()
        if isinstance(value, bool):
            native_override.tag = lib.LLAMA_KV_OVERRIDE_TYPE_BOOL
            native_override.value.val_bool = value
        elif isinstance(value, int):
            native_override.tag = lib.LLAMA_KV_OVERRIDE_TYPE_INT
            native_override.value.val_i64 = value
        elif isinstance(value, float):
            native_override.tag = lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT
            native_override.value.val_f64 = value
        else:
            native_override.tag = lib.LLAMA_KV_OVERRIDE_TYPE_STR
            native_override.value.val_str = value.encode()
    return override_array


def _native_shares(shares: tuple[float, ...]) -> Any:
    """Return a C array with the share of each GPU. Raises ``ModelError`` for more shares than devices."""
    max_devices = int(lib.llama_max_devices())
    if len(shares) > max_devices:
        raise ModelError(f"{len(shares)} shares, but llama.cpp accepts {max_devices}", origin="tensor_split")
    return (ctypes.c_float * max_devices)(*shares)


@dataclass(frozen=True)
class ContextSize:
    """The options that differ between the contexts of a model. The others are given when the model is loaded."""

    length: int  # maximum number of tokens of a sequence
    batch_tokens: int  # maximum number of tokens that one call reads
    sequence_count: int = 1
    keeps_states: bool = False  # whether the last hidden states of all tokens are kept


def native_context_params(options: LoadOptions, size: ContextSize, abort_flag: AbortFlag) -> Any:
    """Return llama.cpp's parameters of a context, whose calls end when ``abort_flag`` is set."""
    params = lib.llama_context_default_params()
    params.n_ctx = size.length
    if size.sequence_count > 1:
        step_count = math.ceil(size.length / CONTEXT_STEP_TOKENS)
        params.n_ctx = step_count * CONTEXT_STEP_TOKENS * size.sequence_count
    params.n_seq_max = size.sequence_count
    params.n_batch = size.batch_tokens
    params.n_ubatch = min(options.microbatch or size.batch_tokens, size.batch_tokens)
    params.n_threads = options.thread_count
    params.n_threads_batch = options.batch_threads or options.thread_count
    params.flash_attn_type = _FLASH_ATTENTION_TYPES[options.flash_attention]
    params.type_k = CACHE_TYPES[options.cache_type_k]
    params.type_v = CACHE_TYPES[options.cache_type_v]
    if options.rope_scaling is not None:
        params.rope_scaling_type = _ROPE_SCALING_TYPES[options.rope_scaling]
    if options.rope_freq_base is not None:
        params.rope_freq_base = options.rope_freq_base
    if options.rope_freq_scale is not None:
        params.rope_freq_scale = options.rope_freq_scale
    if size.keeps_states:
        params.embeddings = True
        params.pooling_type = lib.LLAMA_POOLING_TYPE_NONE
    params.abort_callback = abort_flag.callback
    params.abort_callback_data = abort_flag.address
    return params
