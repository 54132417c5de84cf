"""The options of loading a model: one type for flags, workers, drafts and Python code.

The module needs neither llama_cpp nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

from ..common.errors import Word, wrong_value
from ..common.llama_cpp_limits import (
    CACHE_TYPES,
    FLASH_ATTENTION_MODES,
    INT32_MAX,
    MAX_SLOTS,
    MAX_THREADS,
    ROPE_SCALINGS,
    SPLIT_MODES,
)
from ..common.machine import physical_cores
from ..common.text import join_alternatives
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
        gpu_layers: number of layers that are computed on the GPU, the output included; ``all``; or ``auto``: as
            many as fit beside the caches. Without a GPU it has no effect.
        devices: names of the GPUs to use, such as ``CUDA0``; empty: none; None: all.
        cpu_expert_layers: number of layers whose experts stay in the CPU's memory, from the first layer on; or
            ``all``.
        slots: number of sequences that are decoded together, for which a GPU must have memory; None: as
            `Model.default_parallel` says, or fewer if not all of the model fits.
        companions: files of models that will be loaded beside this one, such as a draft model, for which GPUs keep
            memory.
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
    gpu_layers: int | str = "auto"
    devices: tuple[str, ...] | None = None
    cpu_expert_layers: int | str = 0
    slots: int | None = 1
    companions: Sequence[str | Path] = ()
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    mmap: bool | None = None
    mlock: bool = False
    lora: Sequence[tuple[str | Path, float]] = ()
    overrides: MetadataOverrides = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            is_unset = value is None and (option.default is None or option.name in _CAN_BE_NONE)
            if not is_unset:
                _VALUES[option.name].check(option.name, value)
        if self.cache_type_v.startswith(("q", "iq")) and self.flash_attention == "off":
            raise ModelError(f"{self.cache_type_v} needs flash attention, which is off", origin="cache_type_v")
        if self.tensor_split and not any(self.tensor_split):
            raise ModelError("no GPU gets a share", origin="tensor_split")
        if self.devices is not None and len(set(self.devices)) < len(self.devices):
            raise ModelError(f"a GPU is named twice: {', '.join(self.devices)}", origin="devices")
        has_no_device = self.devices is not None and not self.devices
        if has_no_device and self.gpu_layers not in (0, "auto"):
            problem = f"{self.gpu_layers} needs a GPU, and none may be used"
            raise ModelError(problem, origin="gpu_layers", advice=("omit ", Word.GPU_LAYERS))

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

    def should_map(self, file_bytes: int, *, is_on_gpu: bool = False) -> bool:
        """Return whether a model of this size is mapped into memory."""
        if self.mmap is None:
            return self.mlock or is_on_gpu or file_bytes > _MAX_READ_BYTES
        return self.mmap


@dataclass(frozen=True)
class _Values:
    """The values of an option that llama.cpp reads as they are, and does not crash with."""

    allowed: str  # for messages
    contains: Callable[[Any], bool]

    def check(self, name: str, value: object) -> None:
        if not self.contains(value):
            raise ModelError(f"{name}: {wrong_value(value, self.allowed)}")


def _integers(minimum: int, maximum: int = INT32_MAX) -> _Values:
    allowed = f"an integer within {minimum}..{maximum}"
    return _Values(allowed, lambda value: _is_integer(value) and minimum <= value <= maximum)


def _integer_or(minimum: int, *words: str) -> _Values:
    allowed = join_alternatives([f"an integer ≥ {minimum}", *words])
    return _Values(
        allowed, lambda value: value in words if isinstance(value, str) else _integers(minimum).contains(value)
    )


def _one_of(choices: Collection[str]) -> _Values:
    allowed = f"one of {', '.join(choices)}"
    return _Values(allowed, lambda value: isinstance(value, str) and value in choices)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, Real) and value is not True and value is not False
    return is_real and bool(abs(value) <= _FLOAT32_MAX)


def _are_shares(value: object) -> bool:
    return _is_list(value) and all(_is_number(share) and share >= 0 for share in value)


def _are_names(value: object) -> bool:
    return _is_list(value) and all(isinstance(name, str) for name in value)


def _are_paths(value: object) -> bool:
    return _is_list(value) and all(isinstance(path, (str, Path)) for path in value)


def _are_adapters(value: object) -> bool:
    return _is_list(value) and all(
        _is_list(item) and len(item) == _PAIR and isinstance(item[0], (str, Path)) and _is_number(item[1])
        for item in value
    )


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_metadata(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str)
        and (type(entry) in (bool, float, str) or (type(entry) is int and -(2**63) <= entry < 2**63))
        for key, entry in value.items()
    )


_PAIR = 2
_FLOAT32_MAX = 3.4028235e38  # llama.cpp's numbers have 32 bits
_NUMBER = _Values("a number of 32 bits", _is_number)
_THREADS = _integers(1, MAX_THREADS)
_SWITCH = _Values("true or false", lambda value: isinstance(value, bool))
_CAN_BE_NONE = frozenset({"slots"})  # beside the options whose default is None
# the values of each option without None
_VALUES: Mapping[str, _Values] = {
    "n_ctx": _integers(0),
    "threads": _THREADS,
    "batch_threads": _THREADS,
    "batch": _integers(1),
    "microbatch": _integers(1),
    "flash_attention": _one_of(FLASH_ATTENTION_MODES),
    "cache_type_k": _one_of(CACHE_TYPES),
    "cache_type_v": _one_of(CACHE_TYPES),
    "rope_scaling": _one_of(ROPE_SCALINGS),
    "rope_freq_base": _NUMBER,
    "rope_freq_scale": _NUMBER,
    "gpu_layers": _integer_or(0, "all", "auto"),
    "devices": _Values("a tuple of names", _are_names),
    "cpu_expert_layers": _integer_or(0, "all"),
    "slots": _integers(1, MAX_SLOTS),
    "companions": _Values("a tuple of paths", _are_paths),
    "split_mode": _one_of(SPLIT_MODES),
    "main_gpu": _integers(-1),
    "tensor_split": _Values("a tuple of numbers ≥ 0", _are_shares),
    "mmap": _SWITCH,
    "mlock": _SWITCH,
    "lora": _Values("a list of pairs, each a file and a number", _are_adapters),
    "overrides": _Values("a mapping of strings to integers of 64 bits, floats, bools or strings", _is_metadata),
}


def check_integer(name: str, value: object, minimum: int, maximum: int) -> None:
    """Raise ``ModelError`` for a value that C would misread, or that would crash llama.cpp."""
    _integers(minimum, maximum).check(name, value)


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
