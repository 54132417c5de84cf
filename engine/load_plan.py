"""What is known of a model before llama.cpp loads it: the checked file, and how it is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..common.machine import INT32_MAX, MAX_THREADS
from ..models.errors import ModelError
from ..models.gguf import check_is_adapter, check_is_model
from ..models.names import first_part, model_bytes
from . import huge_pages
from .compute_options import ComputeOptions
from .context_options import ContextOptions
from .gpu_options import GpuOptions
from .metadata_overrides import MetadataOverrides, check_overrides
from .slots import DEFAULT_CONTEXT_TOKENS

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
        mmap = mlock or gpu_layers != 0 or not huge_pages.are_for_models_of(model_bytes(path))
    options = LoadOptions(gpu_layers, mmap, mlock, header.missing_bytes, overrides or {}, gpu)
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
        return min(DEFAULT_CONTEXT_TOKENS, trained) if trained > 0 else DEFAULT_CONTEXT_TOKENS
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
