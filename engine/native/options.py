"""The options of a model and of a context: checked, sized, and as llama.cpp's structs.

Weights may be read into huge pages: each token reads all of them, and with 4 KiB pages waits for many address
look-ups. Only Linux is asked, and only for memory that a process has to itself: a mapped file cannot have them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from ...common.machine import CACHE_TYPES, INT32_MAX, MAX_THREADS, ROPE_SCALINGS, SPLIT_MODES
from ...models.errors import ModelError
from ...models.gguf import Values, check_is_adapter, check_is_model, iterate_fatal_values, read_header
from ...models.names import first_part, model_bytes
from .binding import AbortFlag, lib, supports_gpu

_CACHE_TYPE_IDS = dict(zip(CACHE_TYPES, (0, 1, 30, 8, 2, 3, 20, 6, 7), strict=True))
"""ggml_type, see ggml.h."""
_FLASH_ATTENTION_TYPES = {"on": 1, "off": 0, "auto": -1}
"""llama_flash_attn_type, see llama.h."""
_ROPE_SCALING_TYPES = dict(zip(ROPE_SCALINGS, (0, 1, 2), strict=True))
"""llama_rope_scaling_type, see llama.h."""


@dataclass(frozen=True)
class ComputeOptions:
    """How a context computes, as llama.cpp's flags of these names say. Every default is llama.cpp's.

    Raises ``ModelError`` for a value that llama.cpp does not know.

    Attributes:
        batch_threads: threads that read a prompt; None: those that write.
        microbatch: the tokens of a batch that are computed at once; None: the whole batch.
        flash_attention: ``on``, ``off`` or ``auto``: if the model allows it.
        cache_type_k: the number format of the keys in the cache, such as ``f16`` or ``q8_0``.
        cache_type_v: that of the values; a quantised one needs flash attention.
        rope_scaling: ``none``, ``linear`` or ``yarn``; None: the model's.
        rope_freq_base: the base frequency of RoPE; None: the model's.
        rope_freq_scale: the factor of its frequencies, which makes the context 1 / this longer; None: the model's.
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
        for name, value, known in (
            ("flash_attention", self.flash_attention, _FLASH_ATTENTION_TYPES),
            ("cache_type_k", self.cache_type_k, _CACHE_TYPE_IDS),
            ("cache_type_v", self.cache_type_v, _CACHE_TYPE_IDS),
            ("rope_scaling", self.rope_scaling or "none", _ROPE_SCALING_TYPES),
        ):
            if value not in known:
                raise ModelError(f"{name}: {value!r} is not one of {', '.join(known)}")
        for name, count, most in (
            ("batch_threads", self.batch_threads, MAX_THREADS),
            ("microbatch", self.microbatch, INT32_MAX),
        ):
            if count is not None and not 1 <= count <= most:
                raise ModelError(f"{name}: {count!r} is not within 1..{most}")
        if self.cache_type_v.startswith(("q", "iq")) and self.flash_attention == "off":
            raise ModelError(f"cache_type_v: {self.cache_type_v} needs flash attention, which is off")

    @property
    def has_tiled_attention(self) -> bool:
        """True if whole batches are computed on a CPU by the tiled kernel of flash attention."""
        is_plain = self.cache_type_k == self.cache_type_v == "f16" and self.microbatch is None
        return is_plain and self.flash_attention != "off"

    def apply(self, params: Any) -> None:
        """Set llama.cpp's context parameters, whose threads and batch size are set already."""
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


_SPLIT_MODE_IDS = dict(zip(SPLIT_MODES, (0, 1, 2, 3), strict=True))
"""llama_split_mode, see llama.h."""


@dataclass(frozen=True)
class GpuOptions:
    """How a model is divided among GPUs, as llama.cpp's flags of these names say. Every default is llama.cpp's.

    Without a GPU none of them has an effect. Raises ``ModelError`` for a value that llama.cpp does not know.

    Attributes:
        split_mode: ``none`` (one GPU), ``layer``, ``row`` or ``tensor``.
        main_gpu: the GPU of ``none``; that of intermediate results of ``row``. -1: none.
        tensor_split: the proportions of the GPUs, in their order; empty: by their free memory.
    """

    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.split_mode not in _SPLIT_MODE_IDS:
            raise ModelError(f"split_mode: {self.split_mode!r} is not one of {', '.join(SPLIT_MODES)}")
        if self.main_gpu < -1:
            raise ModelError(f"main_gpu: {self.main_gpu!r} is not ≥ -1")
        if not all(isfinite(part) and part >= 0 for part in self.tensor_split):
            raise ModelError(f"tensor_split: {self.tensor_split!r} holds what is no number ≥ 0")
        if self.tensor_split and not any(self.tensor_split):
            raise ModelError("tensor_split: no GPU gets a part")


def set_gpu_options(params: Any, options: GpuOptions) -> object:
    """Set llama.cpp's model parameters, if there is a GPU. Keep what this returns until the model is loaded.

    Raises ``ModelError`` for more proportions than llama.cpp has devices.
    """
    if not supports_gpu():
        return None
    devices = int(lib.llama_max_devices())
    if len(options.tensor_split) > devices:
        raise ModelError(f"tensor_split: {len(options.tensor_split)} numbers, and llama.cpp takes {devices}")
    params.split_mode = _SPLIT_MODE_IDS[options.split_mode]
    params.main_gpu = options.main_gpu
    if not options.tensor_split:
        return None
    parts = (ctypes.c_float * devices)(*options.tensor_split)
    params.tensor_split = parts
    return parts


_CONTEXT_STEP_TOKENS = 256
"""llama.cpp rounds the length of a sequence up to a multiple of this."""


@dataclass(frozen=True)
class ContextOptions:
    """The size of a context, and how it computes.

    Attributes: ``length``, tokens per sequence; ``threads``; ``batch``, the most tokens that are read at once;
    ``sequence_count``, how many there are; ``keeps_states``, whether the hidden states of all tokens are kept;
    ``compute``, what else llama.cpp's flags set.
    """

    length: int
    threads: int
    batch: int = 512
    sequence_count: int = 1
    keeps_states: bool = False
    compute: ComputeOptions = field(default_factory=ComputeOptions)


def native_context_params(options: ContextOptions, abort_flag: AbortFlag) -> Any:
    """llama.cpp's parameters of such a context, whose calls ``abort_flag`` ends."""
    params = lib.llama_context_default_params()
    params.n_ctx = options.length
    if options.sequence_count > 1:
        steps = -(-options.length // _CONTEXT_STEP_TOKENS)
        params.n_ctx = steps * _CONTEXT_STEP_TOKENS * options.sequence_count
    params.n_seq_max = options.sequence_count
    params.n_batch = params.n_ubatch = options.batch
    params.n_threads = params.n_threads_batch = options.threads
    params.abort_callback, params.abort_callback_data = abort_flag.callback, abort_flag.address
    options.compute.apply(params)
    if options.keeps_states:
        params.embeddings, params.pooling_type = True, lib.LLAMA_POOLING_TYPE_NONE
    return params


MetadataOverrides = Mapping[str, int | float | bool | str]
"""By key of the metadata."""

_MAX_BYTES = 127
"""llama.cpp keeps keys and texts in 128 bytes, with a zero at the end."""


def check_overrides(overrides: MetadataOverrides, values: Values) -> None:
    """Raise ``ModelError`` for an override that llama.cpp would ignore, cut off, or end the process on.

    ``values``: the GGUF's own. A key that it lacks may be overridden with any type.
    """
    encoded = {key: _encoded(key, value) for key, value in overrides.items()}
    for key, value in encoded.items():
        if not 1 <= len(key.encode()) <= _MAX_BYTES or (isinstance(value, bytes) and len(value) > _MAX_BYTES):
            raise ModelError(f"override of {key!r}: key and text have at most {_MAX_BYTES} bytes")
        if key in values and type(values[key]) is not type(value):
            expected, given = _type_name(values[key]), _type_name(value)
            raise ModelError(f"override of {key}: the file holds {expected}, not {given}")
    faults_without = set(iterate_fatal_values(values))
    for fault in iterate_fatal_values({**values, **encoded}):
        if fault not in faults_without:
            raise ModelError(f"override: {fault}")


def _encoded(key: str, value: int | float | bool | str) -> int | float | bool | bytes:
    """The value; a text in UTF-8, as llama.cpp takes it and the key."""
    try:
        key.encode()
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise ModelError(f"override of {key!a}: key and text must be UTF-8") from None


def _type_name(value: int | float | bool | bytes) -> str:
    """The type, as llama.cpp's flag names it."""
    return {bool: "bool", int: "int", float: "float", bytes: "str"}[type(value)]


_DEFAULT_CONTEXT_TOKENS = 4096
"""A compromise: room for long prompts, without the memory that the length a model was trained with may take."""
LLAMA_CPPS_DEFAULTS = ComputeOptions()
LLAMA_CPPS_GPU_DEFAULTS = GpuOptions()


@dataclass(frozen=True)
class LoadOptions:
    """How llama.cpp loads a model file.

    Attributes: ``gpu_layers``, layers on the GPU, -1 for all; ``mmap``, whether the file is mapped into memory;
    ``mlock``, whether it is locked there; ``missing_bytes``, see `GgufHeader`; ``overrides``, metadata by key;
    ``gpu``, how the model is divided among GPUs.
    """

    gpu_layers: int = 0
    mmap: bool = True
    mlock: bool = False
    missing_bytes: frozenset[int] = frozenset()
    overrides: MetadataOverrides = field(default_factory=dict)
    gpu: GpuOptions = field(default_factory=GpuOptions)


@dataclass(frozen=True)
class LoadPlan:
    """A model file that was checked, and how it is to be loaded.

    Attributes: ``path``; ``options``, of the model; ``lora``, the adapter files with their scales; ``length``,
    tokens of context, None for the default and 0 for all that the model was trained with; ``threads``; ``batch``;
    ``compute``.
    """

    path: Path
    options: LoadOptions
    lora: tuple[tuple[Path, float], ...]
    length: int | None
    threads: int
    batch: int
    compute: ComputeOptions

    def context_options(self, trained: int) -> ContextOptions:
        """The options of the model's own context; ``trained``: the length that it was trained with, tokens."""
        length = _context_length(self.length, trained)
        return ContextOptions(length, self.threads, min(self.batch, length), compute=self.compute)


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
    """Check a file, and how it is to be loaded. Raises ``ModelError``.

    Args:
        path: The GGUF file.
        n_ctx: Tokens of context; this and the others as in `Model.load`.
        threads: Threads.
        gpu_layers: Layers on a GPU.
        batch: Tokens of a prompt that are read at once.
        mmap: Map the file; None: as its size says.
        mlock: Keep the model in memory.
        lora: Adapters.
        overrides: Values for keys of the file.
        compute: Further settings of the context.
        gpu: How GPUs share the model.
    """
    path = first_part(Path(path))
    check_number("n_ctx", n_ctx, 0, INT32_MAX)
    check_number("threads", threads, 1, MAX_THREADS)
    check_number("gpu_layers", gpu_layers, -1, INT32_MAX)
    check_number("batch", batch, 1, INT32_MAX)
    header = check_is_model(path)
    check_overrides(overrides or {}, header.values)
    for file, _ in lora:
        check_is_adapter(Path(file), header.values.get("general.architecture"))
    if mmap is None:
        mmap = mlock or gpu_layers != 0 or not are_huge_pages_useful(model_bytes(path))
    options = LoadOptions(gpu_layers, mmap, mlock, header.bytes_without_token, overrides or {}, gpu)
    adapters = tuple((Path(file), scale) for file, scale in lora)
    return LoadPlan(path, options, adapters, n_ctx, threads or physical_cores(), batch, compute)


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Raise ``ModelError`` for a value that C would misread or crash on.

    Args:
        name: the parameter, for the message.
        value: its value; None is allowed for ``n_ctx`` and ``threads``.
        low: the smallest value allowed.
        high: the largest value allowed.
    """
    if value is None and name in ("n_ctx", "threads"):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ModelError(f"{name}: {value!r} is not a whole number within {low}..{high}")


def _context_length(requested: int | None, trained: int) -> int:
    if requested is None:
        return min(_DEFAULT_CONTEXT_TOKENS, trained) if trained > 0 else _DEFAULT_CONTEXT_TOKENS
    return requested if requested > 0 else trained


def physical_cores() -> int:
    """How many physical cores this process may use; the hardware threads of one core count once."""
    try:
        usable = os.sched_getaffinity(0)
        siblings = {
            Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
            for cpu in usable
        }
        return max(1, len(siblings))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)


_SLOTS_PER_THREAD, _MAX_SLOTS = 4, 8
"""Enough requests to keep the threads busy; every slot takes memory. benchmarks/batch.py measures the speed."""
_BYTES_OF_KEY_AND_VALUE = 4
"""Two numbers of two bytes each, llama.cpp's default."""
_BUFFERS_BYTES = 400_000_000
"""What llama.cpp's buffers and Python take beside the weights and the cache, generously."""


def default_slots(threads: int) -> int:
    """Return how many requests keep so many threads busy: four per thread, at most 8."""
    return min(_MAX_SLOTS, _SLOTS_PER_THREAD * threads)


def cache_bytes_per_token(layers: int, embedding: int, heads: int, kv_heads: int) -> int:
    """Return the memory for the keys and values of one token.

    Args:
        layers: of the model.
        embedding: its width.
        heads: of attention.
        kv_heads: heads of keys and values.
    """
    return layers * (embedding // max(1, heads)) * kv_heads * _BYTES_OF_KEY_AND_VALUE


def estimate_memory(path: Path, sequences: int, length: int | None) -> int:
    """Return about how many bytes a process takes that decodes so many sequences at once.

    The weights, the keys and values of all sequences, and buffers. Raises ``ModelError``.

    Args:
        path: the GGUF file; of a split model, any part.
        sequences: how many there are.
        length: the context of each, tokens; None: as `Model.load` chooses it; 0: as the model was trained.
    """
    numbers = {key: value for key, value in read_header(path).values.items() if isinstance(value, int)}

    def number(name: str, default: int) -> int:
        return next((value for key, value in numbers.items() if key.endswith(f".{name}")), default)

    trained = number("context_length", _DEFAULT_CONTEXT_TOKENS)
    tokens = min(_DEFAULT_CONTEXT_TOKENS, trained) if length is None else length or trained
    heads = number("attention.head_count", 1)
    cache = cache_bytes_per_token(
        number("block_count", 0), number("embedding_length", 0), heads, number("attention.head_count_kv", heads)
    )
    return model_bytes(path) + sequences * tokens * cache + _BUFFERS_BYTES


_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPPINGS = Path("/proc/self/maps")
_PAGE_BYTES = 1 << 21
_LEAST_BYTES, _MOST_BYTES = 16_000_000, 500_000_000
"""Smaller files gain nothing. Larger ones stay mapped: processes share the memory, and it can be given back."""
_FIELDS_WITHOUT_FILE = 5
"""The fields of a mapping's line that names no file: addresses, permissions, offset, device, inode."""


def are_huge_pages_useful(file_bytes: int) -> bool:
    """Say whether a model of this size is read into huge pages rather than mapped."""
    return _LEAST_BYTES <= file_bytes <= _MOST_BYTES and are_huge_pages_supported()


def are_huge_pages_supported() -> bool:
    """Say whether the kernel gives huge pages to those who ask."""
    try:
        return hasattr(mmap, "MADV_HUGEPAGE") and "[never]" not in _SETTING.read_text()
    except OSError:
        return False


def request_huge_pages_on_first_progress(progress: Callable[[float], bool]) -> Callable[[float], bool]:
    """Return ``progress``, a callback of a load that begins now, that asks for huge pages at its first call.

    By then llama.cpp has reserved the memory of the weights, and read none of them. If the kernel does not say
    where that is, the pages stay small.
    """
    if not are_huge_pages_supported():
        return progress
    before = set(_large_mappings())
    is_requested = False

    def request_and_report(fraction: float) -> bool:
        nonlocal is_requested
        if not is_requested:
            is_requested = True
            _request(set(_large_mappings()) - before)
        return progress(fraction)

    return request_and_report


def _large_mappings() -> Iterator[tuple[int, int]]:
    """The addresses of the large pieces of this process's own memory, each from its start to its end."""
    lines: list[bytes] = []
    with suppress(OSError):
        lines = _MAPPINGS.read_bytes().splitlines()  # a file's name may be no UTF-8
    for line in lines:
        fields = line.split()
        if len(fields) == _FIELDS_WITHOUT_FILE and fields[1] == b"rw-p":
            start, end = (int(address, 16) for address in fields[0].split(b"-"))
            if end - start >= _LEAST_BYTES:
                yield start, end


def _request(mappings: set[tuple[int, int]]) -> None:
    """Ask for huge pages in these pieces of memory. Pages that are in use stay as they are."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, end in mappings:
        first = -(-start // _PAGE_BYTES) * _PAGE_BYTES
        advise(first, (end - first) // _PAGE_BYTES * _PAGE_BYTES, mmap.MADV_HUGEPAGE)
