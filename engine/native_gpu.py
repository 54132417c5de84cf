"""llama.cpp's C functions for GPUs."""

from __future__ import annotations

import ctypes
from typing import Any

from ..models.errors import ModelError
from .gpu_options import SPLIT_MODE_IDS, GpuOptions
from .native_binding import lib
from .native_build import supports_gpu


def set_gpu_options(params: Any, options: GpuOptions) -> object:
    """Set llama.cpp's model parameters, if there is a GPU. Keep what this returns until the model is loaded.

    Raises ``ModelError`` for more proportions than llama.cpp has devices.
    """
    if not supports_gpu():
        return None
    devices = int(lib.llama_max_devices())
    if len(options.tensor_split) > devices:
        raise ModelError(f"tensor_split: {len(options.tensor_split)} numbers, and llama.cpp takes {devices}")
    params.split_mode = SPLIT_MODE_IDS[options.split_mode]
    params.main_gpu = options.main_gpu
    if not options.tensor_split:
        return None
    parts = (ctypes.c_float * devices)(*options.tensor_split)
    params.tensor_split = parts
    return parts
