"""What llama.cpp was built with, as its C functions tell it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from .native_binding import bind_function, binding_version, lib, libggml

_Text = ctypes.CFUNCTYPE(ctypes.c_char_p)
_DeviceCount = ctypes.CFUNCTYPE(ctypes.c_size_t)
_DeviceByNumber = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_DeviceText = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


@dataclass(frozen=True)
class LlamaCppBuild:
    """The llama.cpp that is loaded.

    Attributes:
        binding_version: llama-cpp-python's.
        ggml_version: the version and commit of ggml, llama.cpp's library of tensors; empty: it does not tell.
        system_info: what it was compiled for and finds here, as llama.cpp prints it.
        devices: what it can compute on, each as name and description.
        has_gpu: True if it can compute on a GPU here.
    """

    binding_version: str
    ggml_version: str
    system_info: str
    devices: tuple[str, ...]
    has_gpu: bool


def llama_cpp_build() -> LlamaCppBuild:
    """Return what the loaded llama.cpp says of itself."""
    versions = [_text(name, _Text) for name in ("ggml_version", "ggml_commit")]
    info = lib.llama_print_system_info().decode("utf-8", "replace")
    return LlamaCppBuild(
        binding_version=binding_version(),
        ggml_version=" ".join(version for version in versions if version),
        system_info=" | ".join(part.strip() for part in info.split("|") if part.strip()),
        devices=_devices(),
        has_gpu=supports_gpu(),
    )


def _devices() -> tuple[str, ...]:
    if not (hasattr(libggml, "ggml_backend_dev_count") and hasattr(libggml, "ggml_backend_dev_get")):
        return ()
    count = bind_function(libggml, "ggml_backend_dev_count", _DeviceCount)
    get = bind_function(libggml, "ggml_backend_dev_get", _DeviceByNumber)
    names = ("ggml_backend_dev_name", "ggml_backend_dev_description")
    return tuple(
        ": ".join(filter(None, (_text(name, _DeviceText, handle) for name in names)))
        for handle in map(get, range(count()))
    )


def _text(name: str, prototype: Any, *arguments: object) -> str:
    """Return the text that a function of ggml returns; empty if ggml has no such function."""
    if not hasattr(libggml, name):
        return ""
    text: bytes | None = bind_function(libggml, name, prototype)(*arguments)
    return (text or b"").decode("utf-8", "replace")


def supports_gpu() -> bool:
    """True if llama.cpp can compute on a GPU here: it was built for one, and one is there."""
    return bool(lib.llama_supports_gpu_offload())
