"""The devices on which llama.cpp can compute, and the build of llama.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...common.text import did_you_mean, join_alternatives
from ...models.errors import ModelError
from ..load_options import LoadOptions
from .binding import bind_function, binding_version, lib, libggml

_TextFunction = ctypes.CFUNCTYPE(ctypes.c_char_p)
_DeviceCount = ctypes.CFUNCTYPE(ctypes.c_size_t)
_DeviceByNumber = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_DeviceText = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_DeviceType = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_DeviceMemory = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_DeviceProperties = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
# ggml_backend_dev_type of a GPU and of one that is part of a processor, see ggml-backend.h
_GPU_TYPE = 1
_INTEGRATED_GPU_TYPE = 2
_BACKENDS_WITHOUT_GPU = ("CPU", "BLAS", "RPC")  # names of ggml's backends that compute on no GPU of this machine


class _Properties(ctypes.Structure):
    """The struct ggml_backend_dev_props."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", ctypes.c_bool * 64),  # ggml has fewer, and writes only its own
    )


@dataclass(frozen=True)
class Device:
    """A GPU that llama.cpp was built for and finds here."""

    name: str  # such as ``CUDA0`` or ``Vulkan0``
    description: str  # such as the name of the card
    free_bytes: int
    total_bytes: int
    is_integrated: bool  # part of a processor
    card_id: str  # the address of the card; empty if it is unknown
    handle: int  # of ggml

    @property
    def card(self) -> str:
        """The backend and the description: what computes, wherever it is plugged in."""
        return f"{self.name.rstrip('0123456789')} {self.description}"


def list_devices() -> list[Device]:
    """Return all GPUs, in ggml's order."""
    return list(map(_read_device, _list_gpu_handles()))


def has_gpus() -> bool:
    """Return whether there are GPUs. Unlike `list_devices`, this takes no memory of the GPUs."""
    return bool(_list_gpu_handles())


def _list_gpu_handles() -> list[int]:
    gpu_types = (_GPU_TYPE, _INTEGRATED_GPU_TYPE)
    return [handle for handle in _list_handles("ggml_backend_dev") if _device_type(handle) in gpu_types]


def _device_type(handle: int) -> int | None:
    if not hasattr(libggml, "ggml_backend_dev_type"):
        return None
    return int(bind_function(libggml, "ggml_backend_dev_type", _DeviceType)(handle))


def _read_device(handle: int) -> Device:
    """Return a GPU with its memory. A driver such as CUDA's takes some of the memory when it is first asked."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    read_memory = bind_function(libggml, "ggml_backend_dev_memory", _DeviceMemory)
    read_memory(handle, ctypes.addressof(free), ctypes.addressof(total))
    properties = _Properties()
    read_properties = bind_function(libggml, "ggml_backend_dev_get_props", _DeviceProperties)
    read_properties(handle, ctypes.addressof(properties))
    return Device(
        name=_call_for_text("ggml_backend_dev_name", _DeviceText, handle),
        description=_call_for_text("ggml_backend_dev_description", _DeviceText, handle),
        free_bytes=free.value,
        total_bytes=total.value,
        is_integrated=_device_type(handle) == _INTEGRATED_GPU_TYPE,
        card_id=(properties.device_id or b"").decode("utf-8", "replace"),
        handle=handle,
    )


def choose_devices(options: LoadOptions) -> list[Device]:
    """Return the GPUs that a load may use; none on a machine without GPUs, or for an empty ``devices``."""
    # Raises ``ModelError`` for GPUs that are not here.
    if options.devices is None:
        chosen = _default_devices(list_devices())
        if not chosen:
            return []  # the options about GPUs have no effect
    else:
        all_devices = list_devices() if options.devices else []
        chosen = [_device_named(name, all_devices) for name in options.devices]
    names = ", ".join(device.name for device in chosen) or "none"
    if len(options.tensor_split) > len(chosen):
        problem = f"{len(options.tensor_split)} shares, but the number of GPUs is {len(chosen)} ({names})"
        raise ModelError(problem, origin="tensor_split")
    has_no_main = options.main_gpu < 0 and options.split_mode == "row"
    if has_no_main or options.main_gpu >= max(1, len(chosen)):
        problem = f"there is no GPU number {options.main_gpu}: the number of GPUs is {len(chosen)} ({names})"
        raise ModelError(problem, origin="main_gpu", advice="the first one has the number 0")
    if options.split_mode == "none":
        return chosen[options.main_gpu : options.main_gpu + 1] if options.main_gpu >= 0 else []
    return chosen


def _default_devices(devices: Sequence[Device]) -> list[Device]:
    """Return the GPUs that llama.cpp uses by default: each card once; integrated ones only without others."""
    has_cards = any(not device.is_integrated for device in devices)
    chosen: list[Device] = []
    for device in devices:
        is_other_name_of_card = bool(device.card_id) and device.card_id in {each.card_id for each in chosen}
        if not is_other_name_of_card and not (has_cards and device.is_integrated):
            chosen.append(device)
    return chosen


_MIN_SIMILARITY = 0.9  # 0 to 1; high, because names with different numbers are similar


def _device_named(name: str, devices: Sequence[Device]) -> Device:
    for device in devices:
        if device.name == name:
            return device
    names = join_alternatives([device.name for device in devices])
    known = f"the names are {names}" if names else "llama.cpp finds no GPU that it was built for"
    suggestion = did_you_mean(name, [device.name for device in devices], _MIN_SIMILARITY)
    raise ModelError(f"there is no device {name!r}; {known}", origin="devices", advice=suggestion)


@dataclass(frozen=True)
class LlamaCppBuild:
    """The llama.cpp that is loaded."""

    binding_version: str
    ggml_version: str  # version and commit of ggml, llama.cpp's library of tensors; empty if unknown
    system_info: str  # the features that llama.cpp was compiled for and finds here, as llama.cpp prints them
    devices: tuple[str, ...]  # name and description of each device on which llama.cpp can compute
    gpus: tuple[str, ...]  # the devices that are GPUs
    gpu_backends: tuple[str, ...]  # names of the kinds of GPU that llama.cpp was built for, such as ``CUDA``
    has_gpu: bool  # whether llama.cpp can compute on a GPU here


def llama_cpp_build() -> LlamaCppBuild:
    versions = [_call_for_text(name, _TextFunction) for name in ("ggml_version", "ggml_commit")]
    info = lib.llama_print_system_info().decode("utf-8", "replace")
    gpus = _list_gpu_handles()
    return LlamaCppBuild(
        binding_version=binding_version(),
        ggml_version=" ".join(version for version in versions if version),
        system_info=" | ".join(part.strip() for part in info.split("|") if part.strip()),
        devices=tuple(map(_device_text, _list_handles("ggml_backend_dev"))),
        gpus=tuple(map(_device_text, gpus)),
        gpu_backends=gpu_backends(),
        has_gpu=bool(gpus),
    )


def gpu_backends() -> tuple[str, ...]:
    """Return the names of the kinds of GPU that llama.cpp was built for, such as ``CUDA``."""
    names = (
        _call_for_text("ggml_backend_reg_name", _DeviceText, handle)
        for handle in _list_handles("ggml_backend_reg")
    )
    return tuple(name for name in names if name not in _BACKENDS_WITHOUT_GPU)


def _list_handles(kind: str) -> list[int]:
    """Return the handles of ggml's devices, ``ggml_backend_dev``, or of its backends, ``ggml_backend_reg``."""
    if not (hasattr(libggml, f"{kind}_count") and hasattr(libggml, f"{kind}_get")):
        return []
    count_handles = bind_function(libggml, f"{kind}_count", _DeviceCount)
    get_handle = bind_function(libggml, f"{kind}_get", _DeviceByNumber)
    return [get_handle(number) for number in range(count_handles())]


def _device_text(handle: int) -> str:
    name = _call_for_text("ggml_backend_dev_name", _DeviceText, handle)
    description = _call_for_text("ggml_backend_dev_description", _DeviceText, handle)
    return ": ".join(text for text in (name, description) if text)


def _call_for_text(name: str, prototype: Any, *arguments: object) -> str:
    """Return the string that a function of ggml returns; empty if ggml has no such function."""
    if not hasattr(libggml, name):
        return ""
    text: bytes | None = bind_function(libggml, name, prototype)(*arguments)
    return (text or b"").decode("utf-8", "replace")
