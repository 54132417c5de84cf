"""The machine that `gen` runs on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Return a description of the system, the processor, and the memory in bytes; None for unknown values."""
    return {
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "hardware_threads": os.cpu_count(),
        "usable_threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _page_count_in_bytes("SC_PHYS_PAGES"),
        "available_memory_bytes": _available_memory_bytes(),
        "gpu": gpu_maker(),
    }


def physical_cores() -> int:
    """Return the number of physical cores that this process may use; hardware threads of a core count once."""
    try:
        usable_threads = os.sched_getaffinity(0)
        sibling_lists = {
            Path(f"/sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list").read_text().strip()
            for thread in usable_threads
        }
        return max(1, len(sibling_lists))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)


# Files that the driver of a GPU makes on Linux: the maker of the GPU, the folder and the name. The file of any
# driver is last.
_GPU_DRIVER_FILES = (("NVIDIA", "/dev", "nvidiactl"), ("AMD", "/dev", "kfd"), ("unknown", "/dev/dri", "renderD*"))


def gpu_maker() -> str | None:
    """Return the maker of a GPU with a driver here, ``unknown`` if only a driver is known; None without a GPU."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "Apple"
    for maker, folder, name in _GPU_DRIVER_FILES:
        if any(Path(folder).glob(name)):
            return maker
    return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _page_count_in_bytes(setting: str) -> int | None:
    try:
        return os.sysconf(setting) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _available_memory_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):  # such as ``MemAvailable:   16337012 kB``
            return int(line.split()[1]) * 1024
    return None
