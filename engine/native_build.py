"""What llama.cpp was built with, as its C functions tell it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .native_binding import binding_version, lib, libggml


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
    versions = [_text(libggml, name) for name in ("ggml_version", "ggml_commit")]
    info = lib.llama_print_system_info().decode("utf-8", "replace")
    return LlamaCppBuild(
        binding_version=binding_version(),
        ggml_version=" ".join(version for version in versions if version),
        system_info=" | ".join(part.strip() for part in info.split("|") if part.strip()),
        devices=_devices(),
        has_gpu=supports_gpu(),
    )


def _devices() -> tuple[str, ...]:
    count = getattr(libggml, "ggml_backend_dev_count", None)
    get = getattr(libggml, "ggml_backend_dev_get", None)
    if count is None or get is None:
        return ()
    count.restype, get.restype, get.argtypes = ctypes.c_size_t, ctypes.c_void_p, [ctypes.c_size_t]
    handles = [ctypes.c_void_p(get(number)) for number in range(count())]
    names = ("ggml_backend_dev_name", "ggml_backend_dev_description")
    return tuple(": ".join(filter(None, (_text(libggml, name, handle) for name in names))) for handle in handles)


def _text(library: ctypes.CDLL, name: str, *arguments: ctypes.c_void_p) -> str:
    """The text that a C function returns; empty if the library has no such function."""
    function = getattr(library, name, None)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    text: bytes | None = function(*arguments)
    return (text or b"").decode("utf-8", "replace")


def supports_gpu() -> bool:
    """True if llama.cpp can compute on a GPU here: it was built for one, and one is there."""
    return bool(lib.llama_supports_gpu_offload())
