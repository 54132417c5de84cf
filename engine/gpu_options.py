"""llama.cpp's settings of several GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from ..common.machine import SPLIT_MODES
from ..models.errors import ModelError

SPLIT_MODE_IDS = dict(zip(SPLIT_MODES, (0, 1, 2, 3), strict=True))
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
        if self.split_mode not in SPLIT_MODE_IDS:
            raise ModelError(f"split_mode: {self.split_mode!r} is not one of {', '.join(SPLIT_MODES)}")
        if self.main_gpu < -1:
            raise ModelError(f"main_gpu: {self.main_gpu!r} is not ≥ -1")
        if not all(isfinite(part) and part >= 0 for part in self.tensor_split):
            raise ModelError(f"tensor_split: {self.tensor_split!r} holds what is no number ≥ 0")
        if self.tensor_split and not any(self.tensor_split):
            raise ModelError("tensor_split: no GPU gets a part")
