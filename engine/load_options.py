"""The options of loading a model: one type for flags, workers, drafts and Python code.

The module needs neither llama_cpp nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from ..common.llama_cpp_limits import (
    CACHE_TYPES,
    FLASH_ATTENTION_MODES,
    INT32_MAX,
    MAX_THREADS,
    ROPE_SCALINGS,
    SPLIT_MODES,
)
from ..common.machine import physical_cores
from ..models.errors import ModelError
from ..models.names import part_paths

# values that replace values of the file's metadata, by metadata key
MetadataOverrides = Mapping[str, int | float | bool | str]

# a compromise: long prompts fit, and the memory stays far below the need of the longest context of some models
_DEFAULT_CONTEXT_TOKENS = 4096
# Models of at most this size are read, larger ones mapped. All weights are read for each token, and a mapped file
# has small pages: measured with a model of 92 MB in a virtual machine, a token of the mapped one takes a third
# longer. The memory of a mapped file is shared by processes, and the system can reclaim it.
_MAX_READ_BYTES = 500_000_000


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a model is loaded, and how its contexts compute: the keywords of `Model.load`.

    The options can be pickled. Raises ``ModelError`` for a value that llama.cpp does not support.

    Attributes:
        n_ctx: tokens of context; None: 4,096, or fewer if the model was trained with fewer; 0: the length that the
            model was trained with.
        threads: number of CPU threads; None: the physical cores.
        batch_threads: number of threads for reading a prompt; None: the same number as for generating.
        batch: maximum number of tokens of a prompt that one call of llama.cpp reads.
        microbatch: number of tokens of a batch that are computed together; None: the whole batch.
        flash_attention: ``on``, ``off``, or ``auto``, which is on if the model supports it.
        cache_type_k: data type of the keys in the cache, such as ``f16`` or ``q8_0``.
        cache_type_v: data type of the values in the cache; a quantized type needs flash attention.
        rope_scaling: ``none``, ``linear`` or ``yarn``; None: the model's setting.
        rope_freq_base: base frequency of RoPE; None: the model's setting.
        rope_freq_scale: factor of RoPE's frequencies; a factor 1/n allows n times the context. None: the model's
            setting.
        gpu_layers: number of layers that are computed on the GPU; -1: all.
        split_mode: how several GPUs share the model: ``none`` (one GPU), ``layer``, ``row`` or ``tensor``. It and
            the next two options have no effect without a GPU.
        main_gpu: number of the GPU, for the mode ``none``; for the mode ``row``, the GPU of intermediate results.
            -1: no GPU.
        tensor_split: share of each GPU, in the order of the GPUs; empty: by their free memory.
        mmap: whether to map the file into memory instead of reading it; None: models of at most 500 MB that are
            not on a GPU are read.
        mlock: whether to keep the model from being swapped out.
        lora: adapter files with their scales.
        overrides: values that replace values of the file's metadata, by key.
    """

    n_ctx: int | None = None
    threads: int | None = None
    batch_threads: int | None = None
    batch: int = 512
    microbatch: int | None = None
    flash_attention: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    rope_scaling: str | None = None
    rope_freq_base: float | None = None
    rope_freq_scale: float | None = None
    gpu_layers: int = 0
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    mmap: bool | None = None
    mlock: bool = False
    lora: Sequence[tuple[str | Path, float]] = ()
    overrides: MetadataOverrides = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, number, minimum, maximum in (
            ("n_ctx", self.n_ctx, 0, INT32_MAX),
            ("threads", self.threads, 1, MAX_THREADS),
            ("batch_threads", self.batch_threads, 1, MAX_THREADS),
            ("microbatch", self.microbatch, 1, INT32_MAX),
        ):
            if number is not None:
                check_integer(name, number, minimum, maximum)
        check_integer("batch", self.batch, 1, INT32_MAX)
        check_integer("gpu_layers", self.gpu_layers, -1, INT32_MAX)
        for name, value, allowed in (
            ("flash_attention", self.flash_attention, FLASH_ATTENTION_MODES),
            ("cache_type_k", self.cache_type_k, CACHE_TYPES),
            ("cache_type_v", self.cache_type_v, CACHE_TYPES),
            ("rope_scaling", self.rope_scaling or "none", ROPE_SCALINGS),
            ("split_mode", self.split_mode, SPLIT_MODES),
        ):
            if value not in allowed:
                raise ModelError(f"{name}: {value!r} is not one of {', '.join(allowed)}")
        if self.cache_type_v.startswith(("q", "iq")) and self.flash_attention == "off":
            raise ModelError(f"cache_type_v: {self.cache_type_v} needs flash attention, which is off")
        if self.main_gpu < -1:
            raise ModelError(f"main_gpu: {self.main_gpu!r} is not ≥ -1")
        if not all(isfinite(share) and share >= 0 for share in self.tensor_split):
            raise ModelError(f"tensor_split: {self.tensor_split!r} has a share that is not a number ≥ 0")
        if self.tensor_split and not any(self.tensor_split):
            raise ModelError("tensor_split: no GPU gets a share")

    @property
    def thread_count(self) -> int:
        """The number of CPU threads, where ``threads`` may be None."""
        return self.threads or physical_cores()

    def context_length(self, trained_length: int) -> int:
        """Return the tokens of context of a model that was trained with ``trained_length`` tokens; 0: unknown."""
        if self.n_ctx is not None:
            return self.n_ctx or trained_length
        is_trained_length_known = trained_length > 0
        return min(_DEFAULT_CONTEXT_TOKENS, trained_length) if is_trained_length_known else _DEFAULT_CONTEXT_TOKENS

    def should_map(self, file_bytes: int) -> bool:
        """Return whether a model of this size is mapped into memory."""
        if self.mmap is None:
            return self.mlock or self.gpu_layers != 0 or file_bytes > _MAX_READ_BYTES
        return self.mmap


def check_integer(name: str, value: object, minimum: int, maximum: int) -> None:
    """Raise ``ModelError`` for a value that C would misread, or that would crash llama.cpp."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ModelError(f"{name}: {value!r} is not an integer within {minimum}..{maximum}")


@dataclass(frozen=True)
class ModelSpec:
    """A model and the options for loading it, which can be pickled and sent to another process."""

    path: Path  # the file, or the first part of a split model
    origin: str  # the place where the model was named, see `locate`
    options: LoadOptions

    @property
    def files(self) -> list[Path]:
        """All files that are loaded: the parts of the model, and its adapters."""
        return [*part_paths(self.path), *(Path(file) for file, _ in self.options.lora)]

    def relocated(self, find_new_path: Callable[[Path], Path]) -> ModelSpec:
        """Return the same model with its files in other places."""
        paths = {path: find_new_path(path) for path in self.files}
        lora = [(paths[Path(file)], scale) for file, scale in self.options.lora]
        return replace(self, path=paths[self.path], options=replace(self.options, lora=lora))
