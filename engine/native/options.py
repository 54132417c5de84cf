"""The options of a model and of a context: checked, with memory estimates, and as llama.cpp's structs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from ...common.llama_cpp_limits import CACHE_TYPES, INT32_MAX, MAX_THREADS, ROPE_SCALINGS, SPLIT_MODES
from ...models.errors import ModelError
from ...models.gguf import GgufHeader, check_is_adapter, check_is_model, iterate_fatal_values, read_header
from ...models.names import first_part, model_bytes
from .binding import AbortFlag, lib, supports_gpu

_CACHE_TYPE_IDS = dict(zip(CACHE_TYPES, (0, 1, 30, 8, 2, 3, 20, 6, 7), strict=True))  # ggml_type, see ggml.h
_FLASH_ATTENTION_TYPES = {"on": 1, "off": 0, "auto": -1}  # llama_flash_attn_type, see llama.h
_ROPE_SCALING_TYPES = dict(zip(ROPE_SCALINGS, (0, 1, 2), strict=True))  # llama_rope_scaling_type, see llama.h


@dataclass(frozen=True)
class ComputeOptions:
    """Settings of a context's computation, with the names and defaults of llama.cpp's flags.

    Raises ``ModelError`` for a value that llama.cpp does not support.

    Attributes:
        batch_threads: number of threads for reading a prompt; None: the same number as for generating.
        microbatch: number of tokens of a batch that are computed together; None: the whole batch.
        flash_attention: ``on``, ``off``, or ``auto``, which is on if the model supports it.
        cache_type_k: data type of the keys in the cache, such as ``f16`` or ``q8_0``.
        cache_type_v: data type of the values in the cache; a quantized type needs flash attention.
        rope_scaling: ``none``, ``linear`` or ``yarn``; None: the model's setting.
        rope_freq_base: base frequency of RoPE; None: the model's setting.
        rope_freq_scale: factor of RoPE's frequencies; a factor 1/n allows n times the context. None: the model's
            setting.
    """

    batch_threads: int | None = None
    microbatch: int | None = None
    flash_attention: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    rope_scaling: str | None = None
    rope_freq_base: float | None = None
    rope_freq_scale: float | None = None

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("flash_attention", self.flash_attention, _FLASH_ATTENTION_TYPES),
            ("cache_type_k", self.cache_type_k, _CACHE_TYPE_IDS),
            ("cache_type_v", self.cache_type_v, _CACHE_TYPE_IDS),
            ("rope_scaling", self.rope_scaling or "none", _ROPE_SCALING_TYPES),
        ):
            if value not in allowed:
                raise ModelError(f"{name}: {value!r} is not one of {', '.join(allowed)}")
        for name, count, maximum in (
            ("batch_threads", self.batch_threads, MAX_THREADS),
            ("microbatch", self.microbatch, INT32_MAX),
        ):
            if count is not None and not 1 <= count <= maximum:
                raise ModelError(f"{name}: {count!r} is not within 1..{maximum}")
        if self.cache_type_v.startswith(("q", "iq")) and self.flash_attention == "off":
            raise ModelError(f"cache_type_v: {self.cache_type_v} needs flash attention, which is off")

    @property
    def has_tiled_attention(self) -> bool:
        """True if a CPU computes complete batches with the tiled kernel of flash attention."""
        has_default_cache = self.cache_type_k == self.cache_type_v == "f16"
        return has_default_cache and self.microbatch is None and self.flash_attention != "off"

    def apply_to(self, params: Any) -> None:
        """Set these options in llama.cpp's context parameters, whose n_threads and n_batch are already set."""
        if self.batch_threads is not None:
            params.n_threads_batch = self.batch_threads
        if self.microbatch is not None:
            params.n_ubatch = min(self.microbatch, params.n_batch)
        params.flash_attn_type = _FLASH_ATTENTION_TYPES[self.flash_attention]
        params.type_k = _CACHE_TYPE_IDS[self.cache_type_k]
        params.type_v = _CACHE_TYPE_IDS[self.cache_type_v]
        if self.rope_scaling is not None:
            params.rope_scaling_type = _ROPE_SCALING_TYPES[self.rope_scaling]
        if self.rope_freq_base is not None:
            params.rope_freq_base = self.rope_freq_base
        if self.rope_freq_scale is not None:
            params.rope_freq_scale = self.rope_freq_scale


_SPLIT_MODE_IDS = dict(zip(SPLIT_MODES, (0, 1, 2, 3), strict=True))  # llama_split_mode, see llama.h


@dataclass(frozen=True)
class GpuOptions:
    """The division of a model among GPUs, with the names and defaults of llama.cpp's flags.

    Without a GPU these options have no effect. Raises ``ModelError`` for a value that llama.cpp does not support.

    Attributes:
        split_mode: ``none`` (one GPU), ``layer``, ``row`` or ``tensor``.
        main_gpu: number of the GPU, for the mode ``none``; for the mode ``row``, the GPU of intermediate results.
            -1: no GPU.
        tensor_split: share of each GPU, in the order of the GPUs; empty: by their free memory.
    """

    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.split_mode not in _SPLIT_MODE_IDS:
            raise ModelError(f"split_mode: {self.split_mode!r} is not one of {', '.join(SPLIT_MODES)}")
        if self.main_gpu < -1:
            raise ModelError(f"main_gpu: {self.main_gpu!r} is not ≥ -1")
        if not all(isfinite(share) and share >= 0 for share in self.tensor_split):
            raise ModelError(f"tensor_split: {self.tensor_split!r} has a share that is not a number ≥ 0")
        if self.tensor_split and not any(self.tensor_split):
            raise ModelError("tensor_split: no GPU gets a share")


def set_gpu_options(params: Any, options: GpuOptions) -> object:
    """Set llama.cpp's model parameters, if there is a GPU. Keep the returned object until the model is loaded."""
    # Raises ``ModelError`` for more shares than llama.cpp has devices.
    if not supports_gpu():
        return None
    max_devices = int(lib.llama_max_devices())
    if len(options.tensor_split) > max_devices:
        raise ModelError(f"tensor_split: {len(options.tensor_split)} shares, but llama.cpp accepts {max_devices}")
    params.split_mode = _SPLIT_MODE_IDS[options.split_mode]
    params.main_gpu = options.main_gpu
    if not options.tensor_split:
        return None
    shares = (ctypes.c_float * max_devices)(*options.tensor_split)
    params.tensor_split = shares
    return shares


_CONTEXT_STEP_TOKENS = 256  # llama.cpp rounds the length of a sequence up to a multiple of this


@dataclass(frozen=True)
class ContextOptions:
    """The size of a context, and settings of its computation."""

    context_length: int  # maximum number of tokens of a sequence
    threads: int
    batch_tokens: int = 512  # maximum number of tokens that one call reads
    sequence_count: int = 1
    keeps_states: bool = False  # whether the last hidden states of all tokens are kept
    compute_options: ComputeOptions = field(default_factory=ComputeOptions)


def native_context_params(options: ContextOptions, abort_flag: AbortFlag) -> Any:
    """Return llama.cpp's parameters of a context, whose calls end when ``abort_flag`` is set."""
    params = lib.llama_context_default_params()
    params.n_ctx = options.context_length
    if options.sequence_count > 1:
        steps = -(-options.context_length // _CONTEXT_STEP_TOKENS)
        params.n_ctx = steps * _CONTEXT_STEP_TOKENS * options.sequence_count
    params.n_seq_max = options.sequence_count
    params.n_batch = params.n_ubatch = options.batch_tokens
    params.n_threads = params.n_threads_batch = options.threads
    params.abort_callback, params.abort_callback_data = abort_flag.callback, abort_flag.address
    options.compute_options.apply_to(params)
    if options.keeps_states:
        params.embeddings, params.pooling_type = True, lib.LLAMA_POOLING_TYPE_NONE
    return params


# values that replace values of the file's metadata, by metadata key
MetadataOverrides = Mapping[str, int | float | bool | str]

# Limit of an override's key and string. llama.cpp stores each in 128 bytes, with a zero at the end.
_MAX_OVERRIDE_BYTES = 127


def check_overrides(overrides: MetadataOverrides, header: GgufHeader) -> None:
    """Raise ``ModelError`` for an override that llama.cpp would ignore or truncate, or that would crash it."""
    # A key that is missing in the file's ``header`` may be overridden with any type.
    file_metadata = header.values
    encoded_overrides = {key: _encode_override(key, value) for key, value in overrides.items()}
    for key, value in encoded_overrides.items():
        is_key_short = 1 <= len(key.encode()) <= _MAX_OVERRIDE_BYTES
        if not is_key_short or (isinstance(value, bytes) and len(value) > _MAX_OVERRIDE_BYTES):
            raise ModelError(f"override of {key!r}: key and string must have at most {_MAX_OVERRIDE_BYTES} bytes")
        if key in file_metadata and type(file_metadata[key]) is not type(value):
            expected, actual = _override_type_name(file_metadata[key]), _override_type_name(value)
            raise ModelError(f"override of {key}: expected {expected}, as in the file, but got {actual}")
    problems_of_file = set(iterate_fatal_values(file_metadata, header.list_keys))
    for problem in iterate_fatal_values({**file_metadata, **encoded_overrides}, header.list_keys):
        if problem not in problems_of_file:
            raise ModelError(f"override: {problem}")


def _encode_override(key: str, value: int | float | bool | str) -> int | float | bool | bytes:
    """Return the value of an override, a string as UTF-8 bytes. Raises ``ModelError``."""
    try:
        key.encode()
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise ModelError(f"override of {key!a}: key and string must be UTF-8") from None


def _override_type_name(value: int | float | bool | bytes) -> str:
    """Return the name of a value's type, as llama.cpp's flag spells it."""
    return {bool: "bool", int: "int", float: "float", bytes: "str"}[type(value)]


# a compromise: long prompts fit, and the memory stays far below the need of the longest context of some models
_DEFAULT_CONTEXT_TOKENS = 4096
LLAMA_CPPS_DEFAULTS = ComputeOptions()
LLAMA_CPPS_GPU_DEFAULTS = GpuOptions()


@dataclass(frozen=True)
class LoadOptions:
    """Settings with which llama.cpp loads a model file."""

    gpu_layers: int = 0  # number of layers on the GPU; -1: all
    mmap: bool = True  # whether the file is mapped into memory
    mlock: bool = False  # whether the model is locked in memory
    missing_bytes: frozenset[int] = frozenset()  # see `GgufHeader`
    overrides: MetadataOverrides = field(default_factory=dict)
    gpu: GpuOptions = field(default_factory=GpuOptions)  # the division of the model among GPUs


@dataclass(frozen=True)
class LoadPlan:
    """A checked model file, and the settings for loading it."""

    path: Path  # the GGUF file; of a split model, the first part
    options: LoadOptions
    lora: tuple[tuple[Path, float], ...]  # adapter files with their scales
    # tokens of context; None: the default; 0: the length that the model was trained with
    requested_context_length: int | None
    threads: int
    batch_tokens: int  # maximum number of tokens of a prompt that one call reads
    compute_options: ComputeOptions

    def context_options(self, trained_length: int) -> ContextOptions:
        # ``trained_length``: tokens of context that the model was trained with
        length = _choose_context_length(self.requested_context_length, trained_length)
        return ContextOptions(
            length, self.threads, min(self.batch_tokens, length), compute_options=self.compute_options
        )


# Models of at most this size are read, larger ones mapped. All weights are read for each token, and a mapped file
# has small pages: measured with a model of 92 MB in a virtual machine, a token of the mapped one takes a third
# longer. The memory of a mapped file is shared by processes, and the system can reclaim it.
_MAX_READ_BYTES = 500_000_000


def plan_load(  # noqa: PLR0913 - the arguments are those of `Model.load`
    path: str | Path,
    *,
    n_ctx: int | None = None,
    threads: int | None = None,
    gpu_layers: int = 0,
    batch: int = 512,
    mmap: bool | None = None,
    mlock: bool = False,
    lora: Sequence[tuple[str | Path, float]] = (),
    overrides: MetadataOverrides | None = None,
    compute: ComputeOptions = LLAMA_CPPS_DEFAULTS,
    gpu: GpuOptions = LLAMA_CPPS_GPU_DEFAULTS,
) -> LoadPlan:
    """Check a model file and the settings for loading it; `Model.load` explains them. Raises ``ModelError``."""
    path = first_part(Path(path))
    check_number("n_ctx", n_ctx, 0, INT32_MAX)
    check_number("threads", threads, 1, MAX_THREADS)
    check_number("gpu_layers", gpu_layers, -1, INT32_MAX)
    check_number("batch", batch, 1, INT32_MAX)
    header = check_is_model(path)
    check_overrides(overrides or {}, header)
    for file, _ in lora:
        check_is_adapter(Path(file), header.values.get("general.architecture"))
    if mmap is None:
        mmap = mlock or gpu_layers != 0 or model_bytes(path) > _MAX_READ_BYTES
    options = LoadOptions(gpu_layers, mmap, mlock, header.bytes_without_token, overrides or {}, gpu)
    adapters = tuple((Path(file), scale) for file, scale in lora)
    return LoadPlan(path, options, adapters, n_ctx, threads or physical_cores(), batch, compute)


def check_number(name: str, value: object, minimum: int, maximum: int) -> None:
    """Raise ``ModelError`` for a value that C would misread, or that would crash llama.cpp."""
    # None is allowed for ``n_ctx`` and ``threads``.
    if value is None and name in ("n_ctx", "threads"):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ModelError(f"{name}: {value!r} is not an integer within {minimum}..{maximum}")


def _choose_context_length(requested_length: int | None, trained_length: int) -> int:
    if requested_length is None:
        is_trained_length_known = trained_length > 0
        return min(_DEFAULT_CONTEXT_TOKENS, trained_length) if is_trained_length_known else _DEFAULT_CONTEXT_TOKENS
    return requested_length if requested_length > 0 else trained_length


def physical_cores() -> int:
    """Return the number of physical cores that this process may use; hardware threads of a core count once."""
    try:
        usable_threads = os.sched_getaffinity(0)
        sibling_lists = {
            Path(f"/sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list").read_text().strip()
            for thread in usable_threads
        }
        return max(1, len(sibling_lists))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)


# number of slots that keeps the threads busy, as benchmarks/batch.py measures; every slot needs memory
_SLOTS_PER_THREAD, _MAX_DEFAULT_SLOTS = 4, 8
# memory for one number of a key and one of a value, 2 bytes each, which is llama.cpp's default
_BYTES_OF_KEY_AND_VALUE = 4
# a generous estimate of the memory for llama.cpp's buffers and Python, in addition to the weights and the cache
_BUFFERS_BYTES = 400_000_000


def default_slots(threads: int) -> int:
    """Return the number of requests that keeps the threads busy: four per thread, at most 8."""
    return min(_MAX_DEFAULT_SLOTS, _SLOTS_PER_THREAD * threads)


def cache_bytes_per_token(layer_count: int, embedding_size: int, head_count: int, kv_head_count: int) -> int:
    """Return the memory for the keys and values of one token."""
    return layer_count * (embedding_size // max(1, head_count)) * kv_head_count * _BYTES_OF_KEY_AND_VALUE


def estimate_memory(path: Path, sequence_count: int, length: int | None) -> int:
    """Estimate the memory of a process that decodes several sequences together, in bytes."""
    # The sum counts the weights, the keys and values of all sequences, and buffers. ``length``: tokens of each
    # sequence; None: the default of `Model.load`; 0: the length that the model was trained with. Raises
    # ``ModelError``.
    integer_metadata = {key: value for key, value in read_header(path).values.items() if isinstance(value, int)}

    def read_integer(name: str, default: int) -> int:
        return next((value for key, value in integer_metadata.items() if key.endswith(f".{name}")), default)

    trained_length = read_integer("context_length", _DEFAULT_CONTEXT_TOKENS)
    context_tokens = min(_DEFAULT_CONTEXT_TOKENS, trained_length) if length is None else length or trained_length
    head_count = read_integer("attention.head_count", 1)
    token_bytes = cache_bytes_per_token(
        read_integer("block_count", 0),
        read_integer("embedding_length", 0),
        head_count,
        read_integer("attention.head_count_kv", head_count),
    )
    return model_bytes(path) + sequence_count * context_tokens * token_bytes + _BUFFERS_BYTES
