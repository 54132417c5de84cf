"""Models of random weights in each quantization that llama.cpp writes, made by its own function."""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

import llama_cpp.llama_cpp as lib

from .big_model import write_model

QUANTIZATIONS = (
    "F32",
    "BF16",
    "F16",
    "Q8_0",
    "Q6_K",
    "Q5_K_M",
    "Q5_K_S",
    "Q5_0",
    "Q5_1",
    "Q4_K_M",
    "Q4_K_S",
    "Q4_0",
    "Q4_1",
    "Q3_K_M",
    "Q3_K_S",
    "Q2_K",
    "IQ4_XS",
    "IQ4_NL",
    "IQ3_S",
    "IQ3_M",
)
"""Those that need no importance matrix."""

VOCABULARY = 4096
WIDTH, HEADS, LAYERS = 512, 8, 2
"""K-quants need rows of a multiple of 256 weights; two layers carry a difference on through the attention."""


class QuantizedModels:
    """Writes models into a folder, each of them once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, quantization: str, vocabulary: int = VOCABULARY, experts: int = 0) -> Path:
        """The file of the model in one quantization; it is written if it is not there."""
        target = self._folder / f"{vocabulary}-{experts}-{quantization}.gguf"
        if not target.exists():
            source = self._folder / f"{vocabulary}-{experts}.gguf"
            if not source.exists():
                scale = WIDTH**-0.5
                write_model(source, vocabulary, WIDTH, HEADS, LAYERS, False, scale, experts)
            quantize(source, target, quantization)
        return target


def quantize(source: Path, target: Path, quantization: str, importance: Mapping[str, int] | None = None) -> None:
    """Quantise a model with llama.cpp's own function.

    ``importance``: the row lengths of tensors by name, for an importance matrix where all weights count the same.
    """
    params = lib.llama_model_quantize_default_params()
    names = [f"LLAMA_FTYPE_MOSTLY_{quantization}", f"LLAMA_FTYPE_ALL_{quantization}"]
    params.ftype = next(getattr(lib, name) for name in names if hasattr(lib, name))
    params.nthread = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    entries = (lib.llama_model_imatrix_data * (len(importance or ()) + 1))()  # the last one has no name
    for entry, (name, length) in zip(entries, (importance or {}).items(), strict=False):
        entry.name, entry.size = name.encode(), length
        entry.data = (ctypes.c_float * length)(*[1.0] * length)
    if importance:
        params.imatrix = entries
    code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(target), params)
    if code != 0:
        raise RuntimeError(f"llama.cpp could not quantize {source} as {quantization} (code {code})")
